package vsphere

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/slot"
)

// VS-V50: whatever a vCenter says its version is, it is read or reported, and never a crash.
func TestVersionsWithModules(t *testing.T) {
	g := NewWithT(t)
	for version, reason := range map[string]string{
		"": infrav1.MissingVCenterVersionReason, "unknown": infrav1.MissingVCenterVersionReason, ".": infrav1.MissingVCenterVersionReason,
		"6.7.0": infrav1.VCenterVersionIncompatibleReason, "7.0.3": "", "8": "", "10.1": "",
	} {
		got, message := modulesIn(version)
		g.Expect(got).To(Equal(reason), version)
		g.Expect(message == "").To(Equal(reason == ""), version)
	}
	rapid.Check(t, func(t *rapid.T) { modulesIn(rapid.String().Draw(t, "version")) })
}

// 3.3: what a host is called becomes a value that every label takes; names that fit stay as they are.
func TestHostLabelValue(t *testing.T) {
	g := NewWithT(t)
	g.Expect(labelValue("esx-1.example.com")).To(Equal("esx-1.example.com"))
	g.Expect(labelValue("fd00::1:2")).To(Equal("fd00--1-2"))
	g.Expect(labelValue("::1")).To(Equal("1"))
	long := "esx-1." + strings.Repeat("a", 40) + "." + strings.Repeat("b", 40)
	g.Expect(labelValue(long)).To(Equal("esx-1." + strings.Repeat("a", 40)))
	g.Expect(labelValue(strings.Repeat("x", 80))).To(Equal(strings.Repeat("x", 63)))
	rapid.Check(t, func(t *rapid.T) {
		host := rapid.String().Draw(t, "host")
		if errs := validation.IsValidLabelValue(labelValue(host)); len(errs) > 0 {
			t.Fatalf("%q becomes %q: %v", host, labelValue(host), errs)
		}
	})
}

// VS-V45: the credentials of a cluster that selects the zone come before those of any other.
func TestWhoLendsCredentials(t *testing.T) {
	g := NewWithT(t)
	zone := &infrav1.VSphereDeploymentZone{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"of": "demo"}}}
	cluster := func(selector *metav1.LabelSelector) *infrav1.VSphereCluster {
		return &infrav1.VSphereCluster{Spec: infrav1.VSphereClusterSpec{FailureDomainSelector: selector}}
	}
	g.Expect(lends(cluster(&metav1.LabelSelector{MatchLabels: map[string]string{"of": "demo"}}), zone)).To(BeZero())
	g.Expect(lends(cluster(&metav1.LabelSelector{}), zone)).To(BeZero())
	g.Expect(lends(cluster(&metav1.LabelSelector{MatchLabels: map[string]string{"of": "other"}}), zone)).To(Equal(1))
	g.Expect(lends(cluster(nil), zone)).To(Equal(1))
}

// 2.4: what a failure domain says of its networks reaches the devices, and a slot's address and DNS servers win over it.
func TestNetworkConfigurations(t *testing.T) {
	g := NewWithT(t)
	in := newPlacement(infrav1.VSphereDeploymentZone{}, infrav1.VSphereFailureDomain{Spec: infrav1.VSphereFailureDomainSpec{Topology: infrav1.Topology{
		Datacenter: "dc-a", ComputeCluster: ptr.To("cl-a"),
		NetworkConfigurations: []infrav1.NetworkConfiguration{
			{NetworkName: "pg-node", DHCP4: ptr.To(true), DHCP6: ptr.To(true), Nameservers: []string{"192.0.2.53"}, SearchDomains: []string{"a.example"}},
			{NetworkName: "pg-stor", DHCP4: ptr.To(true), Nameservers: []string{"192.0.2.54"}},
		},
	}}})
	m := &infrav1.VSphereMachine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	m.Spec.Network.Devices = []infrav1.NetworkDeviceSpec{{NetworkName: "a"}, {NetworkName: "b"}}
	place := &slot.Slot{HostName: "w-1", NICs: []slot.NIC{
		{Network: "pg-node", Addresses: []string{"192.0.2.31/24"}, Gateway4: "192.0.2.1", DNS: []string{"192.0.2.1"}}, {Network: "pg-stor"},
	}}
	vm, err := buildVM(m, nil, place, in)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(vm.Spec.ResourcePool).To(Equal("cl-a"), "nobody names a resource pool: that of the failure domain's compute cluster")
	first, second := vm.Spec.Network.Devices[0], vm.Spec.Network.Devices[1]
	g.Expect(first.NetworkName).To(Equal("pg-node"))
	g.Expect(first.DHCP4).To(BeFalse(), "the slot has an address")
	g.Expect(first.DHCP6).To(BeTrue())
	g.Expect(first.Nameservers).To(Equal([]string{"192.0.2.1"}))
	g.Expect(first.SearchDomains).To(Equal([]string{"a.example"}))
	g.Expect(second.NetworkName).To(Equal("pg-stor"))
	g.Expect(second.DHCP4).To(BeTrue())
	g.Expect(second.Nameservers).To(Equal([]string{"192.0.2.54"}))
}
