package local

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Range is the second octet of the addresses of an environment: everything in it listens in 127.<Range>.0.0/16.
type Range int

const (
	firstRange Range = 16
	lastRange  Range = 239
	// ExampleRange is the range in which the manifests of the repository are written.
	ExampleRange Range = 64
)

// Ports of an environment. Those of the management cluster are on Range.Management, those of the simulated vCenter on Range.VCenter.
const (
	portEtcd              = 2379
	portEtcdPeer          = 2380
	portReservation       = 2378
	portAPIServer         = 6443
	portControllerManager = 10257
	portVCenter           = 8443
	portVCenterAdmin      = 8444
	portGuests            = 8445
)

func (r Range) String() string { return fmt.Sprintf("127.%d.0.0/16", int(r)) }

// Management is the address of the management cluster.
func (r Range) Management() string { return fmt.Sprintf("127.%d.0.1", int(r)) }

// VCenter is the address of the simulated vCenter.
func (r Range) VCenter() string { return fmt.Sprintf("127.%d.0.2", int(r)) }

// Rewrite moves a manifest that is written for the ExampleRange into this range.
func (r Range) Rewrite(text string) string {
	return strings.ReplaceAll(text, fmt.Sprintf("127.%d.", int(ExampleRange)), fmt.Sprintf("127.%d.", int(r)))
}

func hostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// stateHome is where programs of this user keep state between runs.
func stateHome() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "berth"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding the user's state directory (set XDG_STATE_HOME, or name a directory with --state-dir): %w", err)
	}
	return filepath.Join(home, ".local", "state", "berth"), nil
}

// DefaultDir is the state directory of an environment nobody named: $XDG_STATE_HOME/berth/default, below ~/.local/state if
// the variable is not set.
func DefaultDir() (string, error) {
	home, err := stateHome()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, "default"), nil
}

// reserve finds a range that no other environment holds and nothing listens in, registers it for dir, and calls record while
// other processes of this user still wait. The returned listener keeps processes of other users, which have a register of
// their own, from choosing the same range until etcd listens; the caller closes it then.
func reserve(dir string, record func(Range) error) (Range, net.Listener, error) {
	register, unlock, err := lockRegister()
	if err != nil {
		return 0, nil, err
	}
	defer unlock()

	busy, err := listening()
	if err != nil {
		return 0, nil, err
	}
	var refusals []error
	for _, r := range candidates() {
		entry := filepath.Join(register, strconv.Itoa(int(r)))
		holder, err := holderOf(entry)
		if err != nil {
			return 0, nil, err
		}
		if busy[r] || (holder != "" && holder != dir) {
			continue
		}
		guard, err := tryPorts(r)
		if err != nil {
			refusals = append(refusals, err)
			continue
		}
		if err := claim(entry, dir); err != nil {
			_ = guard.Close()
			return 0, nil, err
		}
		if err := record(r); err != nil {
			_ = guard.Close()
			return 0, nil, errors.Join(err, os.Remove(entry))
		}
		return r, guard, nil
	}
	if len(refusals) > 0 {
		// The same port is taken everywhere, by something that listens on all addresses: one refusal says it.
		return 0, nil, fmt.Errorf("no range of loopback addresses is free: %w", refusals[0])
	}
	return 0, nil, fmt.Errorf("all ranges of loopback addresses from %s to %s are in use; `berth down --purge` frees the one of an environment", firstRange, lastRange)
}

// retake registers an environment's own range again, after somebody removed the register.
func retake(dir string, r Range) error {
	register, unlock, err := lockRegister()
	if err != nil {
		return err
	}
	defer unlock()
	entry := filepath.Join(register, strconv.Itoa(int(r)))
	switch holder, err := holderOf(entry); {
	case err != nil:
		return err
	case holder == dir:
		return nil
	case holder != "":
		return fmt.Errorf("the addresses %s of %s now belong to the environment in %s; `berth down --purge` one of them", r, dir, holder)
	}
	return claim(entry, dir)
}

