package vsphere

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/vmware/govmomi/object"

	"github.com/berth-dev/berth/internal/machine"
)

const (
	// maxName is what a file system of a datastore lets a name be long.
	maxName = 255
	// hashDigits of a digest make a name that had to be changed unique again.
	hashDigits = 5
	// placeDigits of a digest keep the directories of equally named clusters in two namespaces apart.
	placeDigits = 8
	// markerName is the file in a place's directory that says whose it is. It is written before the first disk.
	markerName = "berth-place.json"
)

// directory is the name of a place's directory: <cluster>-<hostname>-<ip>-<hash>. The hash covers namespace, cluster, pool and
// host name, so that no two places of one vCenter share a directory (VS-D1, VS-D3, D17).
func directory(key machine.VolumeKey) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{key.Namespace, key.Cluster, key.Pool, key.HostName}, "\x00")))
	suffix := "-" + hex.EncodeToString(sum[:])[:placeDigits]
	return clean(joined(key.Cluster, key.HostName, key.Address), maxName-len(suffix)-1-hashDigits, key.Cluster, key.HostName, key.Address) + suffix
}

// fileName is a disk's file: <hostname>-<ip>-<disk>.vmdk.
func fileName(key machine.VolumeKey) string {
	const (
		ending = ".vmdk"
		// flat is what vCenter puts before the ending of the file with the data.
		flat = "-flat"
	)
	return clean(joined(key.HostName, key.Address, key.Disk), maxName-len(flat)-len(ending)-1-hashDigits, key.HostName, key.Address, key.Disk) + ending
}

func joined(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, "-")
}

// clean replaces what is not safe in a file name and cuts what is too long; a name that was changed gets a digest of what it
// was made from, so that distinct inputs never meet (VS-D2).
func clean(name string, limit int, inputs ...string) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		default:
			return '-'
		}
	}, name)
	if len(safe) > limit {
		safe = safe[:limit]
	}
	if safe == name {
		return safe
	}
	sum := sha256.Sum256([]byte(strings.Join(inputs, "\x00")))
	return safe + "-" + hex.EncodeToString(sum[:])[:hashDigits]
}

// address of a disk on a datastore.
func address(datastore string, key machine.VolumeKey) string {
	p := object.DatastorePath{Datastore: datastore, Path: directory(key) + "/" + fileName(key)}
	return p.String()
}

// location is a parsed volume address.
type location struct {
	datastore, dir, file string
}

// parseAddress accepts only files in a directory right below a datastore's root: nothing else is ever created or deleted.
func parseAddress(address string) (location, error) {
	var p object.DatastorePath
	if !p.FromString(address) || p.Datastore == "" {
		return location{}, refused(ReasonBadShape, "%q is not a path on a datastore", address)
	}
	dir, file, ok := strings.Cut(p.Path, "/")
	if !ok || dir == "" || dir == "." || dir == ".." || file == "" || strings.Contains(file, "/") || !strings.HasSuffix(file, ".vmdk") {
		return location{}, refused(ReasonBadShape, "%q is not a disk in a directory of its own right below a datastore's root",
			address)
	}
	return location{datastore: p.Datastore, dir: dir, file: file}, nil
}

func (l location) path() string      { return "[" + l.datastore + "] " + l.dir + "/" + l.file }
func (l location) directory() string { return "[" + l.datastore + "] " + l.dir }

// marker is the content of a place's marker file.
type marker struct {
	Berth     int    `json:"berth"`
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	Pool      string `json:"pool"`
	HostName  string `json:"hostName"`
}

func markerOf(key machine.VolumeKey) marker {
	return marker{Berth: 1, Namespace: key.Namespace, Cluster: key.Cluster, Pool: key.Pool, HostName: key.HostName}
}

func (m marker) encode() []byte {
	text, _ := json.MarshalIndent(m, "", "  ") // a struct of strings always encodes
	return append(text, '\n')
}
