package manifest_test

import (
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/manifest"
)

// FuzzParse: whatever the text, reading ends, every line that is told is one of the text, and a document is an object.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "---\n---\n", "a: 1\r\na: 2\r\n", "a: &a [*a]\n", "a: &a {b: *a}\n<<: *a\n", "x: &x {<<: *x}\n", "- 1\n", "\xef\xbb\xbfa: b", "%YAML 1.1\n---\na: b\n...\nc: d\n",
		`{"a": 1}{"a": 2}`, `{"kind":"List","items":[{"kind":"XList","items":[null,1]}]}`, "kind: List\nitems: [{a: b}, *x]\n", "? [a, b]\n: c\n", "1: 2\ntrue: y\n~: 3\n",
		"a: |\n  text\n---b\n", "--- {a: b}\n--- >\n", "a:\n\tb: c\n", "\x00", "a: \"\\ud83d\\ude00\"\n", "'a.b': {c[0]: 1}\n", "a: {b: [{c: 1}]}\n", "!!binary a: b\n", "a: !!float x\n", "{a: [", "...\n...\n",
	} {
		f.Add([]byte(seed), "a.b[0].c")
	}
	f.Add([]byte("a: {b: [{name: c, d: e}]}\n"), "a.b[c].d")
	f.Fuzz(func(t *testing.T, text []byte, path string) {
		lines := 1
		for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} {
			lines += strings.Count(string(text), end)
		}
		documents, problems := manifest.Parse("fuzz", text)
		for _, p := range problems {
			if p.Line < 1 || p.Line > lines || p.Message == "" {
				t.Errorf("problem %+v of a text of %d lines", p, lines)
			}
		}
		for _, d := range documents {
			if d.Object == nil {
				t.Error("a document without object")
			}
			if line := d.Line(path); line < 1 || line > lines {
				t.Errorf("%q is said to be on line %d of %d", path, line, lines)
			}
			d.Rename("a", "b", "c")
			manifest.Remove(d.Object, path)
		}
	})
}
