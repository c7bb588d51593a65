package guest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Content is what a probe of a whole device found.
type Content string

// The outcomes of a probe.
const (
	// Blank: no signature, no partition, nobody holds it, first and last MiB are zero. Nothing less counts as blank.
	Blank Content = "blank"
	// Filesystem: a file system on the whole device.
	Filesystem Content = "filesystem"
	// Foreign: partition table, LVM, LUKS, RAID, swap, or bytes that nobody can name.
	Foreign Content = "foreign"
	// Unreadable: the probe failed or contradicted itself.
	Unreadable Content = "unreadable"
)

// Marker is what the identity in a file system says.
type Marker string

// The states of a marker.
const (
	MarkerNone Marker = "none"
	MarkerOurs Marker = "ours"
	// MarkerOther: the file system belongs to another place or to another disk of this one.
	MarkerOther Marker = "other"
	// MarkerUnreadable: the file system could not be mounted or the marker not be read.
	MarkerUnreadable Marker = "unreadable"
)

// Mounted is where the device is mounted now.
type Mounted string

// The states of a mount.
const (
	MountedNo Mounted = "no"
	// MountedHere: on its own mount path.
	MountedHere Mounted = "here"
	// MountedElsewhere: somewhere else.
	MountedElsewhere Mounted = "elsewhere"
	// MountedOver: another device is mounted on the mount path.
	MountedOver Mounted = "occupied"
)

// Visit says whether this very server has emptied the disk before, for rows with Wipe.
type Visit string

// The states of a visit.
const (
	VisitNew  Visit = "new"
	VisitDone Visit = "done"
	// VisitOther: the record is of another server. The image may have been made of a used server, or this server may have lost
	// its instance ID; nobody here can tell.
	VisitOther Visit = "other"
	// VisitUnknown: the record on the system disk, or the instance ID, cannot be read.
	VisitUnknown Visit = "unknown"
)

// Facts about the device of one row.
type Facts struct {
	// Devices that carry the row's identity.
	Devices int
	Content Content
	// FSType when Content is Filesystem.
	FSType  string
	Marker  Marker
	Mounted Mounted
	Visit   Visit
}

// Action is what to do with a disk.
type Action string

// The actions.
const (
	// ActWait: look again; when time is up it is a refusal.
	ActWait Action = "wait"
	// ActRefuse: touch nothing, mount nothing, let no kubelet start.
	ActRefuse Action = "refuse"
	// ActLink: a raw disk; only its link.
	ActLink Action = "link"
	// ActFormat: make the file system, mark it, mount it.
	ActFormat Action = "format"
	// ActMount: mount what is there.
	ActMount Action = "mount"
	// ActWipe: mount what is there, then delete the content of the file system.
	ActWipe Action = "wipe"
)

// Decision about one disk. Reason is a word that both implementations share; Text makes a sentence of it.
type Decision struct {
	Action Action
	Reason string
}

// Decide says what to do with the disk of a row. It is the whole policy: everything else only finds out and carries out.
// reconcile.sh has the same decisions in the same order.
func Decide(f Facts, r Row) Decision {
	refuse := func(reason string) Decision { return Decision{ActRefuse, reason} }
	switch {
	case r.Identity == "":
		return refuse("no-identity")
	case f.Devices == 0:
		return Decision{ActWait, "missing"}
	case f.Devices != 1:
		return refuse("ambiguous")
	case r.MountPath == "":
		return Decision{ActLink, "raw"}
	case r.Filesystem != "ext4" && r.Filesystem != "xfs":
		return refuse("unknown-filesystem-wanted")
	case f.Mounted == MountedElsewhere:
		return refuse("mounted-elsewhere")
	case f.Mounted == MountedOver:
		return refuse("mount-path-occupied")
	case r.Wipe && f.Visit == VisitUnknown:
		return refuse("wipe-record-unreadable")
	case r.Wipe && f.Visit == VisitOther:
		return refuse("wipe-record-of-another")
	}
	switch f.Content {
	case Blank:
		if f.Mounted != MountedNo {
			return refuse("blank-but-mounted")
		}
		return Decision{ActFormat, "blank"}
	case Filesystem:
		return decideFilesystem(f, r)
	case Foreign:
		return refuse("foreign-signature")
	default:
		return refuse("unreadable")
	}
}

