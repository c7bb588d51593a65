package rules_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/rules"
)

// newPool is a valid pool of two slots, w-1 and w-2.
func newPool() *v1beta1.VSphereMachineConfigPool {
	return &v1beta1.VSphereMachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "workers"},
		Spec: v1beta1.VSphereMachineConfigPoolSpec{
			ClusterRef: corev1.ObjectReference{APIVersion: "cluster.x-k8s.io/v1beta1", Kind: "Cluster", Name: "demo"},
			Datacenter: "dc-a",
			Configs:    []v1beta1.VSphereMachineConfig{newSlot("w-1", "192.0.2.31/24"), newSlot("w-2", "192.0.2.32/24")},
		},
	}
}

func newSlot(name, ip string) v1beta1.VSphereMachineConfig {
	return v1beta1.VSphereMachineConfig{
		Hostname: name,
		Network: &v1beta1.MachineConfigNetwork{Primary: v1beta1.MachineConfigNetworkDevice{
			NetworkName: "pg-node", IP: ip, Gateway: "192.0.2.1", DNS: []string{"192.0.2.53"},
		}},
		PersistentDisks: []v1beta1.PersistentDisk{
			{Name: "var-cpaas", SizeGiB: 100, MountPath: "/var/cpaas", FSFormat: v1beta1.Ext4, UnitNumber: ptr.To[int32](2)},
			{Name: "app-data", SizeGiB: 50},
		},
		EphemeralDisks: []v1beta1.EphemeralDisk{{Name: "var-lib-kubelet", SizeGiB: 50, MountPath: "/var/lib/kubelet", FSFormat: v1beta1.XFS}},
	}
}

// inState is a pool whose first slot is in a state.
func inState(state v1beta1.ConfigState) *v1beta1.VSphereMachineConfigPool {
	p := newPool()
	p.Status.ConfigStatuses = []v1beta1.VSphereMachineConfigStatus{
		{Hostname: "w-1", State: state, MachineRef: &corev1.ObjectReference{Kind: "VSphereMachine", Name: "m-1"}},
		{Hostname: "w-2", State: v1beta1.ConfigStateAvailable},
	}
	return p
}

// expectation of a verdict: nothing, or an error or warning at a path with a text.
type expectation struct {
	kind          field.ErrorType
	path, text    string
	warning       string
	alsoNoWarning bool
}

func refused(kind field.ErrorType, path, text string) expectation {
	return expectation{kind: kind, path: path, text: text}
}

func warned(text string) expectation { return expectation{warning: text} }

var accepted = expectation{alsoNoWarning: true}

func (e expectation) check(t *testing.T, v rules.Verdict) {
	t.Helper()
	g := NewWithT(t)
	if e.kind == "" {
		g.Expect(v.Errors).To(BeEmpty())
		if e.warning != "" {
			g.Expect(v.Warnings).To(ContainElement(ContainSubstring(e.warning)))
		}
		if e.alsoNoWarning {
			g.Expect(v.Warnings).To(BeEmpty())
		}
		return
	}
	g.Expect(v.Errors).NotTo(BeEmpty(), "nothing was refused; warnings: %v", v.Warnings)
	for _, err := range v.Errors {
		if err.Type == e.kind && err.Field == e.path && strings.Contains(err.Error(), e.text) {
			return
		}
	}
	t.Errorf("no %s at %s with %q among:\n%v", e.kind, e.path, e.text, v.Errors)
}

type poolCase struct {
	id, name string
	edit     func(*v1beta1.VSphereMachineConfigPool)
	world    rules.VSpherePoolWorld
	want     expectation
}

