// Package guest is what runs inside the virtual machine: the bootstrap data a new server gets (a cloud-config merge and the
// metadata document), and the disk script that finds, formats, mounts and links the disks of a place at every boot.
//
// The decisions about a disk exist twice, because they run in two places: as POSIX sh in the guest (reconcile.sh) and as
// Decide in Go, which the simulated guests use. A test runs both over the same table and fails when they differ.
package guest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Paths of the files that Merge adds to a guest.
const (
	// MappingPath is the table of the place's disks, one row per disk; ParseMapping reads it.
	MappingPath = "/etc/capv/persistent-disks.tsv"
	// ScriptPath is the disk script.
	ScriptPath = "/usr/local/bin/capv-persistent-disk-reconcile.sh"
	// UnitName of the systemd unit that runs the script at every boot, before the container runtime and the kubelet.
	UnitName = "capv-persistent-disk-reconcile.service"
	// MarkerName is the identity file in the root of a file system that we made or took over; it holds Disk.Key.
	MarkerName = ".capv-disk"
	// LinkDir holds one link per disk of the place, named after the disk.
	LinkDir = "/dev/disk/by-capv"
	// StateDir, on the system disk, remembers which disks this very server has emptied (wipeFilesystem): one file per disk,
	// VisitPrefix and the disk's name, that holds the instance ID.
	StateDir    = "/etc/capv"
	VisitPrefix = "disk-initialized-"
	// InstanceIDPath is where cloud-init leaves the instance ID.
	InstanceIDPath = "/var/lib/cloud/data/instance-id"
)

// ReasonContentInvalid is the condition reason for bootstrap data that cannot carry the place's disks or host name.
const ReasonContentInvalid = "BootstrapSecretContentInvalid"

// ContentError says that the bootstrap data is not what Merge can work on. Retrying does not help: somebody must change
// the bootstrap configuration.
type ContentError struct {
	// Message is one sentence for the user.
	Message string
	Err     error
}

// Error implements error.
func (e *ContentError) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return fmt.Sprintf("%s: %v", e.Message, e.Err)
}

// Unwrap gives access to the parser's error.
func (e *ContentError) Unwrap() error { return e.Err }

// Reason is the condition reason of the error.
func (e *ContentError) Reason() string { return ReasonContentInvalid }

// IsContentInvalid reports whether err is, or wraps, a *ContentError.
func IsContentInvalid(err error) bool {
	var e *ContentError
	return errors.As(err, &e)
}

// Disk is one disk of the place as the guest must know it.
type Disk struct {
	// Name of the disk in its slot; also the name of its link under LinkDir.
	Name string
	// Identity is the disk's UUID as the platform knows it; dashes and case do not matter.
	Identity string
	// MountPath is absolute; empty means a raw disk, which gets a link and nothing else.
	MountPath string
	// Filesystem to make on a blank disk: ext4 or xfs; empty with a MountPath means ext4.
	Filesystem string
	// Options of mount(8); empty means defaults.
	Options []string
	// Wipe empties the file system on the first boot of a new server, never on a reboot.
	Wipe bool
	// Ephemeral disks come blank with the server; whatever else is found on one is a mistake and refused.
	Ephemeral bool
	// SlotKey names the place for ever (namespace/cluster/host name). A file system that carries another place's key is
	// refused.
	SlotKey string
}

// Raw reports whether the disk is handed to the user as a block device.
func (d Disk) Raw() bool { return d.MountPath == "" }

// Key is the disk's identity across all places: what the marker file in its file system holds.
func (d Disk) Key() string {
	if d.SlotKey == "" {
		return d.Name
	}
	return d.SlotKey + "/" + d.Name
}

