package check

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Severities of problems.
const (
	Error   = "error"
	Warning = "warning"
)

// Problem is one mistake, in one sentence. Its JSON form is an interface: fields are added, never renamed.
type Problem struct {
	// Severity is "error" or "warning".
	Severity string `json:"severity"`
	// File as it was given ("-" is standard input), and the line in it, from 1.
	File string `json:"file"`
	Line int    `json:"line"`
	// The object that the problem is about; empty if the text holds no object there.
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	// Field of the object, such as spec.configs[0].hostname; empty if it is about the whole object.
	Field string `json:"field,omitempty"`
	// Message is the sentence, without the field.
	Message string `json:"message"`
}

// String is file:line: Kind/name: field: message; a warning says so behind the position.
func (p Problem) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d: ", p.File, p.Line)
	if p.Severity == Warning {
		b.WriteString("warning: ")
	}
	if p.Kind != "" {
		b.WriteString(p.Kind + "/" + cmp.Or(p.Name, "(no name)") + ": ")
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(strings.Join(strings.Fields(p.Message), " "))
	return b.String()
}

// Report is the result of a check.
type Report struct {
	Problems []Problem `json:"problems"`
	Summary  Summary   `json:"summary"`
}

// Summary counts.
type Summary struct {
	// Files that were read.
	Files int `json:"files"`
	// Objects found, the checked ones, and those of kinds that no check is about.
	Objects int `json:"objects"`
	Checked int `json:"checked"`
	Ignored int `json:"ignored"`

	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	// Valid: there is no error.
	Valid bool `json:"valid"`
}

// String is a line for people.
func (s Summary) String() string {
	text := fmt.Sprintf("%s checked in %s: %s, %s", count(s.Checked, "object"), count(s.Files, "file"), count(s.Errors, "error"), count(s.Warnings, "warning"))
	if s.Ignored > 0 {
		text += fmt.Sprintf("; %s of other kinds not looked at", count(s.Ignored, "object"))
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Write writes one line for each problem.
func (r Report) Write(w io.Writer) error {
	for _, p := range r.Problems {
		if _, err := fmt.Fprintln(w, p); err != nil {
			return err
		}
	}
	return nil
}

// finish orders the problems by their place in the input and counts them.
func (r *Report) finish(order map[string]int) {
	slices.SortStableFunc(r.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line))
	})
	r.Problems = slices.Compact(r.Problems)
	for _, p := range r.Problems {
		if p.Severity == Error {
			r.Summary.Errors++
		} else {
			r.Summary.Warnings++
		}
	}
	r.Summary.Valid = r.Summary.Errors == 0
}
