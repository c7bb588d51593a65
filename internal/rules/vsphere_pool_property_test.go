package rules_test

import (
	"fmt"
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/rules"
)

// randomSlot is a valid slot of host number n.
func randomSlot(t *rapid.T, n int) v1beta1.VSphereMachineConfig {
	slot := newSlot(fmt.Sprintf("w-%d", n), fmt.Sprintf("192.0.2.%d/24", 10+n))
	slot.PersistentDisks = nil
	for i := range rapid.IntRange(0, 3).Draw(t, "disks") {
		d := v1beta1.PersistentDisk{Name: fmt.Sprintf("d%d", i), SizeGiB: rapid.Int32Range(1, 9).Draw(t, "size")}
		if rapid.Bool().Draw(t, "mounted") {
			d.MountPath, d.FSFormat = fmt.Sprintf("/data/%d", i), v1beta1.Ext4
		}
		slot.PersistentDisks = append(slot.PersistentDisks, d)
	}
	return slot
}

// edits are what a tired person may do to a slot.
var edits = []func(*rapid.T, *v1beta1.VSphereMachineConfig){
	func(*rapid.T, *v1beta1.VSphereMachineConfig) {},
	func(t *rapid.T, s *v1beta1.VSphereMachineConfig) {
		s.Hostname = fmt.Sprintf("x-%d", rapid.IntRange(0, 99).Draw(t, "name"))
	},
	func(t *rapid.T, s *v1beta1.VSphereMachineConfig) {
		s.Network.Primary.IP = fmt.Sprintf("192.0.2.%d/24", rapid.IntRange(100, 200).Draw(t, "ip"))
	},
	func(_ *rapid.T, s *v1beta1.VSphereMachineConfig) { s.Network.Primary.IPv6 = "2001:db8::1/64" },
	func(_ *rapid.T, s *v1beta1.VSphereMachineConfig) { s.Datacenter = "dc-b" },
	func(_ *rapid.T, s *v1beta1.VSphereMachineConfig) { s.Network.Primary.DNS = nil },
	func(t *rapid.T, s *v1beta1.VSphereMachineConfig) {
		s.PersistentDisks = append(s.PersistentDisks, v1beta1.PersistentDisk{Name: "new", SizeGiB: 1})
	},
	func(t *rapid.T, s *v1beta1.VSphereMachineConfig) {
		if n := len(s.PersistentDisks); n > 0 {
			i := rapid.IntRange(0, n-1).Draw(t, "disk")
			s.PersistentDisks = append(s.PersistentDisks[:i:i], s.PersistentDisks[i+1:]...)
		}
	},
	func(t *rapid.T, s *v1beta1.VSphereMachineConfig) {
		if n := len(s.PersistentDisks); n > 0 {
			s.PersistentDisks[rapid.IntRange(0, n-1).Draw(t, "disk")].SizeGiB += 10
		}
	},
	func(t *rapid.T, s *v1beta1.VSphereMachineConfig) {
		if n := len(s.PersistentDisks); n > 0 {
			d := &s.PersistentDisks[rapid.IntRange(0, n-1).Draw(t, "disk")]
			d.MountPath, d.FSFormat = "/elsewhere", v1beta1.Ext4
		}
	},
	func(t *rapid.T, s *v1beta1.VSphereMachineConfig) {
		if n := len(s.PersistentDisks); n > 0 {
			s.PersistentDisks[rapid.IntRange(0, n-1).Draw(t, "disk")].Datastore = "ds-2"
		}
	},
}