func decideFilesystem(f Facts, r Row) Decision {
	refuse := func(reason string) Decision { return Decision{ActRefuse, reason} }
	switch f.FSType {
	case "ext2", "ext3", "ext4", "xfs", "btrfs":
	default:
		return refuse("unknown-filesystem-found")
	}
	switch f.Marker {
	case MarkerOurs:
	case MarkerNone:
		if r.Ephemeral {
			return refuse("ephemeral-not-blank")
		}
	case MarkerOther:
		return refuse("belongs-to-another")
	default:
		return refuse("marker-unreadable")
	}
	if r.Wipe && f.Visit == VisitNew {
		return Decision{ActWipe, "first-boot"}
	}
	if f.FSType != r.Filesystem {
		return Decision{ActMount, "other-filesystem"}
	}
	return Decision{ActMount, "as-declared"}
}

// sentences of the decisions, with the names of what Text fills in.
var sentences = map[string]string{
	"no-identity":               "disk {disk} has no UUID in the mapping file",
	"missing":                   "disk {disk}: no device has UUID {uuid}; is it attached, and does the server show the UUIDs of its disks?",
	"ambiguous":                 "disk {disk}: more than one device has UUID {uuid}; detach the copy",
	"raw":                       "disk {disk} is raw; linked only",
	"unknown-filesystem-wanted": "disk {disk}: file system {wanted} is not one of ext4, xfs",
	"mounted-elsewhere":         "disk {disk} is mounted somewhere else than {path}",
	"mount-path-occupied":       "disk {disk}: another device is mounted on {path}",
	"wipe-record-unreadable":    "disk {disk} is to be emptied once per server, and whether that has happened cannot be read",
	"wipe-record-of-another": "disk {disk} is to be emptied once per server, and /etc/capv/disk-initialized-{disk} is of another server: " +
		"remove it if this image was made of a used server",
	"blank-but-mounted":        "disk {disk} is mounted on {path} but looks blank",
	"blank":                    "disk {disk} is blank; {wanted} is made on it",
	"foreign-signature":        "disk {disk} carries something else than a file system ({found}); it is not touched; clear its first and last MiB if nothing on it is needed",
	"unreadable":               "disk {disk} cannot be probed (I/O error or ambiguous result); it is not touched",
	"unknown-filesystem-found": "disk {disk} carries a file system of type {found}, which is never mounted here",
	"ephemeral-not-blank":      "ephemeral disk {disk} is neither blank nor ours; it is not touched",
	"belongs-to-another":       "disk {disk} carries the marker of another place or disk; it is not mounted",
	"marker-unreadable":        "disk {disk}: its {found} file system cannot be mounted or its marker not be read",
	"first-boot":               "disk {disk}: first boot of this server; the content of {path} is deleted",
	"other-filesystem":         "warning: disk {disk} was declared {wanted} but carries {found}; mounted as found",
	"as-declared":              "disk {disk}: {found} mounted on {path}",
}

// Text is the decision as a sentence.
func (d Decision) Text(f Facts, r Row) string {
	s, ok := sentences[d.Reason]
	if !ok {
		return fmt.Sprintf("disk %s: %s (%s)", r.Name, d.Action, d.Reason)
	}
	return strings.NewReplacer("{disk}", r.Name, "{uuid}", r.Identity, "{path}", r.MountPath, "{found}", f.FSType,
		"{wanted}", r.Filesystem).Replace(s)
}

// Label is the file system label of a disk: twelve characters, the most that xfs takes, derived from the disk's key.
func Label(key string) string {
	sum := sha256.Sum256([]byte(key))
	return labelPrefix + hex.EncodeToString(sum[:])[:7]
}

const labelPrefix = "capv-"

// ReadMarker judges the identity of a file system: the marker file decides; where there is none (mount points that must be
// empty have none), the label does.
func ReadMarker(key, file string, hasFile bool, label string) Marker {
	switch {
	case hasFile && strings.TrimSpace(file) == key:
		return MarkerOurs
	case hasFile:
		return MarkerOther
	case label == Label(key):
		return MarkerOurs
	case strings.HasPrefix(label, labelPrefix):
		return MarkerOther
	default:
		return MarkerNone
	}
}

// MustBeEmpty reports whether the program that owns a mount point refuses anything in it, lost+found and our marker
// included: kubeadm's preflight checks do for etcd's directory. Such a file system is identified by its label alone.
func MustBeEmpty(mountPath string) bool {
	return mountPath == "/var/lib/etcd"
}

// Reasons are all words that a Decision may give.
func Reasons() map[string]bool {
	all := map[string]bool{}
	for reason := range sentences {
		all[reason] = true
	}
	return all
}
