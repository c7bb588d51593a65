// Package docs_test holds the documents to the code.
package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sources are the packages whose words people read on our objects.
var sources = []string{
	"../api/vsphere", "../internal/machine", "../internal/pool", "../internal/guest", "../internal/platform/vsphere", "../internal/controller/vsphere",
}

var (
	// constant names of conditions, reasons and events.
	constant = regexp.MustCompile(`^(Reason|Event)[A-Z]\w*$|^\w+(Reason|Condition)$`)
	// code in a document.
	code = regexp.MustCompile("`([A-Za-z0-9]+)`")
	// cell is the first one of a table's row.
	cell = regexp.MustCompile("(?m)^\\| ((?:`[A-Za-z0-9]+`(?:, )?)+) \\|")
)

// words collects the values of the constants, each with where it is declared.
func words(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, dir := range sources {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, decl := range file.Decls {
				block, ok := decl.(*ast.GenDecl)
				if !ok || block.Tok != token.CONST {
					continue
				}
				for _, spec := range block.Specs {
					collect(t, spec.(*ast.ValueSpec), path, found)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func collect(t *testing.T, spec *ast.ValueSpec, path string, found map[string]string) {
	t.Helper()
	for i, name := range spec.Names {
		if !constant.MatchString(name.Name) || i >= len(spec.Values) {
			continue
		}
		literal, ok := spec.Values[i].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			continue
		}
		word, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatalf("%s: %s: %v", path, name.Name, err)
		}
		found[word] = path + ": " + name.Name
	}
}

// TestEveryConditionReasonAndEventIsExplained: a word that Berth may write is in the first column of a table of conditions.md, and
// what is there is a word of Berth.
func TestEveryConditionReasonAndEventIsExplained(t *testing.T) {
	text := read(t, "conditions.md")
	known := words(t)
	for _, must := range []string{"Ready", "NoAvailableSlots", "DatastoreFull", "PersistentDisksToBeDeleted", "StaleNodeDeleted"} {
		if known[must] == "" {
			t.Fatalf("%s was not found in the code: does this test still look in the right places?", must)
		}
	}
	var explained []string
	for _, row := range cell.FindAllStringSubmatch(text, -1) {
		for _, m := range code.FindAllStringSubmatch(row[1], -1) {
			explained = append(explained, m[1])
		}
	}
	for word, where := range known {
		if !slices.Contains(explained, word) {
			t.Errorf("conditions.md does not explain %q (%s): add a row", word, where)
		}
	}
	for _, word := range explained {
		if known[word] == "" {
			t.Errorf("conditions.md explains %q, which is no word of the code any more: remove the row", word)
		}
	}
}

// TestEveryEventIsInTheTableOfEvents: who sees an event looks there, and not among the reasons of conditions.
func TestEveryEventIsInTheTableOfEvents(t *testing.T) {
	_, events, found := strings.Cut(read(t, "conditions.md"), "\n## Events\n")
	if !found {
		t.Fatal("conditions.md has no section of events")
	}
	var listed []string
	for _, row := range cell.FindAllStringSubmatch(events, -1) { // with the reserved words after it
		for _, m := range code.FindAllStringSubmatch(row[1], -1) {
			listed = append(listed, m[1])
		}
	}
	n := 0
	for word, where := range words(t) {
		if _, name, _ := strings.Cut(where, ": "); strings.HasPrefix(name, "Event") {
			n++
			if !slices.Contains(listed, word) {
				t.Errorf("the events of conditions.md do not have %q (%s): add a row", word, where)
			}
		}
	}
	if n < 20 {
		t.Fatalf("only %d events were found in the code: does this test still look in the right places?", n)
	}
}

// link to another place of the repository.
var link = regexp.MustCompile(`\]\(([^)#:\s]+)?(?:#([^)\s]+))?\)`)

// TestLinksLeadSomewhere: files and headings that the documents link to exist.
func TestLinksLeadSomewhere(t *testing.T) {
	documents, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range documents {
		for _, m := range link.FindAllStringSubmatch(read(t, document), -1) {
			target := document
			if m[1] != "" {
				target = m[1]
			}
			linked, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); err != nil && (statErr != nil || !info.IsDir()) {
				t.Errorf("%s links to %s: %v", document, m[1], err)
				continue
			}
			if m[2] != "" && !slices.Contains(anchors(string(linked)), m[2]) {
				t.Errorf("%s links to heading #%s of %s, which is not there", document, m[2], target)
			}
		}
	}
}

var (
	heading = regexp.MustCompile(`(?m)^#{1,6} (.*)$`)
	anchor  = regexp.MustCompile(`<a id="([^"]+)"></a>`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// anchors of a document's headings, as GitHub names them, and those set by hand.
func anchors(text string) []string {
	var out []string
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		out = append(out, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	for _, m := range anchor.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

var (
	// command blocks of a document.
	command = regexp.MustCompile("(?s)```sh\n.*?\n```")
	// refusal is the first cell of the table of what admission says.
	refusal = regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|")
	quoted  = regexp.MustCompile("`([^`]+)`")
)

// TestBothLanguagesHaveTheSameCommands, in the same order.
func TestBothLanguagesHaveTheSameCommands(t *testing.T) {
	english, chinese := command.FindAllString(read(t, "vsphere.md"), -1), command.FindAllString(read(t, "vsphere.zh.md"), -1)
	if len(english) == 0 || !slices.Equal(english, chinese) {
		t.Errorf("vsphere.md has %d blocks of commands, vsphere.zh.md %d, and they are not the same", len(english), len(chinese))
	}
}

// TestRefusalsAreQuotedAsTheyAre: people search for the words that they were shown.
func TestRefusalsAreQuotedAsTheyAre(t *testing.T) {
	rules, err := filepath.Glob("../internal/rules/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for _, file := range rules {
		if !strings.HasSuffix(file, "_test.go") {
			said.WriteString(read(t, file))
		}
	}
	for document, title := range map[string]string{"vsphere.md": "## What admission refuses\n", "vsphere.zh.md": "## 准入拒绝什么\n"} {
		_, section, _ := strings.Cut(read(t, document), title)
		section, _, _ = strings.Cut(section, "\n## ")
		cells := refusal.FindAllStringSubmatch(section, -1)
		if len(cells) == 0 {
			t.Errorf("%s quotes no refusal: does this test still look in the right place?", document)
		}
		for _, row := range cells {
			for _, quote := range quoted.FindAllStringSubmatch(row[1], -1) {
				for part := range strings.SplitSeq(quote[1], "…") {
					if !strings.Contains(said.String(), strings.TrimSpace(part)) {
						t.Errorf("%s quotes %q, which no rule says", document, strings.TrimSpace(part))
					}
				}
			}
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
