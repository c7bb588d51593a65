package check_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-dev/berth/internal/manifest"
	"github.com/berth-dev/berth/internal/manifest/check"
)

// TestMangledManifests damages good manifests at random: a check always ends, and all it says has a place and is one line.
func TestMangledManifests(t *testing.T) {
	files, err := filepath.Glob("testdata/base/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no base", err)
	}
	var texts []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	tokens := []string{"", "null", "[]", "{}", "1", "-1", "\"\"", "true", "[null]", "{a: b}", "*x", "&x", "~", "99999999999999999999", "0.5", "---", "'", "\t", "- ", "a.b[0]"}
	rapid.Check(t, func(t *rapid.T) {
		lines := strings.Split(strings.Join(texts, "---\n"), "\n")
		for range rapid.IntRange(1, 6).Draw(t, "edits") {
			i := rapid.IntRange(0, len(lines)-1).Draw(t, "line")
			token := rapid.SampledFrom(tokens).Draw(t, "token")
			switch rapid.IntRange(0, 4).Draw(t, "edit") {
			case 0: // a line is lost
				lines = append(lines[:i:i], lines[i+1:]...)
			case 1: // a line is there twice
				lines = append(lines[:i+1:i+1], lines[i:]...)
			case 2: // a value is another
				key, _, _ := strings.Cut(lines[i], ":")
				lines[i] = key + ": " + token
			case 3: // a word is another
				words := strings.Split(lines[i], " ")
				words[rapid.IntRange(0, len(words)-1).Draw(t, "word")] = token
				lines[i] = strings.Join(words, " ")
			case 4: // a piece is lost
				from := rapid.IntRange(0, len(lines[i])).Draw(t, "from")
				lines[i] = lines[i][:from]
			}
		}
		report, err := check.Run(t.Context(), []manifest.Source{{File: "mangled", Text: []byte(strings.Join(lines, "\n"))}}, check.Options{})
		if err != nil {
			t.Fatalf("the check could not be made: %v", err)
		}
		for _, p := range report.Problems {
			if p.Line < 1 || p.Line > len(lines) || p.Message == "" || strings.Contains(p.String(), "\n") {
				t.Errorf("problem %+v", p)
			}
		}
	})
}
