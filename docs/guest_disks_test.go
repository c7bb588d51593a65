package docs_test

import (
	"os"
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/guest"
)

// Every sentence with which the disk script refuses is explained, word for word.
func TestEveryRefusalOfADiskIsExplained(t *testing.T) {
	page, err := os.ReadFile("guest-disks.md")
	if err != nil {
		t.Fatal(err)
	}
	rest := string(page)
	sample := guest.Row{Name: "NAME", Identity: "UUID", MountPath: "PATH", Filesystem: "TYPE"}
	refusals := 0
	for reason := range guest.Reasons() {
		text := guest.Decision{Reason: reason}.Text(guest.Facts{FSType: "TYPE"}, sample)
		row := "| `" + text + "` |"
		switch reason {
		case "raw", "blank", "first-boot", "as-declared":
			continue
		case "other-filesystem":
			row = "- `" + strings.TrimPrefix(text, "warning: ") + "`"
		default:
			refusals++
		}
		if !strings.Contains(rest, row) {
			t.Errorf("guest-disks.md does not explain %q", text)
		}
	}
	if rows := strings.Count(rest, "\n| `"); rows != refusals {
		t.Errorf("guest-disks.md has %d rows for %d refusals", rows, refusals)
	}
}
