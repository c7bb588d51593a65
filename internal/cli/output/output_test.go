package output

import (
	"bytes"
	"io"
	"testing"

	. "github.com/onsi/gomega"
)

func TestColumnsAreAlignedAndEmptyOnesLeftOut(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	g.Expect(Columns(&out, []string{"NAME", "NOTE", "槽位"}, [][]string{{"a", "", "一"}, {"longer", "", "二三四"}})).To(Succeed())
	g.Expect(out.String()).To(Equal("NAME     槽位\na        一\nlonger   二三四\n"))
}

func TestFormats(t *testing.T) {
	g := NewWithT(t)
	value := map[string]any{"state": "ready"}
	for format, want := range map[Format]string{
		JSON: "{\n  \"state\": \"ready\"\n}\n", YAML: "state: ready\n", Table: "a table",
	} {
		var out bytes.Buffer
		g.Expect(format.Print(&out, value, func(w io.Writer) error {
			_, err := io.WriteString(w, "a table")
			return err
		})).To(Succeed())
		g.Expect(out.String()).To(Equal(want))
	}
	var f Format
	g.Expect(f.Set("xml")).To(MatchError(ContainSubstring("json, yaml, table")))
}
