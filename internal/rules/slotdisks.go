package rules

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// SlotDisk is a declared disk of a slot as the rules see it, whatever the platform calls its fields.
type SlotDisk struct {
	// Path of the disk in its object.
	Path *field.Path
	// Fields are the names of the fields on this platform.
	Name           string
	SizeGiB        int32
	Ephemeral      bool
	Unit           *int32
	MountPath      string
	FSFormat       string
	MountOptions   []string
	WipeFilesystem bool
}

// maxSlotDisks of one slot, persistent and ephemeral together.
const maxSlotDisks = 29

// Units of a SCSI controller; one is the controller's own.
const (
	maxUnit        = 15
	controllerUnit = 7
	systemUnit     = 0
)

// fsFormats that a blank disk can get.
var fsFormats = []string{"ext4", "xfs"}

// SlotDisks checks the disks of one slot, all kinds together. path is the slot's, hostName its name.
func SlotDisks(path *field.Path, hostName string, disks []SlotDisk) Verdict {
	var v Verdict
	if len(disks) > maxSlotDisks {
		v.refuse(field.Invalid(path, len(disks), fmt.Sprintf("slot %s declares %d disks, persistent and ephemeral together, and a machine can have %d beside its system disk; remove some", hostName, len(disks), maxSlotDisks)))
	}
	names := map[string]SlotDisk{}
	mounts := map[string]SlotDisk{}
	units := map[int32]SlotDisk{}
	for _, d := range disks {
		one := Verdict{Errors: DiskName(d.Path.Child("name"), d.Name)}
		if first, taken := names[d.Name]; taken && d.Name != "" {
			v.refuse(duplicate(d.Path.Child("name"), d.Name, fmt.Sprintf("slot %s has a disk of this name at %s already; rename one of them", hostName, first.Path)))
		}
		names[d.Name] = d

		if d.SizeGiB < 1 {
			one.refuse(field.Invalid(d.Path.Child("sizeGiB"), d.SizeGiB, "must be at least 1"))
		}
		one.Merge(diskUnit(d, units, hostName))
		one.Merge(diskFilesystem(d))
		for _, err := range one.Errors {
			if !strings.Contains(err.Detail, "slot "+hostName) {
				err.Detail = fmt.Sprintf("disk %q of slot %s: %s", d.Name, hostName, err.Detail)
			}
		}
		v.Merge(one)
		if d.MountPath == "" {
			continue
		}
		clean := cleanPath(d.MountPath)
		if first, taken := mounts[clean]; taken {
			v.refuse(duplicate(d.Path.Child("mountPath"), d.MountPath, fmt.Sprintf("disk %q of slot %s is mounted there already (%s); mount one of them elsewhere", first.Name, hostName, first.Path)))
		}
		mounts[clean] = d
	}
	return v
}

func diskUnit(d SlotDisk, units map[int32]SlotDisk, hostName string) Verdict {
	var v Verdict
	if d.Unit == nil {
		return v
	}
	unit, path := *d.Unit, d.Path.Child("unitNumber")
	switch {
	case unit < 0 || unit > maxUnit:
		v.refuse(field.Invalid(path, unit, fmt.Sprintf("must be between 0 and %d; leave it out to let Berth choose", maxUnit)))
	case unit == controllerUnit:
		v.refuse(field.Invalid(path, unit, "is reserved for the SCSI controller itself; choose another or leave it out"))
	case unit == systemUnit:
		v.warn(path, "unit 0 is usually the system disk's; leave unitNumber out to let Berth choose")
	}
	if first, taken := units[unit]; taken {
		v.refuse(duplicate(path, unit, fmt.Sprintf("disk %q of slot %s has this unit already; choose another or leave it out", first.Name, hostName)))
	}
	units[unit] = d
	return v
}

func diskFilesystem(d SlotDisk) Verdict {
	var v Verdict
	if d.FSFormat != "" && !slices.Contains(fsFormats, d.FSFormat) {
		v.refuse(field.NotSupported(d.Path.Child("fsFormat"), d.FSFormat, fsFormats))
	}
	for i, option := range d.MountOptions {
		if option == "" || strings.ContainsFunc(option, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) || r == ',' }) {
			v.refuse(field.Invalid(d.Path.Child("mountOptions").Index(i), option, "must be one option of mount(8), without blanks or commas; write several options as several list elements"))
		}
	}
	switch {
	case d.MountPath != "" && d.FSFormat == "":
		v.refuse(field.Invalid(d.Path.Child("fsFormat"), d.FSFormat, fmt.Sprintf("mountPath is %s, so fsFormat must say ext4 or xfs; for a raw disk remove both", d.MountPath)))
	case d.MountPath == "" && d.FSFormat != "":
		v.refuse(field.Invalid(d.Path.Child("mountPath"), d.MountPath, fmt.Sprintf("fsFormat is %s, so mountPath must say where the disk is mounted; for a raw disk remove both", d.FSFormat)))
	}
	if d.MountPath != "" {
		v.Errors = append(v.Errors, MountPath(d.Path.Child("mountPath"), d.MountPath)...)
	}
	if d.MountPath == "" && d.FSFormat == "" {
		if len(d.MountOptions) > 0 {
			v.refuse(field.Invalid(d.Path.Child("mountOptions"), strings.Join(d.MountOptions, ","), "a raw disk (no mountPath, no fsFormat) is never mounted; remove the options or set both"))
		}
		if d.WipeFilesystem {
			v.refuse(field.Invalid(d.Path.Child("wipeFilesystem"), true, "a raw disk (no mountPath, no fsFormat) has no file system to empty; remove it or set both"))
		}
	}
	return v
}

// duplicate is a field.Duplicate with a sentence.
func duplicate(path *field.Path, value any, detail string) *field.Error {
	err := field.Duplicate(path, value)
	err.Detail = detail
	return err
}
