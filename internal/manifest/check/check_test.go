package check_test

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/berth-dev/berth/internal/manifest"
	"github.com/berth-dev/berth/internal/manifest/check"
)

// TestCases checks the sets of testdata/cases. A case is a sentence about what it shows, options (a line "options: partial"), and files
// behind lines "-- name --", which replace those of testdata/base of the same name; "-- name -- gone" leaves one out. What is expected
// stands in the files as comments, on the line that it is about:
//
//	# WANT field: part of the message      an error
//	# WARN field: part of the message      a warning
//
// and nothing else may be found, wherever.
func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			g := NewWithT(t)
			c := readCase(t, file)
			report, err := check.Run(t.Context(), c.sources, c.options)
			g.Expect(err).NotTo(HaveOccurred())
			left := slices.Clone(report.Problems)
			for _, w := range c.wants {
				i := slices.IndexFunc(left, w.matches)
				if i < 0 {
					t.Errorf("not found: %s", w)
					continue
				}
				left = slices.Delete(left, i, i+1)
			}
			for _, p := range left {
				t.Errorf("not expected: %s", p)
			}
		})
	}
}

type testCase struct {
	options check.Options
	sources []manifest.Source
	wants   []want
}

type want struct {
	severity, file string
	line           int
	field, part    string
}

func (w want) String() string {
	return fmt.Sprintf("%s:%d: %s: %s: %s", w.file, w.line, w.severity, w.field, w.part)
}

func (w want) matches(p check.Problem) bool {
	return p.Severity == w.severity && p.File == w.file && p.Line == w.line && p.Field == w.field && strings.Contains(p.Message, w.part)
}

var (
	section  = regexp.MustCompile(`^-- (\S+) --( gone)?$`)
	wantText = regexp.MustCompile(`# (WANT|WARN) (?:(\S+): )?(.*)$`)
)

func readCase(t *testing.T, file string) testCase {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*bytes.Buffer{}
	base, err := filepath.Glob("testdata/base/*.yaml")
	if err != nil || len(base) == 0 {
		t.Fatal("no base", err)
	}
	for _, b := range base {
		content, err := os.ReadFile(b)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(b)] = bytes.NewBuffer(content)
	}
	var c testCase
	var current *bytes.Buffer
	for line := range strings.Lines(string(text)) {
		m := section.FindStringSubmatch(strings.TrimSpace(line))
		switch {
		case m != nil && m[2] != "":
			delete(files, m[1])
		case m != nil:
			current = &bytes.Buffer{}
			files[m[1]] = current
		case current != nil:
			current.WriteString(line)
		case strings.HasPrefix(line, "options:"):
			for _, o := range strings.Fields(line)[1:] {
				switch o {
				case "partial":
					c.options.Partial = true
				case "warnings-as-errors":
					c.options.Strict = true
				default:
					t.Fatalf("unknown option %q", o)
				}
			}
		}
	}
	for name, content := range files {
		c.sources = append(c.sources, manifest.Source{File: name, Text: content.Bytes()})
		for i, line := range strings.Split(content.String(), "\n") {
			for line != "" {
				m := wantText.FindStringSubmatchIndex(line)
				if m == nil {
					break
				}
				one := line[m[0]:]
				line = ""
				if second := strings.Index(one[1:], " # W"); second >= 0 {
					one, line = one[:second+1], one[second+2:]
				}
				parts := wantText.FindStringSubmatch(one)
				w := want{severity: check.Error, file: name, line: i + 1, field: parts[2], part: strings.TrimSpace(parts[3])}
				if parts[1] == "WARN" {
					w.severity = check.Warning
				}
				c.wants = append(c.wants, w)
			}
		}
	}
	slices.SortFunc(c.sources, func(a, b manifest.Source) int { return cmp.Compare(a.File, b.File) })
	return c
}