// Input of Merge.
type Input struct {
	// UserData is the bootstrap data, unencoded: what the Secret's key "value" holds.
	UserData []byte
	// HostName becomes kubeadm's node name where the user data names none or a template, and the guest is told to keep it over
	// whatever DHCP or DNS suggest; empty leaves both alone.
	HostName string
	// NodeIP becomes the kubelet's node-ip where the user data names none or a template; empty leaves it alone.
	NodeIP string
	// Disks of the place, persistent and ephemeral, every identity known.
	Disks []Disk
}

// Merge returns user data that does all the bootstrap data says and first brings up the place's disks. The result keeps the
// header (jinja marker included), the order of keys and of the user's own list entries; ours come first. Without disks and
// without anything to set it returns the input unchanged. Bootstrap data that is not a cloud-config is passed through when
// there are no disks, else it is a *ContentError; so is a cloud-config that does not parse.
func Merge(in Input) ([]byte, error) {
	if err := checkDisks(in.Disks); err != nil {
		return nil, err
	}
	if !isCloudConfig(in.UserData) {
		if len(in.Disks) > 0 {
			return nil, &ContentError{Message: fmt.Sprintf("the bootstrap data is not a cloud-config (it starts with %q) and "+
				"cannot carry the %d disks of this machine's slot; use the cloud-config format or a slot without disks",
				firstLine(in.UserData), len(in.Disks))}
		}
		return in.UserData, nil
	}
	doc, err := parseCloudConfig(in.UserData)
	if err != nil {
		return nil, err
	}
	changed, err := doc.setKubeadm(in.HostName, in.NodeIP)
	if err != nil {
		return nil, err
	}
	if in.HostName != "" && doc.keepHostName() {
		changed = true
	}
	if len(in.Disks) == 0 && !changed {
		return in.UserData, nil
	}
	if len(in.Disks) > 0 {
		files, err := diskFiles(in.Disks)
		if err != nil {
			return nil, err
		}
		if err := doc.prependFiles(files); err != nil {
			return nil, err
		}
		if err := doc.prependCommands(diskCommands()); err != nil {
			return nil, err
		}
	}
	return doc.encode()
}

func checkDisks(disks []Disk) error {
	names, ids := map[string]bool{}, map[string]string{}
	for _, d := range disks {
		id := NormalIdentity(d.Identity)
		switch {
		case d.Name == "":
			return errors.New("a disk of the place has no name")
		case names[d.Name]:
			return fmt.Errorf("two disks of the place are named %q", d.Name)
		case id == "":
			return fmt.Errorf("disk %q has no identity yet; the guest could not find it", d.Name)
		case ids[id] != "":
			return fmt.Errorf("disks %q and %q have the same identity %s", ids[id], d.Name, d.Identity)
		}
		for _, field := range append([]string{d.Name, d.Identity, d.MountPath, d.Filesystem, d.SlotKey}, d.Options...) {
			if strings.ContainsAny(field, "\t\n\r") {
				return fmt.Errorf("disk %q: tab or line break in %q", d.Name, field)
			}
		}
		if d.MountPath != "" && !strings.HasPrefix(d.MountPath, "/") {
			return fmt.Errorf("disk %q: mount path %q is not absolute", d.Name, d.MountPath)
		}
		names[d.Name], ids[id] = true, d.Name
	}
	return nil
}

// NormalIdentity is a disk identity as guests compare it: lower case, no dashes.
func NormalIdentity(id string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimSpace(id), "-", ""))
}

// isCloudConfig follows cloud-init: an optional jinja marker, then the cloud-config marker on a line of its own.
func isCloudConfig(data []byte) bool {
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		text := strings.TrimSpace(string(line))
		switch {
		case text == "#cloud-config":
			return true
		case text == "" || isJinjaMarker(text):
			data = rest
		default:
			return false
		}
	}
	return false
}

func isJinjaMarker(line string) bool {
	text := strings.ToLower(strings.Join(strings.Fields(line), ""))
	return text == "##template:jinja"
}

func firstLine(data []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(data), []byte("\n"))
	const enough = 40
	if len(line) > enough {
		line = line[:enough]
	}
	return string(line)
}
