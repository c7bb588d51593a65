package rules_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/rules"
)

func TestVSphereCluster(t *testing.T) {
	sha1 := strings.TrimSuffix(strings.Repeat("aB:", 20), ":")
	sha256 := strings.TrimSuffix(strings.Repeat("0F:", 32), ":")
	for _, c := range []struct {
		id, name string
		edit     func(*v1beta1.VSphereClusterSpec)
		want     expectation
	}{
		{"VS-V44", "a SHA-1 thumbprint", func(s *v1beta1.VSphereClusterSpec) { s.Thumbprint = sha1 }, accepted},
		{"VS-V44", "a SHA-256 thumbprint", func(s *v1beta1.VSphereClusterSpec) { s.Thumbprint = sha256 }, accepted},
		{"VS-V44", "no thumbprint", func(*v1beta1.VSphereClusterSpec) {}, accepted},
		{"VS-V44", "a broken thumbprint", func(s *v1beta1.VSphereClusterSpec) { s.Thumbprint = sha1[:50] }, refused(field.ErrorTypeInvalid, "spec.thumbprint", "20 or 32 bytes")},
		{"VS-V44", "a URL as the server", func(s *v1beta1.VSphereClusterSpec) { s.Server = "https://vc.example/" }, refused(field.ErrorTypeInvalid, "spec.server", `write "vc.example"`)},
		{"VS-V44", "a path after the server", func(s *v1beta1.VSphereClusterSpec) { s.Server = "vc.example/sdk" }, refused(field.ErrorTypeInvalid, "spec.server", "nothing else")},
		{"VS-R62", "a workload cluster", func(s *v1beta1.VSphereClusterSpec) { s.ControlPlaneEndpoint.Port = 443 }, accepted},
		{"decision D10", "the address of a slot as the endpoint", func(s *v1beta1.VSphereClusterSpec) { s.ControlPlaneEndpoint.Host = "192.0.2.32" }, refused(field.ErrorTypeInvalid, "spec.controlPlaneEndpoint.host", "slot w-2 of pool ns/workers")},
	} {
		t.Run(c.id+" "+c.name, func(t *testing.T) {
			cluster := &v1beta1.VSphereCluster{Spec: v1beta1.VSphereClusterSpec{Server: "vc.example:8443", ControlPlaneEndpoint: v1beta1.APIEndpoint{Host: "192.0.2.10", Port: 6443}}}
			unchanged := cluster.DeepCopy()
			c.edit(&cluster.Spec)
			pools := []v1beta1.VSphereMachineConfigPool{*newPool()}
			c.want.check(t, rules.VSphereCluster(nil, cluster, pools))
			c.want.check(t, rules.VSphereCluster(unchanged, cluster, pools))
			accepted.check(t, rules.VSphereCluster(cluster.DeepCopy(), cluster, pools))
			cluster.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			accepted.check(t, rules.VSphereCluster(unchanged, cluster, pools))
		})
	}
}

func TestVSphereFailureDomain(t *testing.T) {
	newDomain := func() *v1beta1.VSphereFailureDomain {
		d := &v1beta1.VSphereFailureDomain{}
		d.Name = "fd-a"
		d.Spec.Region = v1beta1.FailureDomain{Name: "r", TagCategory: "k8s-region", Type: v1beta1.DatacenterFailureDomain}
		d.Spec.Zone = v1beta1.FailureDomain{Name: "z", TagCategory: "k8s-zone", Type: v1beta1.ComputeClusterFailureDomain}
		d.Spec.Topology = v1beta1.Topology{Datacenter: "dc-a", ComputeCluster: ptr.To("cl-a"), Networks: []string{"pg-node"}}
		return d
	}
	hosts := &v1beta1.FailureDomainHosts{VMGroupName: "vms", HostGroupName: "hosts"}
	for _, c := range []struct {
		name string
		edit func(*v1beta1.VSphereFailureDomainSpec)
		want expectation
	}{
		{"as it should be", func(*v1beta1.VSphereFailureDomainSpec) {}, accepted},
		{"a region of hosts", func(s *v1beta1.VSphereFailureDomainSpec) { s.Region.Type = v1beta1.HostGroupFailureDomain }, refused(field.ErrorTypeNotSupported, "spec.region.type", "Datacenter")},
		{"a zone of hosts without groups", func(s *v1beta1.VSphereFailureDomainSpec) { s.Zone.Type = v1beta1.HostGroupFailureDomain }, refused(field.ErrorTypeRequired, "spec.topology.hosts", "HostGroup")},
		{"groups without a cluster", func(s *v1beta1.VSphereFailureDomainSpec) {
			s.Topology.Hosts, s.Topology.ComputeCluster = hosts, nil
		}, refused(field.ErrorTypeRequired, "spec.topology.computeCluster", "compute cluster")},
		{"a zone that is a cluster, without its name", func(s *v1beta1.VSphereFailureDomainSpec) { s.Topology.ComputeCluster = nil }, refused(field.ErrorTypeRequired, "spec.topology.computeCluster", "zone")},
		{"networks in two ways", func(s *v1beta1.VSphereFailureDomainSpec) {
			s.Topology.NetworkConfigurations = []v1beta1.NetworkConfiguration{{NetworkName: "pg-node"}}
		}, refused(field.ErrorTypeForbidden, "spec.topology.networkConfigurations", "pg-node")},
		{"a network without a name", func(s *v1beta1.VSphereFailureDomainSpec) {
			s.Topology.Networks = nil
			s.Topology.NetworkConfigurations = []v1beta1.NetworkConfiguration{{}}
		}, refused(field.ErrorTypeRequired, "spec.topology.networkConfigurations[0].networkName", "port group")},
		{"an empty name among the networks", func(s *v1beta1.VSphereFailureDomainSpec) {
			s.Topology.Networks = []string{"pg-node", ""}
		}, refused(field.ErrorTypeRequired, "spec.topology.networks[1]", "port group")},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDomain()
			c.edit(&d.Spec)
			c.want.check(t, rules.VSphereFailureDomain(nil, d))
		})
	}
	t.Run("it never changes", func(t *testing.T) {
		d := newDomain()
		d.Spec.Topology.Datastore = "ds"
		refused(field.ErrorTypeForbidden, "spec.topology.datastore", `from "" to "ds": a failure domain cannot be modified`).check(t, rules.VSphereFailureDomain(newDomain(), d))
	})
}

func TestVSphereClusterTemplate(t *testing.T) {
	old, changed := &v1beta1.VSphereClusterTemplate{}, &v1beta1.VSphereClusterTemplate{}
	changed.Spec.Template.Spec.Server = "vc.example"
	accepted.check(t, rules.VSphereClusterTemplate(nil, changed))
	refused(field.ErrorTypeInvalid, "spec.template.spec.server", "field is immutable, create a new resource").check(t, rules.VSphereClusterTemplate(old, changed))
}

func TestDefaultDeploymentZone(t *testing.T) {
	g := NewWithT(t)
	var open v1beta1.VSphereDeploymentZoneSpec
	rules.DefaultVSphereDeploymentZone(&open)
	g.Expect(open.ControlPlane).To(HaveValue(BeTrue()))
	closed := v1beta1.VSphereDeploymentZoneSpec{ControlPlane: ptr.To(false)}
	rules.DefaultVSphereDeploymentZone(&closed)
	g.Expect(closed.ControlPlane).To(HaveValue(BeFalse()))
}
