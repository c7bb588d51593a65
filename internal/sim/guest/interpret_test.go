package guest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestParseKnowsListsOfSimpleCommands(t *testing.T) {
	for text, want := range map[string][]command{
		"echo a  b":                      {{words: []string{"echo", "a", "b"}}},
		`echo 'a "b"' "c 'd'" e\ f ""`:   {{words: []string{"echo", `a "b"`, "c 'd'", "e f", ""}}},
		"a && b || c; d":                 {{words: []string{"a"}, operator: "&&"}, {words: []string{"b"}, operator: "||"}, {words: []string{"c"}, operator: ";"}, {words: []string{"d"}}},
		"a # not && this":                {{words: []string{"a"}}},
		"echo x#y":                       {{words: []string{"echo", "x#y"}}},
		"echo success > /run/x.complete": {{words: []string{"echo", "success"}, output: "/run/x.complete"}},
		"echo x >>/f 2>/dev/null":        {{words: []string{"echo", "x"}, output: "/f", add: true}},
		"a 2>&1":                         {{words: []string{"a"}}},
		"a\n\nb\n":                       {{words: []string{"a"}, operator: ";"}, {words: []string{"b"}, operator: ";"}},
		"a \\\n b":                       {{words: []string{"a", "b"}}},
		"":                               nil,
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			got, err := parse(text)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(want))
		})
	}
}

// What a real shell would have to expand is not guessed at.
func TestParseRefusesWhatNeedsAShell(t *testing.T) {
	for _, text := range []string{
		"a | b", "echo $HOME", "echo \"$HOME\"", "echo `id`", "a &", "(a)", "a < b", "rm /tmp/*", "if true; then a; fi", "for i in 1 2; do a; done",
		"&& a", "echo 'open", `echo "open`, "a >",
	} {
		_, err := parse(text)
		if !errors.Is(err, errNeedsShell) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestRender(t *testing.T) {
	data := map[string]any{
		"local_hostname": "h1",
		"ds":             map[string]any{"meta_data": map[string]any{"hostname": "h1", "local-hostname": "h1", "n": 3, "network": map[string]any{}}},
	}
	for text, want := range map[string]string{
		"no template {":                              "no template {",
		"{{ local_hostname }}":                       "h1",
		"{{local_hostname}}-{{ ds.meta_data.n }}":    "h1-3",
		`{{ ds.meta_data["local-hostname"] }}`:       "h1",
		`{{ ds['meta_data']['hostname'] }}`:          "h1",
		"{{- local_hostname -}}":                     "h1",
		"a{# comment #}b":                            "ab",
		"{{ nobody.knows }}":                         "CI_MISSING_JINJA_VAR/knows",
		"{{ nobody | default('x') | upper }}":        "X",
		`{{ local_hostname | default("x") }}`:        "h1",
		`{{ "literal" }}`:                            "literal",
		`{"json": {"a": 1}}`:                         `{"json": {"a": 1}}`,
		"kubelet-{{ ds.meta_data.hostname }}.pem\n{": "kubelet-h1.pem\n{",
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			got, _, err := render(text, data)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(want))
		})
	}
	for _, text := range []string{"{% if a %}", "{{ a", "{{ a() }}", "{{ a | shout }}", "{{ ds.meta_data.network }}", "{{ 1 + 1 }}"} {
		if out, _, err := render(text, data); err == nil {
			t.Errorf("%q became %q", text, out)
		}
	}
}

func TestMountTableFollowsMountsAndLinksInsideTheGuest(t *testing.T) {
	g := NewWithT(t)
	state := t.TempDir()
	table := newMountTable(state)
	_, err := table.Path("/etc")
	g.Expect(err).To(MatchError(ContainSubstring("no root file system")))
	table.mount(Mount{Path: "/", Host: "root", Device: "a"})
	table.mount(Mount{Path: "/var/lib", Host: "lib", Device: "b"})
	table.mount(Mount{Path: "/var/lib/etcd", Host: "etcd", Device: "c"})
	table.link("/dev/disk/by-capv/raw", "disks/raw")
	link := func(target, at string) {
		at = filepath.Join(state, at)
		g.Expect(os.MkdirAll(filepath.Dir(at), 0o755)).To(Succeed())
		g.Expect(os.Symlink(target, at)).To(Succeed())
	}
	link("/var/lib", "root/data")
	link("../../..", "lib/up")
	link("raw", "root/dev/disk/by-capv/alias")
	link("/loop", "root/loop")
	for guest, want := range map[string]string{
		"/":                         "root",
		"/etc/passwd":               "root/etc/passwd",
		"/var/log":                  "root/var/log",
		"/var/lib":                  "lib",
		"/var/lib/kubelet/x":        "lib/kubelet/x",
		"/var/lib/etcd/member":      "etcd/member",
		"/var/lib/etcd/../kubelet":  "lib/kubelet",
		"/var/libx":                 "root/var/libx",
		"/data/etcd/member":         "etcd/member",
		"/var/lib/up/etc/passwd":    "root/etc/passwd",
		"/../../etc":                "root/etc",
		"/dev/disk/by-capv/raw":     "disks/raw",
		"/dev/disk/by-capv/alias":   "disks/raw",
		"//var///lib/./etcd/member": "etcd/member",
	} {
		host, err := table.Path(guest)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(host).To(Equal(filepath.Join(state, want)), guest)
	}
	_, err = table.Path("/loop")
	g.Expect(err).To(MatchError(ContainSubstring("too many levels of symbolic links")))
	_, err = table.Path("etc")
	g.Expect(err).To(MatchError(ContainSubstring("not an absolute path")))
}

func TestGuestinfoDecoding(t *testing.T) {
	g := NewWithT(t)
	h := hardware{guestinfo: map[string]string{
		"guestinfo.plain": "a: b", "guestinfo.metadata": "YTogYg==", "guestinfo.metadata.encoding": "base64",
		"guestinfo.userdata": "***", "guestinfo.userdata.encoding": "base64", "guestinfo.x": "y", "guestinfo.x.encoding": "rot13",
	}}
	g.Expect(h.info("plain")).To(Equal("a: b"))
	g.Expect(h.info("metadata")).To(Equal("a: b"))
	g.Expect(h.info("absent")).To(BeEmpty())
	_, err := h.info("userdata")
	g.Expect(err).To(MatchError(ContainSubstring("guestinfo.userdata is not base64")))
	_, err = h.info("x")
	g.Expect(err).To(MatchError(ContainSubstring(`unknown encoding "rot13"`)))
}

func TestMetadataThatIsRefused(t *testing.T) {
	g := NewWithT(t)
	for text, want := range map[string]string{
		"":                  "it is empty",
		"- a":               "not a YAML mapping",
		"local-hostname: h": "no instance-id",
		"{instance-id: i, network: {version: 1}}":                                           "version 1",
		"{instance-id: i, network: {version: 2, ethernets: {e: {addresses: [192.0.2.1]}}}}": "not in CIDR form",
	} {
		_, err := parseMetadata(text)
		g.Expect(err).To(MatchError(ContainSubstring(want)))
	}
	m, err := parseMetadata("instance-id: i\nlocal-hostname: h\nnetwork: |\n  network:\n    version: 2\n    ethernets:\n      e: {match: {macaddress: AA:bb}, set-name: eth7, addresses: [192.0.2.1/24]}\n")
	g.Expect(err).NotTo(HaveOccurred())
	e, ok := m.byMAC("aa:bb")
	g.Expect(ok).To(BeTrue())
	g.Expect(e.Name).To(Equal("eth7"))
}
