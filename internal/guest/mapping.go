package guest

import (
	"encoding/base64"
	"fmt"
	"path"
	"sort"
	"strings"

	_ "embed" // the script is shipped inside the program
)

//go:embed reconcile.sh
var script string

// Script is the disk script as guests get it.
func Script() string { return script }

// empty stands for an empty column: with tabs as separators the shell's read would swallow it.
const empty = "-"

// mappingHeader names the columns of the mapping file, mappingEnd is its last line: a file that lost its end in a power cut
// must not pass for a place with fewer disks.
const (
	mappingHeader = "# name\tuuid\tmountPath\tfilesystem\toptions\twipe\tkind\tkey\n"
	mappingEnd    = "# end"
	columnCount   = 8
)

// noOptions is what mount(8) calls none.
const noOptions = "defaults"

// Row is one line of the mapping file.
type Row struct {
	Name string
	// Identity is normalised.
	Identity string
	// MountPath is empty for a raw disk.
	MountPath  string
	Filesystem string
	// Options as one word for mount -o.
	Options   string
	Wipe      bool
	Ephemeral bool
	// Key is what the marker file must hold.
	Key string
}

// Raw reports whether the row is of a raw disk.
func (r Row) Raw() bool { return r.MountPath == "" }

// Rows orders disks as the script goes through them: parents before children, raw disks last (VS-D40).
func Rows(disks []Disk) []Row {
	rows := make([]Row, 0, len(disks))
	for _, d := range disks {
		r := Row{
			Name:      d.Name,
			Identity:  NormalIdentity(d.Identity),
			Wipe:      d.Wipe && !d.Raw(),
			Ephemeral: d.Ephemeral,
			Key:       d.Key(),
		}
		if !d.Raw() {
			r.MountPath = path.Clean(d.MountPath)
			r.Filesystem = d.Filesystem
			if r.Filesystem == "" {
				r.Filesystem = "ext4"
			}
			r.Options = strings.Join(d.Options, ",")
			if r.Options == "" {
				r.Options = noOptions
			}
		}
		rows = append(rows, r)
	}
	sort.SliceStable(rows, func(i, j int) bool { return depth(rows[i]) < depth(rows[j]) })
	return rows
}

func depth(r Row) int {
	if r.MountPath == "" {
		return 1 << 16
	}
	return strings.Count(r.MountPath, "/")
}

// Mapping renders the mapping file.
func Mapping(rows []Row) string {
	var b strings.Builder
	b.WriteString(mappingHeader)
	for _, r := range rows {
		kind := "persistent"
		if r.Ephemeral {
			kind = "ephemeral"
		}
		columns := []string{r.Name, r.Identity, r.MountPath, r.Filesystem, r.Options, yesNo(r.Wipe), kind, r.Key}
		for i, c := range columns {
			if c == "" {
				columns[i] = empty
			}
		}
		b.WriteString(strings.Join(columns, "\t"))
		b.WriteByte('\n')
	}
	b.WriteString(mappingEnd + "\n")
	return b.String()
}

// FstabLine is what the script leaves in fstab about a mounted disk, fsUUID being the file system's UUID and fsType its type.
func FstabLine(r Row, fsUUID, fsType string) string {
	return fmt.Sprintf("UUID=%s %s %s %s,nofail,x-systemd.device-timeout=120s,x-systemd.before=%s,x-capv.disk=%s 0 2", fsUUID,
		FstabField(r.MountPath), fsType, FstabField(r.Options), UnitName, r.Name)
}

// FstabField escapes a field of fstab.
func FstabField(s string) string { return fstabEscapes.Replace(s) }

