// Package requirements holds what tests and comments cite to what the documents beside it explain.
package requirements

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root of the repository.
const root = "../.."

var (
	// requirement is a name such as the first one in vsphere.md.
	requirement = regexp.MustCompile(`\bVS-[A-Z][0-9]+[a-z]?\b`)
	// spoken names are written with a word in front, in any case.
	spoken = regexp.MustCompile(`(?i)\b(decision|promise|pain|hazard)s? ([DVHE]?[0-9]+)\b`)
	// explained is the first cell of a table's row.
	explained = regexp.MustCompile(`(?m)^\| ((?:VS-[A-Z][0-9]+[a-z]?)|(?:(?:decision|promise|pain|hazard) [A-Z]?[0-9]+)) \|(.*)\|$`)
)

// citations in a text, in the form in which the documents explain them.
func citations(text string) []string {
	names := requirement.FindAllString(text, -1)
	for _, m := range spoken.FindAllStringSubmatch(text, -1) {
		word, name := strings.ToLower(m[1]), strings.ToUpper(m[2])
		letter := strings.TrimRight(name, "0123456789")
		switch word {
		case "decision":
			if letter == "" {
				continue
			}
		case "hazard":
			if letter != "H" {
				continue
			}
		default:
			if letter != "" {
				continue
			}
		}
		names = append(names, word+" "+name)
	}
	return names
}

func TestEveryCitationIsExplained(t *testing.T) {
	known := map[string]string{}
	documents, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range documents {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range explained.FindAllStringSubmatch(string(text), -1) {
			if other, twice := known[m[1]]; twice {
				t.Errorf("%s explains %s, and so does %s", document, m[1], other)
			}
			if strings.TrimSpace(m[2]) == "" {
				t.Errorf("%s: %s has no sentence", document, m[1])
			}
			known[m[1]] = document
		}
	}
	if len(known) == 0 {
		t.Fatal("no explanations found")
	}

	cited := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a file of somebody else's test that has just gone
			}
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "bin", "node_modules"}, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if ext := filepath.Ext(path); ext != ".go" && ext != ".sh" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, name := range citations(string(text)) {
			cited++
			if _, ok := known[name]; !ok {
				t.Errorf("%s cites %s, which docs/requirements does not explain", strings.TrimPrefix(path, root+"/"), name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if cited == 0 {
		t.Error("nothing cites anything: the walk is broken")
	}
}

// Every hazard is cited by a test, which fails without the guard.
func TestEveryHazardIsCited(t *testing.T) {
	text, err := os.ReadFile("hazards.md")
	if err != nil {
		t.Fatal(err)
	}
	cited := map[string]bool{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && (d.IsDir() || !strings.HasSuffix(path, "_test.go")) || strings.HasSuffix(path, "requirements_test.go") {
			return nil
		}
		if err != nil {
			return err
		}
		code, err := os.ReadFile(path)
		for _, name := range citations(string(code)) {
			cited[name] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	hazards := explained.FindAllStringSubmatch(string(text), -1)
	if len(hazards) != 17 {
		t.Errorf("%d hazards are explained", len(hazards))
	}
	for _, m := range hazards {
		if !cited[m[1]] {
			t.Errorf("no test cites %s: %s", m[1], strings.TrimSpace(m[2]))
		}
	}
}

// Hazard H17: the manual says, in both languages, that a rollback does not bring old data back.
func TestManualSaysThatDisksDoNotTravelInTime(t *testing.T) {
	for file, sentence := range map[string]string{
		"../vsphere.md":    "A rollback brings back the old shape, not the old content",
		"../vsphere.zh.md": "回滚恢复的是旧的形状，不是旧的内容",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), sentence) {
			t.Errorf("%s does not say %q", file, sentence)
		}
	}
}

func TestCitations(t *testing.T) {
	got := citations("see VS-V20b and VS-R5; Decision D17 says, pain 57 shows, promise 2 holds; hazard H9 guards; a decision 5 is none, nor pain D1, nor hazard 9")
	want := []string{"VS-V20b", "VS-R5", "decision D17", "pain 57", "promise 2", "hazard H9"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
