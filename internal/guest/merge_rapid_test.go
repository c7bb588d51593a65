package guest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// Whatever the user's files and commands hold, they come out of the merge as they went in: the YAML is parsed and written
// again, and one lost space in a certificate or a script would be a node that never joins. The input is written the way CAPI's
// kubeadm bootstrap provider writes it, and with commands as blocks.
func TestMergeKeepsWhatTheUserWrote(t *testing.T) {
	text := rapid.StringOfN(rapid.SampledFrom([]rune("ab:#-'\"|>%{}[]&*!\\ \t\n\n  é✓{{}}")), 0, 40, -1)
	rapid.Check(t, func(t *rapid.T) {
		var in strings.Builder
		in.WriteString("## template: jinja\n#cloud-config\n\nwrite_files:\n")
		for _, content := range rapid.SliceOfN(text, 0, 4).Draw(t, "contents") {
			fmt.Fprintf(&in, "-   path: /etc/a\n    permissions: '0640'\n    content: |\n      %s\n", strings.ReplaceAll(content, "\n", "\n      "))
		}
		in.WriteString("runcmd:\n")
		for _, command := range rapid.SliceOfN(text, 0, 4).Draw(t, "commands") {
			if rapid.Bool().Draw(t, "block") {
				fmt.Fprintf(&in, "  - |2\n    %s\n", strings.ReplaceAll(command, "\n", "\n    "))
			} else {
				fmt.Fprintf(&in, "  - %q\n", command)
			}
		}
		type lists struct {
			WriteFiles []any `yaml:"write_files"`
			RunCmd     []any `yaml:"runcmd"`
		}
		var want, got lists
		if err := yaml.Unmarshal([]byte(in.String()), &want); err != nil {
			// rapid draws another case; the test itself is not skipped.
			t.Skip("what the bootstrap provider wrote is no YAML")
		}
		out, err := Merge(Input{UserData: []byte(in.String()), HostName: "h", Disks: disks()})
		if err != nil {
			t.Fatalf("%v for\n%s", err, in.String())
		}
		if err := yaml.Unmarshal(out, &got); err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		for name, list := range map[string]struct {
			ours      int
			got, want []any
		}{"write_files": {6, got.WriteFiles, want.WriteFiles}, "runcmd": {4, got.RunCmd, want.RunCmd}} {
			users := append([]any{}, list.got[list.ours:]...)
			if !reflect.DeepEqual(users, append([]any{}, list.want...)) {
				t.Fatalf("%s: %q became %q in\n%s", name, list.want, users, out)
			}
		}
		if !strings.HasPrefix(string(out), "## template: jinja\n#cloud-config\n") {
			t.Fatal("the header is gone")
		}
	})
}
