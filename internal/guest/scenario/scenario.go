// Package scenario is the description of the disk script that its two implementations share: what is found on a disk, what is
// decided, what is left. The tests of both run every scenario, so that neither can change alone.
package scenario

import (
	"fmt"
	"slices"
	"strings"

	_ "embed" // the table

	"github.com/berth-dev/berth/internal/guest"
)

//go:embed scenarios.tsv
var table string

// The disk of a scenario and the blank ext4 disk beside it, which shows whether a refusal keeps the hands off all disks.
const (
	Name           = "data"
	Identity       = "6000c29a000000000000000000000001"
	Beside         = "beside"
	BesideIdentity = "6000c29a0000000000000000000000be"
	// SlotKey is of the place, OtherKey of a disk in another one.
	SlotKey  = "ns/demo/demo-1"
	OtherKey = "ns/demo/demo-2/data"
	// InstanceID is the server's, OtherInstanceID that of another.
	InstanceID      = "server-1"
	OtherInstanceID = "server-0"
	// File is on every file system that the scenario starts with, and holds Content.
	File    = "precious"
	Content = "42\n"
)

// Scenario is a line of the table; the comments there explain the words.
type Scenario struct {
	Name, Before, Disk, Record, Mounted string
	Action                              guest.Action
	Reason, After                       string
}

// All are the scenarios, in the order of the table.
func All() ([]Scenario, error) {
	var all []Scenario
	const columns = 8
	for i, line := range strings.Split(table, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		c := strings.Split(line, "\t")
		if len(c) != columns {
			return nil, fmt.Errorf("scenarios.tsv line %d: %d columns, want %d", i+1, len(c), columns)
		}
		all = append(all, Scenario{
			Name: c[0], Before: c[1], Disk: c[2], Record: c[3], Mounted: c[4], Action: guest.Action(c[5]), Reason: c[6], After: c[7],
		})
	}
	return all, nil
}

// Succeeds reports whether the script ends well, and the kubelet may start.
func (s Scenario) Succeeds() bool { return s.Action != guest.ActRefuse && s.Action != guest.ActWait }

// Filesystem splits Before into the type of a file system and whose it is; ok is false if it is none.
func (s Scenario) Filesystem() (fsType, whose string, ok bool) { return strings.Cut(s.Before, ":") }

// Is reports whether the disk's declaration has the word.
func (s Scenario) Is(word string) bool { return slices.Contains(strings.Split(s.Disk, ","), word) }

// Row is the disk's line of the mapping file.
func (s Scenario) Row() guest.Row {
	words := strings.Split(s.Disk, ",")
	r := guest.Row{
		Name: Name, Identity: Identity, MountPath: "/var/data", Filesystem: words[0], Options: "defaults",
		Wipe: s.Is("wipe"), Ephemeral: s.Is("ephemeral"), Key: SlotKey + "/" + Name,
	}
	if s.Is("etcd") {
		r.MountPath = "/var/lib/etcd"
	}
	if s.Is("no-uuid") {
		r.Identity = ""
	}
	if s.Is("raw") {
		r.MountPath, r.Filesystem, r.Options = "", "", ""
	}
	return r
}

// Mapping is the mapping file of the place: the disk and the one beside it.
func (s Scenario) Mapping() string {
	return guest.Mapping([]guest.Row{{
		Name: Beside, Identity: BesideIdentity, MountPath: "/var/beside", Filesystem: "ext4", Options: "defaults", Key: SlotKey + "/" + Beside,
	}, s.Row()})
}