func TestVSpherePoolOnItsOwn(t *testing.T) {
	const slot = "spec.configs[0]"
	first := func(edit func(*v1beta1.VSphereMachineConfig)) func(*v1beta1.VSphereMachineConfigPool) {
		return func(p *v1beta1.VSphereMachineConfigPool) { edit(&p.Spec.Configs[0]) }
	}
	primary := func(edit func(*v1beta1.MachineConfigNetworkDevice)) func(*v1beta1.VSphereMachineConfigPool) {
		return first(func(s *v1beta1.VSphereMachineConfig) { edit(&s.Network.Primary) })
	}
	disk := func(edit func(*v1beta1.PersistentDisk)) func(*v1beta1.VSphereMachineConfigPool) {
		return first(func(s *v1beta1.VSphereMachineConfig) { edit(&s.PersistentDisks[0]) })
	}
	raw := func(edit func(*v1beta1.PersistentDisk)) func(*v1beta1.VSphereMachineConfigPool) {
		return first(func(s *v1beta1.VSphereMachineConfig) { edit(&s.PersistentDisks[1]) })
	}
	mount := func(path string) func(*v1beta1.VSphereMachineConfigPool) {
		return disk(func(d *v1beta1.PersistentDisk) { d.MountPath = path })
	}
	endpoint := rules.VSpherePoolWorld{Cluster: &rules.Cluster{Name: "demo", Endpoint: "192.0.2.31"}}

	for _, c := range []poolCase{
		{"VS-R21", "a complete pool", func(*v1beta1.VSphereMachineConfigPool) {}, rules.VSpherePoolWorld{}, accepted},
		{"VS-R22", "the layout without ephemeral disks", func(p *v1beta1.VSphereMachineConfigPool) {
			for i := range p.Spec.Configs {
				p.Spec.Configs[i].EphemeralDisks = nil
			}
		}, rules.VSpherePoolWorld{}, accepted},

		{"VS-W1", "no cluster", func(p *v1beta1.VSphereMachineConfigPool) { p.Spec.ClusterRef.Name = "" }, rules.VSpherePoolWorld{}, refused(field.ErrorTypeRequired, "spec.clusterRef.name", "must be set")},
		{"VS-W2", "group of the cluster", func(p *v1beta1.VSphereMachineConfigPool) { p.Spec.ClusterRef.APIVersion = "example.com/v1" }, rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, "spec.clusterRef.apiVersion", "cluster.x-k8s.io")},
		{"VS-W2", "any version of the cluster", func(p *v1beta1.VSphereMachineConfigPool) { p.Spec.ClusterRef.APIVersion = "cluster.x-k8s.io/v1beta2" }, rules.VSpherePoolWorld{}, accepted},
		{"VS-W3", "kind of the cluster", func(p *v1beta1.VSphereMachineConfigPool) { p.Spec.ClusterRef.Kind = "VSphereCluster" }, rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, "spec.clusterRef.kind", "must be Cluster")},
		{"VS-W4", "namespace of the cluster", func(p *v1beta1.VSphereMachineConfigPool) { p.Spec.ClusterRef.Namespace = "elsewhere" }, rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, "spec.clusterRef.namespace", "must match pool namespace ns")},
		{"VS-W6", "no slots", func(p *v1beta1.VSphereMachineConfigPool) { p.Spec.Configs = nil }, rules.VSpherePoolWorld{}, refused(field.ErrorTypeRequired, "spec.configs", "at least one")},
		{"VS-W7", "no host name", first(func(s *v1beta1.VSphereMachineConfig) { s.Hostname = "" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeRequired, slot+".hostname", "host name")},
		{"VS-W7", "upper case", first(func(s *v1beta1.VSphereMachineConfig) { s.Hostname = "W-1" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".hostname", "lower")},
		{"VS-W7", "an address as the host name", first(func(s *v1beta1.VSphereMachineConfig) { s.Hostname = "192.0.2.31" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".hostname", "an address and not a name")},
		{"decision D9", "a label of 64 characters", first(func(s *v1beta1.VSphereMachineConfig) { s.Hostname = strings.Repeat("w", 64) + ".example" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".hostname", "label")},
		{"decision D9", "two slots with one short name", func(p *v1beta1.VSphereMachineConfigPool) {
			p.Spec.Configs[0].Hostname, p.Spec.Configs[1].Hostname = "w.a.example", "w.b.example"
		}, rules.VSpherePoolWorld{}, refused(field.ErrorTypeDuplicate, "spec.configs[1].hostname", "short name")},
		{"VS-W8", "a host name twice", func(p *v1beta1.VSphereMachineConfigPool) { p.Spec.Configs[1].Hostname = "w-1" }, rules.VSpherePoolWorld{}, refused(field.ErrorTypeDuplicate, "spec.configs[1].hostname", "slot w-1 of this pool (spec.configs[0])")},
		{"VS-W10", "no network", first(func(s *v1beta1.VSphereMachineConfig) { s.Network = nil }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeRequired, slot+".network", "network.primary")},
		{"VS-W10", "no network name", primary(func(d *v1beta1.MachineConfigNetworkDevice) { d.NetworkName = "" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeRequired, slot+".network.primary.networkName", "port group")},
		{"VS-W10", "no name of a further network", first(func(s *v1beta1.VSphereMachineConfig) {
			s.Network.Additional = []v1beta1.MachineConfigNetworkDevice{{}}
		}), rules.VSpherePoolWorld{}, refused(field.ErrorTypeRequired, slot+".network.additional[0].networkName", "port group")},
		{"VS-W11", "an address twice, with different prefix lengths", func(p *v1beta1.VSphereMachineConfigPool) { p.Spec.Configs[1].Network.Primary.IP = "192.0.2.31/25" }, rules.VSpherePoolWorld{}, refused(field.ErrorTypeDuplicate, "spec.configs[1].network.primary.ip", "192.0.2.31")},
		{"VS-W12", "no prefix length", primary(func(d *v1beta1.MachineConfigNetworkDevice) { d.IP = "192.0.2.31" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".network.primary.ip", `"192.0.2.31/24"`)},
		{"VS-W12", "the other family", primary(func(d *v1beta1.MachineConfigNetworkDevice) { d.IP = "2001:db8::1/64" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".network.primary.ip", "IPv4")},
		{"VS-W12", "gateway elsewhere", primary(func(d *v1beta1.MachineConfigNetworkDevice) { d.Gateway = "198.51.100.1" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".network.primary.gateway", "outside 192.0.2.0/24")},
		{"VS-W12", "gateway of the other family", primary(func(d *v1beta1.MachineConfigNetworkDevice) { d.Gateway = "2001:db8::1" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".network.primary.gateway", "IPv4")},
		{"VS-W12", "gateway without address", primary(func(d *v1beta1.MachineConfigNetworkDevice) { d.IP = "" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".network.primary.gateway", "DHCP")},
		{"VS-W12", "DHCP", primary(func(d *v1beta1.MachineConfigNetworkDevice) { d.IP, d.Gateway = "", "" }), rules.VSpherePoolWorld{}, accepted},
		{"VS-W12", "name server by name", primary(func(d *v1beta1.MachineConfigNetworkDevice) { d.DNS = []string{"dns.example"} }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".network.primary.dns[0]", "IP address")},
		{"VS-W12", "an IPv6 gateway by its link-local address", primary(func(d *v1beta1.MachineConfigNetworkDevice) { d.IPv6, d.IPv6Gateway = "2001:db8::31/64", "fe80::1" }), rules.VSpherePoolWorld{}, accepted},
		{"decision D10", "the network's own address", primary(func(d *v1beta1.MachineConfigNetworkDevice) { d.IP = "192.0.2.0/24" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".network.primary.ip", "the network's own address")},
		{"decision D10", "broadcast", primary(func(d *v1beta1.MachineConfigNetworkDevice) { d.IP = "192.0.2.63/26" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".network.primary.ip", "broadcast")},
		{"decision D10", "the gateway's address", primary(func(d *v1beta1.MachineConfigNetworkDevice) { d.IP = "192.0.2.1/24" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".network.primary.ip", "gateway")},
		{"decision D10", "the gateway of another slot", func(p *v1beta1.VSphereMachineConfigPool) {
			p.Spec.Configs[1].Network.Primary.IP, p.Spec.Configs[1].Network.Primary.Gateway = "192.0.2.1/24", ""
		}, rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, "spec.configs[1].network.primary.ip", "slot w-2 cannot have it, it is the gateway that slot w-1")},
		{"decision D10", "a gateway that is another slot's address", func(p *v1beta1.VSphereMachineConfigPool) {
			p.Spec.Configs[0].Network.Primary.Gateway = ""
			p.Spec.Configs[1].Network.Primary.Gateway = "192.0.2.31"
		}, rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, "spec.configs[1].network.primary.gateway", "it is the address of slot w-1")},
		{"VS-R49", "a default route by each of two interfaces", first(func(s *v1beta1.VSphereMachineConfig) {
			s.Network.Additional = []v1beta1.MachineConfigNetworkDevice{{NetworkName: "pg-stor", IP: "198.51.100.31/24", Gateway: "198.51.100.1"}}
		}), rules.VSpherePoolWorld{}, warned("one default route")},
		{"VS-R62", "a cluster with the name of the management cluster", func(p *v1beta1.VSphereMachineConfigPool) { p.Spec.ClusterRef.Name = "global-a" }, rules.VSpherePoolWorld{}, warned("must not be named global")},
		{"VS-R62", "a cluster with a similar name", func(p *v1beta1.VSphereMachineConfigPool) { p.Spec.ClusterRef.Name = "globally" }, rules.VSpherePoolWorld{}, accepted},
		{"VS-R28", "no grace period", func(p *v1beta1.VSphereMachineConfigPool) { p.Spec.ReleaseDelayHours = ptr.To(0) }, rules.VSpherePoolWorld{}, warned("deleted as soon as")},
		{"decision D10", "the control plane endpoint", func(*v1beta1.VSphereMachineConfigPool) {}, endpoint, refused(field.ErrorTypeInvalid, slot+".network.primary.ip", "control plane endpoint")},
		{"decision D10", "a further interface in the same network", first(func(s *v1beta1.VSphereMachineConfig) {
			s.Network.Additional = []v1beta1.MachineConfigNetworkDevice{{NetworkName: "pg-node", IP: "192.0.2.32/24"}}
		}), rules.VSpherePoolWorld{}, refused(field.ErrorTypeDuplicate, "spec.configs[1].network.primary.ip", "slot w-1")},
		{"decision D10", "a further interface with the same address in another network", first(func(s *v1beta1.VSphereMachineConfig) {
			s.Network.Additional = []v1beta1.MachineConfigNetworkDevice{{NetworkName: "pg-stor", IP: "192.0.2.32/24"}}
		}), rules.VSpherePoolWorld{}, accepted},
		{"decision D10", "both interfaces of a slot", first(func(s *v1beta1.VSphereMachineConfig) {
			s.Network.Additional = []v1beta1.MachineConfigNetworkDevice{{NetworkName: "pg-node", IP: "192.0.2.31/24"}}
		}), rules.VSpherePoolWorld{}, refused(field.ErrorTypeDuplicate, slot+".network.additional[0].ip", "another interface")},

		{"VS-W13", "no disk name", disk(func(d *v1beta1.PersistentDisk) { d.Name = "" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeRequired, slot+".persistentDisks[0].name", "disk")},
		{"VS-W13", "a disk name in both lists", first(func(s *v1beta1.VSphereMachineConfig) { s.EphemeralDisks[0].Name = "var-cpaas" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeDuplicate, slot+".ephemeralDisks[0].name", "var-cpaas")},
		{"VS-W14", "no size", disk(func(d *v1beta1.PersistentDisk) { d.SizeGiB = 0 }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".persistentDisks[0].sizeGiB", "at least 1")},
		{"VS-W15", "unit too large", disk(func(d *v1beta1.PersistentDisk) { d.UnitNumber = ptr.To[int32](16) }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".persistentDisks[0].unitNumber", "between 0 and 15")},
		{"VS-W15", "the controller's unit", disk(func(d *v1beta1.PersistentDisk) { d.UnitNumber = ptr.To[int32](7) }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".persistentDisks[0].unitNumber", "controller")},
		{"VS-W15", "a unit twice", raw(func(d *v1beta1.PersistentDisk) { d.UnitNumber = ptr.To[int32](2) }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeDuplicate, slot+".persistentDisks[1].unitNumber", "var-cpaas")},
		{"VS-W16", "a relative mount path", mount("var/cpaas"), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".persistentDisks[0].mountPath", "absolute")},
		{"VS-W16", "a tab in a mount path", mount("/var/\tcpaas"), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".persistentDisks[0].mountPath", "tabs")},
		{"VS-W16", "the root", mount("//"), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".persistentDisks[0].mountPath", "system disk")},
		{"VS-W16", "dots", mount("/var/../etc"), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".persistentDisks[0].mountPath", `"/etc"`)},
		{"VS-W16", "a mount path in both lists", mount("/var/lib/kubelet/"), rules.VSpherePoolWorld{}, refused(field.ErrorTypeDuplicate, slot+".ephemeralDisks[0].mountPath", "var-cpaas")},
		{"decision D11", "below a path of the system", mount("/run/data"), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".persistentDisks[0].mountPath", "/run")},
		{"decision D11", "a trailing slash", mount("/var/cpaas/"), rules.VSpherePoolWorld{}, expectation{}},
		{"VS-W17", "another file system", disk(func(d *v1beta1.PersistentDisk) { d.FSFormat = "btrfs" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeNotSupported, slot+".persistentDisks[0].fsFormat", `"ext4", "xfs"`)},
		{"VS-W18", "mount path without file system", disk(func(d *v1beta1.PersistentDisk) { d.FSFormat = "" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".persistentDisks[0].fsFormat", "raw disk")},
		{"VS-W18", "file system without mount path", mount(""), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".persistentDisks[0].mountPath", "raw disk")},
		{"VS-W18", "mount options on a raw disk", raw(func(d *v1beta1.PersistentDisk) { d.MountOptions = []string{"noatime"} }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".persistentDisks[1].mountOptions", "raw disk")},
		{"decision V5", "wipe on a raw disk", raw(func(d *v1beta1.PersistentDisk) { d.WipeFilesystem = ptr.To(true) }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot+".persistentDisks[1].wipeFilesystem", "raw disk")},
		{"decision V5", "no wipe and no options on a raw disk", raw(func(d *v1beta1.PersistentDisk) { d.WipeFilesystem, d.MountOptions = ptr.To(false), []string{} }), rules.VSpherePoolWorld{}, accepted},
		{"decision V2", "more disks than controllers take", first(func(s *v1beta1.VSphereMachineConfig) {
			s.PersistentDisks = nil
			for i := range 29 {
				s.PersistentDisks = append(s.PersistentDisks, v1beta1.PersistentDisk{Name: "d" + string(rune('a'+i%26)) + string(rune('a'+i/26)), SizeGiB: 1})
			}
		}), rules.VSpherePoolWorld{}, refused(field.ErrorTypeInvalid, slot, "slot w-1 declares 30 disks")},
		{"VS-W26", "a layout of its own", first(func(s *v1beta1.VSphereMachineConfig) { s.PersistentDisks = s.PersistentDisks[:1] }), rules.VSpherePoolWorld{}, warned("same layout")},
	} {
		t.Run(c.id+" "+c.name, func(t *testing.T) {
			pool := newPool()
			c.edit(pool)
			c.want.check(t, rules.VSphereMachineConfigPool(nil, pool, c.world))
		})
	}
}

func TestVSpherePoolUpdate(t *testing.T) {
	const slot = "spec.configs[0]"
	first := func(edit func(*v1beta1.VSphereMachineConfig)) func(*v1beta1.VSphereMachineConfigPool) {
		return func(p *v1beta1.VSphereMachineConfigPool) { edit(&p.Spec.Configs[0]) }
	}
	disk := func(edit func(*v1beta1.PersistentDisk)) func(*v1beta1.VSphereMachineConfigPool) {
		return first(func(s *v1beta1.VSphereMachineConfig) { edit(&s.PersistentDisks[0]) })
	}
	cases := []poolCase{
		{"VS-R11", "the slot is removed", func(p *v1beta1.VSphereMachineConfigPool) { p.Spec.Configs = p.Spec.Configs[1:] }, rules.VSpherePoolWorld{}, refused(field.ErrorTypeForbidden, "spec.configs", "slot w-1 cannot be removed")},
		{"VS-W19", "the slot is renamed", first(func(s *v1beta1.VSphereMachineConfig) { s.Hostname = "w-9" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeForbidden, "spec.configs", "slot w-1 cannot be removed or renamed")},
		{"VS-R12", "the address changes", first(func(s *v1beta1.VSphereMachineConfig) { s.Network.Primary.IP = "192.0.2.99/24" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeForbidden, slot+".network.primary.ip", `from "192.0.2.31/24" to "192.0.2.99/24"`)},
		{"VS-W20", "an IPv6 address is added", first(func(s *v1beta1.VSphereMachineConfig) { s.Network.Primary.IPv6 = "2001:db8::31/64" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeForbidden, slot+".network.primary.ipv6", `from ""`)},
		{"VS-R13", "a persistent disk is removed", first(func(s *v1beta1.VSphereMachineConfig) { s.PersistentDisks = s.PersistentDisks[:1] }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeForbidden, slot+".persistentDisks", `"app-data" of slot w-1`)},
		{"VS-W21", "a persistent disk becomes ephemeral", first(func(s *v1beta1.VSphereMachineConfig) {
			s.PersistentDisks = s.PersistentDisks[:1]
			s.EphemeralDisks = append(s.EphemeralDisks, v1beta1.EphemeralDisk{Name: "app-data", SizeGiB: 50})
		}), rules.VSpherePoolWorld{}, refused(field.ErrorTypeForbidden, slot+".persistentDisks", "cannot be removed")},
		{"VS-R14", "a disk grows", disk(func(d *v1beta1.PersistentDisk) { d.SizeGiB = 200 }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeForbidden, slot+".persistentDisks[0].sizeGiB", "from 100 to 200")},
		{"VS-W22", "a mount path changes", disk(func(d *v1beta1.PersistentDisk) { d.MountPath = "/var/other" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeForbidden, slot+".persistentDisks[0].mountPath", `from "/var/cpaas" to "/var/other"`)},
		{"VS-W22", "a mount path is written in another way", disk(func(d *v1beta1.PersistentDisk) { d.MountPath = "/var//cpaas/" }), rules.VSpherePoolWorld{}, accepted},
		{"VS-W23", "a unit changes", disk(func(d *v1beta1.PersistentDisk) { d.UnitNumber = ptr.To[int32](3) }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeForbidden, slot+".persistentDisks[0].unitNumber", "from 2 to 3")},
		{"VS-W23", "a unit is filled in", first(func(s *v1beta1.VSphereMachineConfig) { s.PersistentDisks[1].UnitNumber = ptr.To[int32](4) }), rules.VSpherePoolWorld{}, accepted},
		{"VS-W24", "the datacenter changes", first(func(s *v1beta1.VSphereMachineConfig) { s.Datacenter = "dc-b" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeForbidden, slot+".datacenter", `from "dc-a" to "dc-b"`)},
		{"VS-W24", "the pool's datacenter changes", func(p *v1beta1.VSphereMachineConfigPool) { p.Spec.Datacenter = "dc-b" }, rules.VSpherePoolWorld{}, refused(field.ErrorTypeForbidden, slot+".datacenter", `from "dc-a" to "dc-b"`)},
		{"VS-W24", "a disk's datastore changes", disk(func(d *v1beta1.PersistentDisk) { d.Datastore = "ds-2" }), rules.VSpherePoolWorld{}, refused(field.ErrorTypeForbidden, slot+".persistentDisks[0].datastore", `to "ds-2"`)},
		{"VS-W24", "a file system changes", disk(func(d *v1beta1.PersistentDisk) { d.FSFormat = v1beta1.XFS }), rules.VSpherePoolWorld{}, warned("keeps its file system")},
		{"VS-W24", "an ephemeral disk goes", first(func(s *v1beta1.VSphereMachineConfig) { s.EphemeralDisks = nil }), rules.VSpherePoolWorld{}, warned("goes away when its machine is replaced")},
		{"VS-R16", "a disk is added", first(func(s *v1beta1.VSphereMachineConfig) {
			s.PersistentDisks = append(s.PersistentDisks, v1beta1.PersistentDisk{Name: "more", SizeGiB: 1})
		}), rules.VSpherePoolWorld{}, warned(`disk "more" will be created when its machine is replaced`)},
		{"VS-W25", "an ephemeral disk is added", first(func(s *v1beta1.VSphereMachineConfig) {
			s.EphemeralDisks = append(s.EphemeralDisks, v1beta1.EphemeralDisk{Name: "more", SizeGiB: 1})
		}), rules.VSpherePoolWorld{}, warned(`disk "more" will be created`)},
		{"VS-R13", "wipeFilesystem is switched on", disk(func(d *v1beta1.PersistentDisk) { d.WipeFilesystem = ptr.To(true) }), rules.VSpherePoolWorld{}, warned(`disk "var-cpaas" will be emptied`)},
		{"VS-W24", "mount options change", disk(func(d *v1beta1.PersistentDisk) { d.MountOptions = []string{"noatime"} }), rules.VSpherePoolWorld{}, warned("take effect when its machine is replaced")},
		{"VS-W24", "an ephemeral disk grows", first(func(s *v1beta1.VSphereMachineConfig) { s.EphemeralDisks[0].SizeGiB++ }), rules.VSpherePoolWorld{}, warned(`the change of ephemeral disk "var-lib-kubelet" takes effect`)},
		{"VS-R50", "an empty list of further interfaces is none", first(func(s *v1beta1.VSphereMachineConfig) {
			s.Network.Additional = []v1beta1.MachineConfigNetworkDevice{}
		}), rules.VSpherePoolWorld{}, accepted},
		{"VS-R49", "a further interface", first(func(s *v1beta1.VSphereMachineConfig) {
			s.Network.Additional = []v1beta1.MachineConfigNetworkDevice{{NetworkName: "pg-stor", IP: "198.51.100.31/24"}}
		}), rules.VSpherePoolWorld{}, warned("takes effect when its machine is replaced")},
		{"VS-A13", "name servers change", first(func(s *v1beta1.VSphereMachineConfig) { s.Network.Primary.DNS = nil }), rules.VSpherePoolWorld{}, warned("takes effect when its machine is replaced")},
	}
	for _, state := range []v1beta1.ConfigState{v1beta1.ConfigStateInUse, v1beta1.ConfigStateReleased} {
		for _, c := range cases {
			t.Run(c.id+" "+string(state)+": "+c.name, func(t *testing.T) {
				old, pool := inState(state), inState(state)
				c.edit(pool)
				c.want.check(t, rules.VSphereMachineConfigPool(old, pool, c.world))
			})
		}
	}

	t.Run("VS-D50 an available slot may change in any way", func(t *testing.T) {
		for _, c := range cases {
			old, pool := inState(v1beta1.ConfigStateAvailable), inState(v1beta1.ConfigStateAvailable)
			c.edit(pool)
			expectation{}.check(t, rules.VSphereMachineConfigPool(old, pool, c.world))
		}
	})

	t.Run("VS-R17 one wrong edit of an allocated slot is one sentence", func(t *testing.T) {
		for name, edit := range map[string]func(*v1beta1.VSphereMachineConfig){
			"an address without prefix length": func(s *v1beta1.VSphereMachineConfig) { s.Network.Primary.IP = "192.0.2.99" },
			"no address":                       func(s *v1beta1.VSphereMachineConfig) { s.Network.Primary.IP = "" },
			"the address of another slot":      func(s *v1beta1.VSphereMachineConfig) { s.Network.Primary.IP = "192.0.2.32/24" },
			"another network": func(s *v1beta1.VSphereMachineConfig) {
				s.Network.Primary.IP, s.Network.Primary.Gateway = "198.51.100.9/24", "198.51.100.1"
			},
			"a size of nothing":             func(s *v1beta1.VSphereMachineConfig) { s.PersistentDisks[0].SizeGiB = 0 },
			"a mount path that is relative": func(s *v1beta1.VSphereMachineConfig) { s.PersistentDisks[0].MountPath = "data" },
			"the mount path of another disk": func(s *v1beta1.VSphereMachineConfig) {
				s.PersistentDisks[0].MountPath = "/var/lib/kubelet"
			},
			"a disk that becomes raw": func(s *v1beta1.VSphereMachineConfig) {
				s.PersistentDisks[0].MountPath, s.PersistentDisks[0].FSFormat = "", ""
			},
			"the controller's unit": func(s *v1beta1.VSphereMachineConfig) { s.PersistentDisks[0].UnitNumber = ptr.To[int32](7) },
		} {
			old, pool := inState(v1beta1.ConfigStateInUse), inState(v1beta1.ConfigStateInUse)
			edit(&pool.Spec.Configs[0])
			v := rules.VSphereMachineConfigPool(old, pool, rules.VSpherePoolWorld{})
			NewWithT(t).Expect(v.Errors).To(HaveLen(1), name)
			NewWithT(t).Expect(v.Errors[0].Type).To(Equal(field.ErrorTypeForbidden), name)
		}
	})
	t.Run("the states of the new object count for nothing", func(t *testing.T) {
		old, pool := inState(v1beta1.ConfigStateInUse), inState(v1beta1.ConfigStateAvailable)
		pool.Spec.Configs = pool.Spec.Configs[1:]
		refused(field.ErrorTypeForbidden, "spec.configs", "InUse").check(t, rules.VSphereMachineConfigPool(old, pool, rules.VSpherePoolWorld{}))
	})
	t.Run("decision D17: without slot states every slot of a pool that we know counts as allocated", func(t *testing.T) {
		old, pool := newPool(), newPool()
		old.Finalizers = []string{v1beta1.MachineConfigPoolFinalizer}
		pool.Spec.Configs[0].PersistentDisks[0].SizeGiB++
		refused(field.ErrorTypeForbidden, slot+".persistentDisks[0].sizeGiB", "unknown state").check(t, rules.VSphereMachineConfigPool(old, pool, rules.VSpherePoolWorld{}))
	})
	t.Run("VS-R17 a slot in use is emptied by scaling in: a machine that is only deleted has a successor there", func(t *testing.T) {
		old, pool := inState(v1beta1.ConfigStateInUse), inState(v1beta1.ConfigStateInUse)
		pool.Spec.Configs = pool.Spec.Configs[1:]
		refused(field.ErrorTypeForbidden, "spec.configs", "cluster.x-k8s.io/delete-machine and scale in").check(t, rules.VSphereMachineConfigPool(old, pool, rules.VSpherePoolWorld{}))
	})
	t.Run("a quarantined slot is protected", func(t *testing.T) {
		old, pool := inState(v1beta1.ConfigStateAvailable), newPool()
		old.Status.ConfigStatuses[0].Quarantine = "two virtual machines hold its disk"
		pool.Spec.Configs = pool.Spec.Configs[1:]
		refused(field.ErrorTypeForbidden, "spec.configs", v1beta1.ReleaseQuarantinedAnnotation).check(t, rules.VSphereMachineConfigPool(old, pool, rules.VSpherePoolWorld{}))
	})

	t.Run("VS-R15 a new slot is accepted whatever the others are", func(t *testing.T) {
		for _, state := range []v1beta1.ConfigState{v1beta1.ConfigStateInUse, v1beta1.ConfigStateReleased, v1beta1.ConfigStateAvailable} {
			old, pool := inState(state), inState(state)
			pool.Spec.Configs = append(pool.Spec.Configs, newSlot("w-3", "192.0.2.33/24"))
			accepted.check(t, rules.VSphereMachineConfigPool(old, pool, rules.VSpherePoolWorld{}))
		}
	})
	t.Run("VS-R15 an old slot that would be refused today does not block a new one", func(t *testing.T) {
		old, pool := inState(v1beta1.ConfigStateInUse), inState(v1beta1.ConfigStateInUse)
		for _, p := range []*v1beta1.VSphereMachineConfigPool{old, pool} {
			p.Spec.Configs[0].Network.Primary.Gateway = "198.51.100.1"
		}
		pool.Spec.Configs = append(pool.Spec.Configs, newSlot("w-3", "192.0.2.33/24"))
		warned("outside 192.0.2.0/24").check(t, rules.VSphereMachineConfigPool(old, pool, rules.VSpherePoolWorld{}))
	})
	t.Run("VS-R48 the grace period may change at any time", func(t *testing.T) {
		old, pool := inState(v1beta1.ConfigStateInUse), inState(v1beta1.ConfigStateInUse)
		pool.Spec.ReleaseDelayHours = ptr.To(48)
		accepted.check(t, rules.VSphereMachineConfigPool(old, pool, rules.VSpherePoolWorld{}))
		pool.Spec.ReleaseDelayHours = ptr.To(0)
		warned("scaling in by mistake costs their data").check(t, rules.VSphereMachineConfigPool(old, pool, rules.VSpherePoolWorld{}))
		pool.Spec.ReleaseDelayHours = ptr.To(-1)
		refused(field.ErrorTypeInvalid, "spec.releaseDelayHours", "0").check(t, rules.VSphereMachineConfigPool(old, pool, rules.VSpherePoolWorld{}))
	})

	t.Run("VS-W5 the cluster of a pool in use", func(t *testing.T) {
		old, pool := newPool(), newPool()
		old.Status.ConsumerRef = &corev1.ObjectReference{Kind: "MachineDeployment", Namespace: "ns", Name: "md"}
		pool.Spec.ClusterRef.Name = "other"
		refused(field.ErrorTypeForbidden, "spec.clusterRef", "while consumerRef is set").check(t, rules.VSphereMachineConfigPool(old, pool, rules.VSpherePoolWorld{}))
		pool.Spec.ClusterRef = old.Spec.ClusterRef
		pool.Spec.ClusterRef.APIVersion, pool.Spec.ClusterRef.Namespace = "cluster.x-k8s.io/v1beta2", "ns"
		accepted.check(t, rules.VSphereMachineConfigPool(old, pool, rules.VSpherePoolWorld{}))
	})

	t.Run("VS-W28 finalizers, labels and deletion are nobody's business here", func(t *testing.T) {
		broken := newPool()
		broken.Spec.Configs = nil
		relabelled := broken.DeepCopy()
		relabelled.Labels = map[string]string{"a": "b"}
		accepted.check(t, rules.VSphereMachineConfigPool(broken, relabelled, rules.VSpherePoolWorld{}))
		deleted := inState(v1beta1.ConfigStateInUse)
		deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		deleted.Spec.Configs = nil
		accepted.check(t, rules.VSphereMachineConfigPool(inState(v1beta1.ConfigStateInUse), deleted, rules.VSpherePoolWorld{}))
	})
}

func TestVSpherePoolDelete(t *testing.T) {
	t.Run("VS-W27 a pool in use", func(t *testing.T) {
		refused(field.ErrorTypeForbidden, "status.configStatuses", "1 slot(s) are still in use: w-1 (VSphereMachine m-1)").check(t, rules.VSphereMachineConfigPoolDelete(inState(v1beta1.ConfigStateInUse)))
	})
	t.Run("VS-D52 released slots do not keep a pool", func(t *testing.T) {
		accepted.check(t, rules.VSphereMachineConfigPoolDelete(inState(v1beta1.ConfigStateReleased)))
		moved := inState(v1beta1.ConfigStateInUse)
		moved.Annotations = map[string]string{v1beta1.DeleteForMoveAnnotation: ""}
		accepted.check(t, rules.VSphereMachineConfigPoolDelete(moved))
	})
	t.Run("decision D22: a vacated slot has no virtual machine left", func(t *testing.T) {
		pool := inState(v1beta1.ConfigStateInUse)
		pool.Status.ConfigStatuses[0].VacatedTime = &metav1.Time{Time: time.Unix(1, 0)}
		accepted.check(t, rules.VSphereMachineConfigPoolDelete(pool))
	})
	t.Run("decision D17: a pool that lost its status", func(t *testing.T) {
		pool := newPool()
		accepted.check(t, rules.VSphereMachineConfigPoolDelete(pool))
		pool.Finalizers = []string{v1beta1.MachineConfigPoolFinalizer}
		refused(field.ErrorTypeForbidden, "status.configStatuses", "is being rebuilt, try again").check(t, rules.VSphereMachineConfigPoolDelete(pool))
		pool.Spec.Configs = nil
		accepted.check(t, rules.VSphereMachineConfigPoolDelete(pool))
	})
}

func TestVSpherePoolAmongOthers(t *testing.T) {
	other := func(cluster string, slots ...v1beta1.VSphereMachineConfig) v1beta1.VSphereMachineConfigPool {
		p := newPool()
		p.Name, p.Spec.ClusterRef.Name, p.Spec.Configs = "control-plane", cluster, slots
		return *p
	}
	world := func(pools ...v1beta1.VSphereMachineConfigPool) rules.VSpherePoolWorld {
		return rules.VSpherePoolWorld{Pools: append(pools, *newPool())}
	}
	for _, c := range []struct {
		id, name string
		world    rules.VSpherePoolWorld
		want     expectation
	}{
		{"VS-W9", "a host name of another pool", world(other("demo", newSlot("w-2", "192.0.2.99/24"))), refused(field.ErrorTypeDuplicate, "spec.configs[1].hostname", "pool ns/control-plane")},
		{"VS-W11", "an address of another pool", world(other("demo", newSlot("c-1", "192.0.2.32/24"))), refused(field.ErrorTypeDuplicate, "spec.configs[1].network.primary.ip", "pool ns/control-plane")},
		{"decision D9", "a short name of another pool", world(other("demo", newSlot("w-2.example", "192.0.2.99/24"))), refused(field.ErrorTypeDuplicate, "spec.configs[1].hostname", "short name")},
		{"VS-W9", "a pool of another cluster", world(other("stage", newSlot("w-2", "192.0.2.32/24"))), accepted},
	} {
		t.Run(c.id+" "+c.name, func(t *testing.T) {
			c.want.check(t, rules.VSphereMachineConfigPool(nil, newPool(), c.world))
		})
	}
}
