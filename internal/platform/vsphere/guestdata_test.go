package vsphere_test

import (
	"encoding/base64"
	"reflect"
	"testing"

	"github.com/vmware/govmomi/vim25/mo"
	"go.yaml.in/yaml/v3"

	"github.com/berth-dev/berth/internal/guest"
	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/sim/vcenter"
	"github.com/berth-dev/berth/internal/slot"
)

// guestinfo is what a virtual machine hands to its guest, as the administrator reads it: raw values by key.
func (c *cloud) guestinfo(t *testing.T, name string) map[string]string {
	t.Helper()
	_, f, _ := c.admin(t)
	vm, err := f.VirtualMachine(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	var props mo.VirtualMachine
	if err := vm.Properties(t.Context(), vm.Reference(), []string{"config.extraConfig"}, &props); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, option := range props.Config.ExtraConfig {
		if text, ok := option.GetOptionValue().Value.(string); ok {
			values[option.GetOptionValue().Key] = text
		}
	}
	return values
}

// decoded undoes the one encoding that there is.
func decoded(t *testing.T, values map[string]string, key string) string {
	t.Helper()
	if values[key+".encoding"] != "base64" {
		t.Errorf("%s.encoding is %q", key, values[key+".encoding"])
	}
	text, err := base64.StdEncoding.DecodeString(values[key])
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return string(text)
}

// prepared creates a machine with the given name and fits it.
func prepared(t *testing.T, f *fleet, spec machine.ServerSpec, fit machine.Fit) (*machine.Server, error) {
	t.Helper()
	op, err := f.s.Create(t.Context(), spec)
	if err := f.end(spec.Mark, op, err); err != nil {
		t.Fatal(err)
	}
	server, err := f.s.LookupLive(t.Context(), machine.Identity{Mark: spec.Mark})
	if err != nil {
		t.Fatal(err)
	}
	fit.Spec = spec
	op, err = f.s.Fit(t.Context(), server, fit)
	return server, f.end(spec.Mark, op, err)
}

// VS-V15, VS-V16, VS-B28: bootstrap data arrives under its format's keys, encoded exactly once, also where it is base64 itself.
func TestBootstrapDataIsEncodedOnce(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	f := newFleet(t, c, s)
	const ignition = `{"ignition":{"version":"3.4.0"}}`
	for i, tc := range []struct{ name, format, data, key, other string }{
		{"plain", "cloud-config", "#cloud-config\nruncmd: [a]\n", "guestinfo.userdata", "guestinfo.ignition.config.data"},
		{"base64", "cloud-config", "aGVsbG8=", "guestinfo.userdata", "guestinfo.ignition.config.data"},
		{"no-format", "", "#cloud-config\n", "guestinfo.userdata", "guestinfo.ignition.config.data"},
		{"ignition", "ignition", ignition, "guestinfo.ignition.config.data", "guestinfo.userdata"},
	} {
		spec := machine.ServerSpec{Name: tc.name, Mark: mark[:len(mark)-1] + machine.Mark(rune('0'+i)), Location: "dc-a", Shape: shape()}
		if _, err := prepared(t, f, spec, machine.Fit{UserData: []byte(tc.data), Format: tc.format}); err != nil {
			t.Fatal(err)
		}
		values := c.guestinfo(t, tc.name)
		if got := decoded(t, values, tc.key); got != tc.data {
			t.Errorf("%s: %q arrives as %q", tc.name, tc.data, got)
		}
		if _, there := values[tc.other]; there {
			t.Errorf("%s: %s is set as well", tc.name, tc.other)
		}
		if decoded(t, values, "guestinfo.metadata") == "" {
			t.Errorf("%s: no metadata", tc.name)
		}
	}
}

// VS-V17, VS-V18, VS-V19, VS-V20, VS-B27: the metadata of a place name the server by its mark and the guest by its place, with
// a default route and a wait for the family that has an address.
func TestMetadataOfAPlace(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	f := newFleet(t, c, s)
	place := &slot.Slot{HostName: "demo-1", Location: "dc-a", NICs: []slot.NIC{
		{Network: "pg-node", Addresses: []string{"127.64.1.31/24"}, Gateway4: "127.64.1.1", DNS: []string{"127.64.0.53"}},
	}}
	spec := machine.ServerSpec{Name: "vm-of-demo-1", Mark: mark, Place: place, Location: "dc-a", Shape: shape()}
	server, err := prepared(t, f, spec, machine.Fit{UserData: []byte("#cloud-config\n")})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.Unmarshal([]byte(decoded(t, c.guestinfo(t, spec.Name), "guestinfo.metadata")), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"instance-id": string(mark), "local-hostname": "demo-1", "hostname": "demo-1",
		"wait-on-network": map[string]any{"ipv4": true, "ipv6": false},
		"network": map[string]any{"version": 2, "ethernets": map[string]any{"eth0": map[string]any{
			"match": map[string]any{"macaddress": server.NICs[0].MAC}, "set-name": "eth0", "wakeonlan": true, "dhcp4": false, "dhcp6": false,
			"addresses": []any{"127.64.1.31/24"}, "routes": []any{map[string]any{"to": "0.0.0.0/0", "via": "127.64.1.1"}},
			"nameservers": map[string]any{"addresses": []any{"127.64.0.53"}},
		}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the metadata are\n%v, want\n%v", got, want)
	}
}

// VS-V20b: what a guest has booted with is not written again, whatever the bootstrap data have become meanwhile.
func TestGuestDataStayAfterTheFirstStart(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	f := newFleet(t, c, s)
	spec := machine.ServerSpec{Name: "demo", Mark: mark, Location: "dc-a", Shape: shape()}
	server, err := prepared(t, f, spec, machine.Fit{UserData: []byte("#cloud-config\n# first\n")})
	if err != nil {
		t.Fatal(err)
	}
	op, err := s.PowerOn(t.Context(), server)
	if err := f.end(mark, op, err); err != nil {
		t.Fatal(err)
	}
	before := c.guestinfo(t, "demo")
	if server, err = s.LookupLive(t.Context(), machine.Identity{Mark: mark}); err != nil {
		t.Fatal(err)
	}
	_, err = s.Fit(t.Context(), server, machine.Fit{Spec: spec, UserData: []byte("#cloud-config\n# second\n")})
	refusal(t, err, machine.Refused, vsphere.ReasonNotOff, "demo", "only handed to a machine that is off")
	if !reflect.DeepEqual(c.guestinfo(t, "demo"), before) {
		t.Errorf("the data of a running guest changed")
	}
}

// VS-D41: Ignition cannot carry the disks of a slot, whatever the Secret says its format is; the reason is the published one,
// and the virtual machine gets nothing.
func TestIgnitionAndSlotDisks(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	f := newFleet(t, c, s)
	place := &slot.Slot{
		HostName: "demo-1", Location: "dc-a", NICs: []slot.NIC{{Network: "pg-node", Addresses: []string{"127.64.1.31/24"}}},
		Disks: []slot.Disk{{Name: "var-lib-kubelet", SizeGiB: 5, MountPath: "/var/lib/kubelet", Filesystem: "xfs", Ephemeral: true}},
	}
	spec := machine.ServerSpec{Name: "demo", Mark: mark, Place: place, Location: "dc-a", Shape: shape()}
	const ignition = `{"ignition":{"version":"3.4.0"}}`
	server, err := prepared(t, f, spec, machine.Fit{UserData: []byte(ignition), Format: "ignition"})
	refusal(t, err, machine.Refused, guest.ReasonContentInvalid, "Ignition", "1 disks", "cloud-config")
	_, err = s.Fit(t.Context(), server, machine.Fit{Spec: spec, UserData: []byte(ignition), Format: "cloud-config"})
	refusal(t, err, machine.Refused, guest.ReasonContentInvalid, "is not a cloud-config")
	for key := range c.guestinfo(t, "demo") {
		if key == "guestinfo.userdata" || key == "guestinfo.ignition.config.data" {
			t.Errorf("%s is set", key)
		}
	}
}