// TestAllocatedSlotsNeverLoseAnything: whatever is edited and accepted, an allocated slot keeps its place, its addresses and
// its persistent disks (promise 2, VS-R11 to VS-R14).
func TestAllocatedSlotsNeverLoseAnything(t *testing.T) {
	states := []v1beta1.ConfigState{v1beta1.ConfigStateAvailable, v1beta1.ConfigStateInUse, v1beta1.ConfigStateReleased}
	rapid.Check(t, func(t *rapid.T) {
		old := newPool()
		old.Spec.Configs = nil
		allocated := map[string]bool{}
		for i := range rapid.IntRange(1, 4).Draw(t, "slots") {
			slot := randomSlot(t, i)
			state := rapid.SampledFrom(states).Draw(t, "state")
			allocated[slot.Hostname] = state != v1beta1.ConfigStateAvailable
			old.Spec.Configs = append(old.Spec.Configs, slot)
			old.Status.ConfigStatuses = append(old.Status.ConfigStatuses, v1beta1.VSphereMachineConfigStatus{Hostname: slot.Hostname, State: state})
		}
		edited := old.DeepCopy()
		for range rapid.IntRange(1, 3).Draw(t, "edits") {
			if len(edited.Spec.Configs) > 1 && rapid.IntRange(0, 4).Draw(t, "remove") == 0 {
				i := rapid.IntRange(0, len(edited.Spec.Configs)-1).Draw(t, "which")
				edited.Spec.Configs = append(edited.Spec.Configs[:i:i], edited.Spec.Configs[i+1:]...)
				continue
			}
			slot := &edited.Spec.Configs[rapid.IntRange(0, len(edited.Spec.Configs)-1).Draw(t, "which")]
			rapid.SampledFrom(edits).Draw(t, "edit")(t, slot)
		}
		v := rules.VSphereMachineConfigPool(old, edited, rules.VSpherePoolWorld{})
		if v.Refused() {
			return
		}
		now := map[string]v1beta1.VSphereMachineConfig{}
		for _, s := range edited.Spec.Configs {
			now[s.Hostname] = s
		}
		for _, was := range old.Spec.Configs {
			if allocated[was.Hostname] {
				keeps(t, was, now[was.Hostname])
			}
		}

		// VS-R15: a valid slot more is always accepted.
		grown := edited.DeepCopy()
		grown.Spec.Configs = append(grown.Spec.Configs, newSlot("one-more", "192.0.2.250/24"))
		edited.Status = old.Status
		if v := rules.VSphereMachineConfigPool(edited, grown, rules.VSpherePoolWorld{}); v.Refused() {
			t.Fatalf("a new slot was refused: %v", v.Errors)
		}
	})
}

func keeps(t *rapid.T, was, now v1beta1.VSphereMachineConfig) {
	if now.Hostname == "" {
		t.Fatalf("allocated slot %s was lost", was.Hostname)
	}
	if was.Network.Primary.IP != now.Network.Primary.IP || was.Network.Primary.IPv6 != now.Network.Primary.IPv6 || was.Datacenter != now.Datacenter {
		t.Fatalf("allocated slot %s has moved", was.Hostname)
	}
	disks := map[string]v1beta1.PersistentDisk{}
	for _, d := range now.PersistentDisks {
		disks[d.Name] = d
	}
	for _, d := range was.PersistentDisks {
		got, ok := disks[d.Name]
		if !ok || got.SizeGiB != d.SizeGiB || got.Datastore != d.Datastore || !rules.SamePath(got.MountPath, d.MountPath) {
			t.Fatalf("disk %s of allocated slot %s became %+v", d.Name, was.Hostname, got)
		}
	}
}

// TestAddressesOfHosts: what is accepted as an address can be a host's (decision D10), and what can be one is accepted.
func TestAddressesOfHosts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := netip.AddrFrom4([4]byte{10, byte(rapid.IntRange(0, 255).Draw(t, "b")), byte(rapid.IntRange(0, 255).Draw(t, "c")), byte(rapid.IntRange(0, 255).Draw(t, "d"))})
		prefix := netip.PrefixFrom(raw, rapid.IntRange(8, 32).Draw(t, "bits"))
		addr, errs := rules.Address(field.NewPath("ip"), prefix.String(), field.NewPath("gateway"), "", rules.IPv4, "")
		// The first and the last address of a network with at least four belong to no host.
		outside := func(a netip.Addr) bool { return !prefix.Masked().Contains(a) }
		edge := prefix.Bits() < 31 && (outside(raw.Prev()) || outside(raw.Next()))
		if edge != (len(errs) > 0) {
			t.Fatalf("%s: edge of its network is %t, errors are %v", prefix, edge, errs)
		}
		if addr != raw {
			t.Fatalf("%s was read as %s", prefix, addr)
		}
	})
}

// TestHostNamesThatAreAccepted fit a Node and a guest: no upper case, no label beyond 63 characters (decision D9).
func TestHostNamesThatAreAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-zA-Z0-9_.-]{1,80}`).Draw(t, "name")
		if len(rules.HostName(field.NewPath("hostname"), name)) > 0 {
			return
		}
		label := 0
		for _, r := range name {
			switch {
			case r == '.':
				label = 0
				continue
			case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			default:
				t.Fatalf("%q was accepted", name)
			}
			if label++; label > 63 {
				t.Fatalf("%q was accepted", name)
			}
		}
	})
}
