package node

import (
	"context"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// preflight collects kubeadm's fatal checks; those named by --ignore-preflight-errors become warnings.
type preflight struct {
	c       Config
	disk    guestDisk
	ignored []string
	failed  []string
}

func newPreflight(c Config, r nodeRegistration) *preflight {
	p := &preflight{c: c, disk: guestDisk{c.Files}}
	for _, name := range slices.Concat(c.IgnorePreflightErrors, r.IgnorePreflightErrors) {
		for n := range strings.SplitSeq(name, ",") {
			p.ignored = append(p.ignored, strings.ToLower(strings.TrimSpace(n)))
		}
	}
	return p
}

func (p *preflight) fail(check, format string, a ...any) {
	msg := fmt.Sprintf(format, a...)
	if slices.Contains(p.ignored, "all") || slices.Contains(p.ignored, strings.ToLower(check)) {
		p.c.say("[preflight] [WARNING %s]: %s", check, msg)
		return
	}
	p.failed = append(p.failed, fmt.Sprintf("\t[ERROR %s]: %s", check, msg))
}

// err is nil when all checks passed.
func (p *preflight) err() error {
	if len(p.failed) == 0 {
		return nil
	}
	return fmt.Errorf("[preflight] Some fatal errors occurred:\n%s\n[preflight] If you know what you are doing, you can make a check non-fatal with `--ignore-preflight-errors=...`",
		strings.Join(p.failed, "\n"))
}

func (p *preflight) nodeName(name string) {
	for _, msg := range validation.IsDNS1123Subdomain(name) {
		p.fail("Hostname", "invalid node name %q: %s", name, msg)
	}
}

// noFile fails on leftovers of an earlier kubeadm run on the same disks.
func (p *preflight) noFile(file string) {
	if p.disk.exists(file) {
		p.fail("FileAvailable-"+dashes(file), "%s already exists", file)
	}
}

// emptyDir: a file system root with lost+found in it is not empty either.
func (p *preflight) emptyDir(dir string) {
	names, err := p.disk.list(dir)
	if err != nil {
		p.fail("DirAvailable-"+dashes(dir), "unable to check if %s is empty: %v", dir, err)
		return
	}
	if len(names) > 0 {
		p.fail("DirAvailable-"+dashes(dir), "%s is not empty", dir)
	}
}

// freePort catches two guests on one address, which a network would show as a conflict.
func (p *preflight) freePort(port int) {
	if len(p.c.Addresses) == 0 {
		return
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(p.c.Addresses[0].String(), strconv.Itoa(port)))
	if err != nil {
		p.fail(fmt.Sprintf("Port-%d", port), "Port %d is in use", port)
		return
	}
	_ = l.Close()
}

func (p *preflight) controlPlane(c *clusterConfiguration, local apiEndpoint) {
	for _, port := range []int{int(local.BindPort), 10259, 10257} {
		p.freePort(port)
	}
	for _, name := range []string{apiServerName, controllerName, schedulerName, etcdName} {
		p.noFile(path.Join(manifestsDir, name+".yaml"))
	}
	if hw := p.c.Hardware; hw.CPUs < 2 {
		p.fail("NumCPU", "the number of available CPUs %d is less than the required 2", hw.CPUs)
	}
	if hw := p.c.Hardware; hw.MemoryMiB < 1700 {
		p.fail("Mem", "the system RAM (%d MB) is less than the minimum 1700 MB", hw.MemoryMiB)
	}
	p.etcd(c)
}

func (p *preflight) etcd(c *clusterConfiguration) {
	p.freePort(etcdClientPort)
	p.freePort(etcdPeerPort)
	p.emptyDir(c.Etcd.Local.DataDir)
}

func (p *preflight) joining(caPath string, controlPlane bool) {
	p.freePort(10250)
	if names, _ := p.disk.list(manifestsDir); len(names) > 0 && !controlPlane {
		p.fail("DirAvailable-"+dashes(manifestsDir), "%s is not empty", manifestsDir)
	}
	p.noFile(kubeletConf)
	p.noFile(bootstrapConf)
	if !controlPlane {
		p.noFile(caPath)
	}
}

func dashes(p string) string { return strings.ReplaceAll(p, "/", "-") }