var fstabEscapes = strings.NewReplacer(`\`, `\134`, " ", `\040`)

// ParseMapping reads a mapping file as the script does: one that is cut short or damaged is an error.
func ParseMapping(text string) ([]Row, error) {
	var rows []Row
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if lines[len(lines)-1] != mappingEnd {
		return nil, fmt.Errorf("%s is cut short: its last line is not %q", MappingPath, mappingEnd)
	}
	for i, line := range lines {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "\t")
		if len(columns) != columnCount || columns[0] == "" || columns[columnCount-1] == "" {
			return nil, fmt.Errorf("%s is damaged: line %d has %d columns, want %d, with a name and a key", MappingPath, i+1, len(columns), columnCount)
		}
		for j, c := range columns {
			if c == empty {
				columns[j] = ""
			}
		}
		if columns[2] != "" && columns[4] == "" {
			columns[4] = noOptions
		}
		rows = append(rows, Row{
			Name: columns[0], Identity: columns[1], MountPath: columns[2], Filesystem: columns[3], Options: columns[4],
			Wipe: columns[5] == "true", Ephemeral: columns[6] == "ephemeral", Key: columns[7],
		})
	}
	return rows, nil
}

func yesNo(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

// diskFiles are the files that the disks of a place add to a guest.
func diskFiles(disks []Disk) ([]writeFile, error) {
	rows := Rows(disks)
	files := []writeFile{
		{Path: MappingPath, Permissions: "0600", Content: Mapping(rows)},
		{Path: ScriptPath, Permissions: "0755", Content: script},
		{Path: "/etc/systemd/system/" + UnitName, Permissions: "0644", Content: unit},
		{Path: "/etc/systemd/system/containerd.service.d/10-wait-disks.conf", Permissions: "0644", Content: dropIn},
		{Path: "/etc/systemd/system/kubelet.service.d/10-wait-disks.conf", Permissions: "0644", Content: dropIn},
		{Path: rulePath, Permissions: "0644", Content: Rule(rows)},
	}
	for i := range files {
		files[i].Owner = "root:root"
		// The guest renders the whole document as a template first; what looks like one must not be touched.
		if strings.Contains(files[i].Content, "{{") || strings.Contains(files[i].Content, "{%") ||
			strings.Contains(files[i].Content, "{#") {
			files[i].Encoding = "b64"
			files[i].Content = base64.StdEncoding.EncodeToString([]byte(files[i].Content))
		}
	}
	return files, nil
}

// diskCommands run before the user's. Commands of a cloud-config are one shell script: exit stops the rest, so that nothing
// joins a cluster on directories that should have been disks.
func diskCommands() []string {
	return []string{
		"systemctl daemon-reload",
		"udevadm control --reload",
		"systemctl enable --now " + UnitName + " || exit 1",
		"systemctl restart containerd.service",
	}
}

const unit = `[Unit]
Description=Find, format, mount and link the disks of this node's place
Documentation=https://github.com/berth-dev/berth
DefaultDependencies=yes
After=local-fs.target systemd-udevd.service cloud-init-local.service
Wants=systemd-udevd.service
Before=containerd.service kubelet.service
ConditionPathExists=` + MappingPath + `

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=` + ScriptPath + `
TimeoutStartSec=15min
StandardOutput=journal+console
StandardError=journal+console

[Install]
WantedBy=multi-user.target
`

const dropIn = `[Unit]
Requires=` + UnitName + `
After=` + UnitName + `
`

// rulePath sorts after udev's own rules for persistent storage, which set the serials.
const rulePath = "/etc/udev/rules.d/62-capv-disks.rules"

// Rule renders the udev rules that link every disk of the place under LinkDir, by its serial in each form that SCSI, NVMe and
// multipath devices show it in (VS-D35).
func Rule(rows []Row) string {
	var b strings.Builder
	b.WriteString("# One link per disk of this node's place, by serial.\n")
	b.WriteString("SUBSYSTEM!=\"block\", GOTO=\"capv_end\"\n")
	b.WriteString("ENV{DEVTYPE}!=\"disk\", GOTO=\"capv_end\"\n")
	// A path of a multipath device leaves the link to the device.
	b.WriteString("ENV{DM_MULTIPATH_DEVICE_PATH}==\"1\", GOTO=\"capv_end\"\n")
	for _, r := range rows {
		link := strings.TrimPrefix(LinkDir, "/dev/") + "/" + r.Name
		for _, match := range []string{
			fmt.Sprintf("ENV{ID_SERIAL}==\"3%s|%s\"", r.Identity, r.Identity),
			fmt.Sprintf("ENV{ID_SERIAL_SHORT}==\"%s\"", r.Identity),
			fmt.Sprintf("ENV{ID_WWN_WITH_EXTENSION}==\"0x%s\"", r.Identity),
			fmt.Sprintf("ENV{DM_UUID}==\"mpath-3%s\"", r.Identity),
		} {
			fmt.Fprintf(&b, "%s, SYMLINK+=\"%s\"\n", match, link)
		}
	}
	b.WriteString("LABEL=\"capv_end\"\n")
	return b.String()
}