// release gives a range back if dir holds it.
func release(dir string, r Range) error {
	register, unlock, err := lockRegister()
	if err != nil {
		return err
	}
	defer unlock()
	entry := filepath.Join(register, strconv.Itoa(int(r)))
	text, err := os.ReadFile(entry)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && string(text) != dir) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(entry)
}

func lockRegister() (dir string, unlock func(), err error) {
	home, err := stateHome()
	if err != nil {
		return "", nil, err
	}
	dir = filepath.Join(home, "ranges")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("keeping the register of address ranges: %w", err)
	}
	unlock, err = lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return "", nil, fmt.Errorf("locking the register of address ranges: %w", err)
	}
	return dir, unlock, nil
}

// holderOf is the state directory that holds a register entry, or "" if nobody does: the entry is missing, or stale because
// its directory is gone or says that it uses another range.
func holderOf(entry string) (string, error) {
	text, err := os.ReadFile(entry)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	dir := string(text)
	// A directory that is gone, or holds another environment by now, holds nothing.
	env, err := readRecord(dir)
	if err != nil {
		return "", nil //nolint:nilerr // see above
	}
	if strconv.Itoa(int(env.Range)) != filepath.Base(entry) {
		return "", nil
	}
	return dir, nil
}

// claim writes an entry so that it never exists without its content.
func claim(entry, dir string) error {
	if err := os.Remove(entry); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(entry, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("registering an address range: %w", err)
	}
	_, err = f.WriteString(dir)
	return errors.Join(err, f.Close())
}

// candidates starts with the range of the examples, so that the first environment on a machine looks like the documentation.
func candidates() []Range {
	all := make([]Range, 0, lastRange-firstRange+1)
	for i := range lastRange - firstRange + 1 {
		r := ExampleRange + i
		if r > lastRange {
			r -= lastRange - firstRange + 1
		}
		all = append(all, r)
	}
	return all
}

// tryPorts proves that the ports everything else depends on can be bound, and returns the listener that stays as a guard.
func tryPorts(r Range) (net.Listener, error) {
	for _, addr := range []string{
		hostPort(r.Management(), portEtcd), hostPort(r.Management(), portAPIServer), hostPort(r.VCenter(), portVCenter),
	} {
		l, err := net.Listen("tcp4", addr)
		if err != nil {
			return nil, err
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
	}
	return net.Listen("tcp4", hostPort(r.Management(), portReservation))
}

// listening lists the ranges in which some process of any user listens already.
func listening() (map[Range]bool, error) {
	sockets, err := listenersIn("/proc/net/tcp")
	if err != nil {
		return nil, fmt.Errorf("reading the listening sockets of this machine: %w", err)
	}
	found := map[Range]bool{}
	for _, s := range sockets {
		if s.IP[0] == 127 {
			found[Range(s.IP[1])] = true
		}
	}
	return found, nil
}

// socket is a listening TCP socket of this machine.
type socket struct {
	net.TCPAddr
	inode string
}

// listenersIn reads the listening sockets from one of the kernel's tables.
func listenersIn(table string) ([]socket, error) {
	f, err := os.Open(table)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const (
		fieldAddress, fieldState, fieldInode = 1, 3, 9
		stateListen                          = "0A"
	)
	var all []socket
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) <= fieldInode || fields[fieldState] != stateListen {
			continue
		}
		host, port, ok := strings.Cut(fields[fieldAddress], ":")
		raw, err := hex.DecodeString(host)
		number, perr := strconv.ParseUint(port, 16, 16)
		if !ok || err != nil || perr != nil || len(raw)%4 != 0 {
			continue
		}
		// The kernel prints an address as numbers of 32 bits in the byte order of the machine; all machines Berth runs on are
		// little-endian.
		for i := 0; i < len(raw); i += 4 {
			slices.Reverse(raw[i : i+4])
		}
		all = append(all, socket{TCPAddr: net.TCPAddr{IP: raw, Port: int(number)}, inode: fields[fieldInode]})
	}
	return all, lines.Err()
}
