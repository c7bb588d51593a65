package guest

import (
	"encoding/base64"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"go.yaml.in/yaml/v3"
)

type parsed struct {
	WriteFiles []writeFile `yaml:"write_files"`
	RunCmd     []string    `yaml:"runcmd"`
}

func (p parsed) file(path string) string {
	for _, f := range p.WriteFiles {
		if f.Path != path {
			continue
		}
		if f.Encoding == "b64" {
			raw, err := base64.StdEncoding.DecodeString(f.Content)
			if err != nil {
				return err.Error()
			}
			return string(raw)
		}
		return f.Content
	}
	return "no file " + path
}

func disks() []Disk {
	return []Disk{
		{Name: "var-lib-containerd", Identity: "6000C29A-0000-0000-0000-000000000002", MountPath: "/var/lib/containerd", Filesystem: "xfs", Ephemeral: true, SlotKey: "ns/c/h1"},
		{Name: "app-data", Identity: "6000C29A-0000-0000-0000-000000000003", SlotKey: "ns/c/h1"},
		{Name: "var-cpaas", Identity: "6000C29A-0000-0000-0000-000000000001", MountPath: "/var/cpaas/", Filesystem: "ext4", Options: []string{"noatime", "nodiratime"}, Wipe: true, SlotKey: "ns/c/h1"},
	}
}

func mustMerge(t *testing.T, in Input) (string, parsed) {
	t.Helper()
	out, err := Merge(in)
	if err != nil {
		t.Fatal(err)
	}
	var p parsed
	if err := yaml.Unmarshal(out, &p); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	return string(out), p
}

func initData(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/control-plane-init.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// VS-D41: our files and commands come first, the user's stay complete and in order, the jinja header stays in front.
func TestMergePutsOursFirstAndKeepsTheUsers(t *testing.T) {
	g := NewWithT(t)
	out, p := mustMerge(t, Input{UserData: initData(t), HostName: "demo-1", NodeIP: "127.64.1.21", Disks: disks()})

	g.Expect(out).To(HavePrefix("## template: jinja\n#cloud-config\n"))
	paths := []string{}
	for _, f := range p.WriteFiles {
		paths = append(paths, f.Path)
	}
	g.Expect(paths).To(Equal([]string{
		MappingPath, ScriptPath, "/etc/systemd/system/" + UnitName,
		"/etc/systemd/system/containerd.service.d/10-wait-disks.conf",
		"/etc/systemd/system/kubelet.service.d/10-wait-disks.conf",
		"/etc/udev/rules.d/62-capv-disks.rules",
		"/etc/kubernetes/pki/ca.crt", "/run/kubeadm/kubeadm.yaml", "/run/cluster-api/placeholder",
	}))
	g.Expect(p.WriteFiles[0].Permissions).To(Equal("0600"))
	g.Expect(p.RunCmd).To(Equal([]string{
		"systemctl daemon-reload",
		"udevadm control --reload",
		"systemctl enable --now capv-persistent-disk-reconcile.service || exit 1",
		"systemctl restart containerd.service",
		"hostnamectl set-hostname '{{ ds.meta_data.hostname }}'",
		"kubeadm init --config /run/kubeadm/kubeadm.yaml  && echo success > /run/cluster-api/bootstrap-success.complete",
		"echo done",
	}))
	g.Expect(out).To(ContainSubstring("# the user's last word"))
	g.Expect(p.file(ScriptPath)).To(Equal(Script()))
	g.Expect(p.file("/etc/kubernetes/pki/ca.crt")).To(Equal("-----BEGIN CERTIFICATE-----\nZm9v\n-----END CERTIFICATE-----\n"))
}

// VS-D27, VS-B7: every row has every column, the empty ones as a placeholder, and parents come before children (VS-D40).
func TestMappingSurvivesEmptyColumns(t *testing.T) {
	g := NewWithT(t)
	_, p := mustMerge(t, Input{UserData: initData(t), Disks: disks()})
	text := p.file(MappingPath)
	g.Expect(text).To(Equal(mappingHeader +
		"var-cpaas\t6000c29a000000000000000000000001\t/var/cpaas\text4\tnoatime,nodiratime\ttrue\tpersistent\tns/c/h1/var-cpaas\n" +
		"var-lib-containerd\t6000c29a000000000000000000000002\t/var/lib/containerd\txfs\tdefaults\tfalse\tephemeral\tns/c/h1/var-lib-containerd\n" +
		"app-data\t6000c29a000000000000000000000003\t-\t-\t-\tfalse\tpersistent\tns/c/h1/app-data\n# end\n"))
	rows, err := ParseMapping(text)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(rows).To(Equal(Rows(disks())))
}

// VS-V20c: the kubeadm documents name the node after its place.
func TestMergeNamesTheNodeInKubeadmDocuments(t *testing.T) {
	g := NewWithT(t)
	_, p := mustMerge(t, Input{UserData: initData(t), HostName: "demo-1", NodeIP: "127.64.1.21"})
	text := p.file("/run/kubeadm/kubeadm.yaml")
	g.Expect(strings.Count(text, "---")).To(Equal(2))
	dec := yaml.NewDecoder(strings.NewReader(text))
	var cluster, init map[string]any
	g.Expect(dec.Decode(&cluster)).To(Succeed())
	g.Expect(dec.Decode(&init)).To(Succeed())
	g.Expect(cluster["kind"]).To(Equal("ClusterConfiguration"))
	g.Expect(init["nodeRegistration"]).To(Equal(map[string]any{
		"criSocket": "unix:///run/containerd/containerd.sock", "imagePullPolicy": "IfNotPresent", "name": "demo-1", "taints": nil,
		"kubeletExtraArgs": []any{
			map[string]any{"name": "cloud-provider", "value": "external"},
			map[string]any{"name": "node-ip", "value": "127.64.1.21"},
		},
	}))
}

func TestKubeadmDocumentsOfEitherVersion(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"v1beta3 has a mapping": {
			"apiVersion: kubeadm.k8s.io/v1beta3\nkind: JoinConfiguration\nnodeRegistration:\n  kubeletExtraArgs:\n    cloud-provider: external\n",
			"apiVersion: kubeadm.k8s.io/v1beta3\nkind: JoinConfiguration\nnodeRegistration:\n  kubeletExtraArgs:\n    cloud-provider: external\n    node-ip: \"192.0.2.5\"\n  name: \"h1\"\n",
		},
		"v1beta3 without arguments": {
			"apiVersion: kubeadm.k8s.io/v1beta3\nkind: JoinConfiguration\n",
			"apiVersion: kubeadm.k8s.io/v1beta3\nkind: JoinConfiguration\nnodeRegistration:\n  name: \"h1\"\n  kubeletExtraArgs:\n    node-ip: \"192.0.2.5\"\n",
		},
		"v1beta4 without arguments": {
			"apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\nnodeRegistration: {}\n",
			"apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\nnodeRegistration:\n  name: \"h1\"\n  kubeletExtraArgs:\n    - name: \"node-ip\"\n      value: \"192.0.2.5\"\n",
		},
		"what the user fixed stays": {
			"kind: JoinConfiguration\nnodeRegistration: {name: mine, kubeletExtraArgs: [{name: node-ip, value: 192.0.2.9}]}\n",
			"kind: JoinConfiguration\nnodeRegistration: {name: mine, kubeletExtraArgs: [{name: node-ip, value: 192.0.2.9}]}\n",
		},
		"other kinds are left alone": {
			"kind: ClusterConfiguration\nclusterName: c\n",
			"kind: ClusterConfiguration\nclusterName: c\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			out, _, err := kubeadmFile(tc.in, "h1", "192.0.2.5")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out).To(Equal(tc.want))
		})
	}
}

