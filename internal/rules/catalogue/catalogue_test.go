package catalogue

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/berth-dev/berth/internal/rules"
)

// TestExamplesProvokeTheirMessages: every example is refused, or warned about, with the fragment that the page promises (VS-R17), and
// a warning's example is not refused.
func TestExamplesProvokeTheirMessages(t *testing.T) {
	for _, s := range Sections() {
		for _, e := range s.Entries {
			t.Run(e.IDs[0]+" "+e.Title.EN, func(t *testing.T) {
				g := NewWithT(t)
				g.Expect(e.Examples).NotTo(BeEmpty())
				for _, text := range []Text{s.Title, e.Title, e.Means, e.Do} {
					g.Expect(text.EN).NotTo(BeEmpty())
					g.Expect(text.ZH).NotTo(BeEmpty())
				}
				for i, example := range e.Examples {
					v := example()
					g.Expect(e.find(v)).NotTo(BeEmpty(), "example %d says something else: %v %v", i, v.Errors, v.Warnings)
					g.Expect(v.Refused()).NotTo(Equal(e.Warns), "example %d: %v", i, v.Errors)
				}
			})
		}
	}
}

// TestShownRefusalsAreOneSentence: the example on the page breaks one rule and hears of one.
func TestShownRefusalsAreOneSentence(t *testing.T) {
	for _, s := range Sections() {
		for _, e := range s.Entries {
			if v := e.Examples[0](); !e.Warns && len(v.Errors) != 1 {
				t.Errorf("%s %s: %d refusals: %v", e.IDs[0], e.Title.EN, len(v.Errors), v.Errors)
			}
		}
	}
}

// TestEverySentenceOfTheRulesIsShown reads the source of package rules: each sentence in it comes out of some example.
func TestEverySentenceOfTheRulesIsShown(t *testing.T) {
	var said []string
	for _, s := range Sections() {
		for _, e := range s.Entries {
			for _, example := range e.Examples {
				v := example()
				for _, err := range v.Errors {
					said = append(said, err.Error())
				}
				said = append(said, v.Warnings...)
			}
		}
	}
	all := strings.Join(said, "\n")
	sentences := sentencesOfRules(t)
	if len(sentences) < 100 {
		t.Fatalf("only %d sentences found in package rules: the search is broken", len(sentences))
	}
	for where, sentence := range sentences {
		if !pattern(sentence).MatchString(all) {
			t.Errorf("%s: no example in this package provokes %q: add an entry, and run hack/generate.sh", where, sentence)
		}
	}
}

// notSaid are literals of package rules that reach nobody through a verdict.
var notSaid = []string{
	"%s owns no machines that these rules know",
	"%s is %v, neither a number nor a string",
}

var verb = regexp.MustCompile(`%[+#]?[a-z]`)

// pattern matches what becomes of a format.
func pattern(format string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString("(?s)")
	last := 0
	for _, m := range verb.FindAllStringIndex(format, -1) {
		b.WriteString(regexp.QuoteMeta(format[last:m[0]]) + `[^\n]*?`)
		last = m[1]
	}
	b.WriteString(regexp.QuoteMeta(format[last:]))
	return regexp.MustCompile(b.String())
}

// sentencesOfRules are the string literals of package rules that have a blank in them, by where they are.
func sentencesOfRules(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(strings.TrimSpace(text), " ") && !slices.Contains(notSaid, text) {
				position := set.Position(literal.Pos())
				found[fmt.Sprintf("%s:%d:%d", filepath.Base(position.Filename), position.Line, position.Column)] = text
			}
			return true
		})
	}
	return found
}

// TestEveryRequirementOfAdmissionIsShown: each rule of admission has an entry, or is accepted on purpose.
func TestEveryRequirementOfAdmissionIsShown(t *testing.T) {
	shown := map[string]bool{}
	for _, s := range Sections() {
		for _, e := range s.Entries {
			for _, id := range e.IDs {
				shown[id] = true
			}
		}
	}
	for _, a := range OnPurpose() {
		for _, id := range a.IDs {
			shown[id] = true
		}
	}
	text, err := os.ReadFile("../../../docs/requirements/vsphere.md")
	if err != nil {
		t.Fatal(err)
	}
	required := regexp.MustCompile(`(?m)^\| (VS-W[0-9]+) \|`).FindAllStringSubmatch(string(text), -1)
	if len(required) < 40 {
		t.Fatalf("only %d requirements found: the search is broken", len(required))
	}
	for _, r := range required {
		if !shown[r[1]] {
			t.Errorf("%s is neither shown nor accepted on purpose", r[1])
		}
	}
	// What users were promised about admission.
	for _, n := range []int{2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 26, 29, 41, 43, 46, 47, 49, 50, 56, 57, 58, 62} {
		if id := fmt.Sprintf("VS-R%d", n); !shown[id] {
			t.Errorf("%s is neither shown nor accepted on purpose", id)
		}
	}
}

// TestPagesAreUpToDate: docs/admission*.md are what hack/generate.sh makes.
func TestPagesAreUpToDate(t *testing.T) {
	for _, page := range Pages() {
		text, err := os.ReadFile(filepath.Join("../../../docs", page.Name))
		if err != nil {
			t.Error(err)
			continue
		}
		if string(text) != page.Text {
			t.Errorf("docs/%s is not what the rules say today: run hack/generate.sh", page.Name)
		}
	}
}

// TestGuideQuotesTheRules: the short table of the guide for people on call has only words that the rules use.
func TestGuideQuotesTheRules(t *testing.T) {
	var all strings.Builder
	for _, s := range Sections() {
		for _, e := range s.Entries {
			for _, example := range e.Examples {
				for _, err := range example().Errors {
					fmt.Fprintln(&all, err)
				}
			}
		}
	}
	for guide, heading := range map[string]string{"vsphere.md": "## What admission refuses", "vsphere.zh.md": "## 准入拒绝什么"} {
		text, err := os.ReadFile(filepath.Join("../../../docs", guide))
		if err != nil {
			t.Fatal(err)
		}
		_, section, found := strings.Cut(string(text), heading)
		if !found {
			t.Fatalf("docs/%s has no heading %q", guide, heading)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		quotes := 0
		for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(section, -1) {
			for _, quoted := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
				quotes++
				if !pattern(strings.ReplaceAll(quoted[1], "…", "%s")).MatchString(all.String()) {
					t.Errorf("docs/%s quotes %q, which no rule says", guide, quoted[1])
				}
			}
		}
		if quotes == 0 {
			t.Errorf("docs/%s quotes nothing: the search is broken", guide)
		}
	}
}

// TestNothingIsFound: an entry does not take another one's message for its own.
func TestNothingIsFound(t *testing.T) {
	g := NewWithT(t)
	e := refusal(ids("VS-W1"), Text{}, "must be set", Text{}, Text{}, func() rules.Verdict { return rules.Verdict{Warnings: []string{"must be set"}} })
	g.Expect(e.Message()).To(BeEmpty(), "a warning is no refusal")
	e.Warns = true
	g.Expect(e.Message()).To(Equal("must be set"))
}