func TestMergeWithNothingToDoReturnsTheInput(t *testing.T) {
	g := NewWithT(t)
	for _, data := range []string{string(initData(t)), "#!/bin/sh\necho hello\n", `{"ignition":{"version":"3.4.0"}}`, ""} {
		out, err := Merge(Input{UserData: []byte(data)})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(out)).To(Equal(data))
	}
}

func TestMergeAddsMissingLists(t *testing.T) {
	g := NewWithT(t)
	for _, data := range []string{"#cloud-config\n", "#cloud-config\nruncmd: []\n", "#cloud-config\nwrite_files:\n", "#cloud-config"} {
		_, p := mustMerge(t, Input{UserData: []byte(data), Disks: disks()})
		g.Expect(p.WriteFiles).To(HaveLen(6))
		g.Expect(p.RunCmd).To(HaveLen(4))
	}
}

// pain 29: the place's host name is the static one, whatever DHCP, reverse DNS or the image suggest; what the user decided stays.
func TestMergeKeepsTheHostName(t *testing.T) {
	g := NewWithT(t)
	keys := func(data, host string) map[string]any {
		out, err := Merge(Input{UserData: []byte(data), HostName: host})
		g.Expect(err).NotTo(HaveOccurred())
		var doc map[string]any
		g.Expect(yaml.Unmarshal(out, &doc)).To(Succeed())
		return doc
	}
	g.Expect(keys("#cloud-config\nruncmd: [a]\n", "demo-1")).To(Equal(map[string]any{
		"runcmd": []any{"a"}, "preserve_hostname": false, "create_hostname_file": true,
	}))
	g.Expect(keys("#cloud-config\npreserve_hostname: true\ncreate_hostname_file: false\n", "demo-1")).To(Equal(map[string]any{
		"preserve_hostname": true, "create_hostname_file": false,
	}))
	g.Expect(keys("#cloud-config\nruncmd: [a]\n", "")).To(Equal(map[string]any{"runcmd": []any{"a"}}))
}

// VS-D41: what cloud-init does before it writes files, and the order of every list of the user's, stays; ours come first.
func TestMergeKeepsTheOrderOfEveryList(t *testing.T) {
	g := NewWithT(t)
	out, err := Merge(Input{HostName: "demo-1", Disks: disks(), UserData: []byte(`#cloud-config
bootcmd: [[cloud-init-per, once, b1, "true"], echo b2]
runcmd: [echo r1, [echo, r2], echo r3]
write_files: [{path: /f1, content: a}, {path: /f2, content: b, append: true}, {path: /f1, content: c, defer: true}]
mounts: [[sdc, /opt]]
`)})
	g.Expect(err).NotTo(HaveOccurred())
	var doc map[string][]any
	var rest map[string]any
	g.Expect(yaml.Unmarshal(out, &rest)).To(Succeed())
	delete(rest, "preserve_hostname")
	delete(rest, "create_hostname_file")
	again, err := yaml.Marshal(rest)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(yaml.Unmarshal(again, &doc)).To(Succeed())
	g.Expect(doc["bootcmd"]).To(Equal([]any{[]any{"cloud-init-per", "once", "b1", "true"}, "echo b2"}), "all of it is the user's")
	g.Expect(doc["mounts"]).To(Equal([]any{[]any{"sdc", "/opt"}}))
	ours := len(diskCommands())
	g.Expect(doc["runcmd"][ours:]).To(Equal([]any{"echo r1", []any{"echo", "r2"}, "echo r3"}))
	g.Expect(doc["runcmd"][:ours]).To(ContainElement(ContainSubstring(UnitName)))
	files := doc["write_files"]
	g.Expect(files[len(files)-3:]).To(Equal([]any{
		map[string]any{"path": "/f1", "content": "a"},
		map[string]any{"path": "/f2", "content": "b", "append": true},
		map[string]any{"path": "/f1", "content": "c", "defer": true},
	}))
	g.Expect(files[0]).To(HaveKeyWithValue("path", MappingPath))
}

// VS-D41: user data that cannot carry the disks is refused with the published reason.
func TestMergeRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ data, want string }{
		"ignition":           {`{"ignition":{"version":"3.4.0"}}`, "is not a cloud-config"},
		"a script":           {"#!/bin/sh\necho\n", "is not a cloud-config"},
		"broken YAML":        {"#cloud-config\nruncmd: [\n", "is not valid YAML"},
		"a list":             {"#cloud-config\n- a\n", "top level is not a mapping"},
		"runcmd not a list":  {"#cloud-config\nruncmd: echo\n", "runcmd is not a list (line 1)"},
		"broken kubeadm":     {"#cloud-config\nwrite_files: [{path: /run/kubeadm/kubeadm.yaml, content: 'a: ['}]\n", "kubeadm configuration /run/kubeadm/kubeadm.yaml"},
		"compressed kubeadm": {"#cloud-config\nwrite_files: [{path: /run/kubeadm/kubeadm.yaml, encoding: gz+b64, content: 'aa'}]\n", `encoding "gz+b64"`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := Merge(Input{UserData: []byte(tc.data), HostName: "h", Disks: disks()})
			g.Expect(err).To(MatchError(ContainSubstring(tc.want)))
			g.Expect(IsContentInvalid(err)).To(BeTrue())
			var ce *ContentError
			g.Expect(errors.As(err, &ce)).To(BeTrue())
			g.Expect(ce.Reason()).To(Equal("BootstrapSecretContentInvalid"))
		})
	}
}

// VS-D18: no guest boots with a disk it cannot find.
func TestMergeRefusesIncompleteDisks(t *testing.T) {
	g := NewWithT(t)
	for want, d := range map[string][]Disk{
		"no identity yet":             {{Name: "a"}},
		"has no name":                 {{Identity: "1"}},
		"two disks":                   {{Name: "a", Identity: "1"}, {Name: "a", Identity: "2"}},
		"the same identity":           {{Name: "a", Identity: "1-2"}, {Name: "b", Identity: "12"}},
		"tab or line break":           {{Name: "a", Identity: "1", MountPath: "/a\tb"}},
		"mount path \"a\" is not abs": {{Name: "a", Identity: "1", MountPath: "a"}},
	} {
		_, err := Merge(Input{UserData: []byte("#cloud-config\n"), Disks: d})
		g.Expect(err).To(MatchError(ContainSubstring(want)))
	}
}

// The guest renders its user data as a jinja template before it reads it: ours must come out unchanged.
func TestOurFilesHoldNoTemplateExpressions(t *testing.T) {
	g := NewWithT(t)
	odd := disks()
	odd[0].Options = []string{"x={{y}}"}
	_, p := mustMerge(t, Input{UserData: []byte("## template: jinja\n#cloud-config\n"), Disks: odd})
	for _, f := range p.WriteFiles {
		for _, mark := range []string{"{{", "{%", "{#"} {
			g.Expect(f.Content).NotTo(ContainSubstring(mark), f.Path)
		}
	}
	g.Expect(p.file(MappingPath)).To(ContainSubstring("x={{y}}"))
}

func TestScriptIsCleanShell(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reconcile.sh")
	if err := os.WriteFile(path, []byte(Script()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, shell := range shells() {
		if out, err := exec.Command(shell, "-n", path).CombinedOutput(); err != nil {
			t.Errorf("%s -n: %v\n%s", shell, err, out)
		}
	}
	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Log("shellcheck is not installed here; the lint step runs it")
		return
	}
	if out, err := exec.Command("shellcheck", path).CombinedOutput(); err != nil {
		t.Errorf("shellcheck: %v\n%s", err, out)
	}
}
