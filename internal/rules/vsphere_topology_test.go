package rules_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/rules"
)

// domain is a placement in a datacenter with networks.
func domain(datacenter string, networks ...string) rules.VSpherePlacement {
	d := &v1beta1.VSphereFailureDomain{}
	d.Name = "fd-a"
	d.Spec.Topology = v1beta1.Topology{Datacenter: datacenter, Networks: networks}
	return rules.VSpherePlacement{Zone: "zone-a", Domain: d}
}

// TestFailureDomainsOfConsumers: slot, template and failure domain describe the same interfaces (VS-R43, VS-A19, VS-A20). What a
// new owner of machines names must fit; a changed one is told, because the change may be the way back (VS-R60).
func TestFailureDomainsOfConsumers(t *testing.T) {
	const path = "spec.template.spec.failureDomain"
	withConfigurations := domain("dc-a")
	withConfigurations.Domain.Spec.Topology.NetworkConfigurations = []v1beta1.NetworkConfiguration{{NetworkName: "pg-node"}, {NetworkName: "pg-stor"}}
	for _, c := range []struct {
		id, name string
		in       rules.VSpherePlacement
		want     expectation // of a new MachineDeployment
	}{
		{"VS-R43", "the same interfaces", domain("dc-a", "pg-node"), accepted},
		{"VS-R43", "no networks of its own", domain("dc-a"), accepted},
		{"VS-R43", "one network more", domain("dc-a", "pg-node", "pg-stor"), refused(field.ErrorTypeInvalid, path, "names 2 network(s) [pg-node pg-stor], template v1 has 1 device(s)")},
		{"VS-R49", "one network more, in the richer form", withConfigurations, refused(field.ErrorTypeInvalid, path, "names 2 network(s)")},
		{"VS-A19", "another primary network", domain("dc-a", "pg-b"), refused(field.ErrorTypeInvalid, path, `slot w-1 of pool ns/workers names network "pg-node" for interface 0 (0 is the primary), failure domain fd-a of zone zone-a names "pg-b"`)},
		{"VS-R53", "a datacenter without slots", domain("dc-b", "pg-b"), warned(`no slot of pool ns/workers is in datacenter "dc-b"`)},
		{"decision D2", "a zone that does not exist", rules.VSpherePlacement{Zone: "zone-a"}, warned("zone zone-a, or the VSphereFailureDomain that it names, does not exist")},
	} {
		t.Run(c.id+" "+c.name, func(t *testing.T) {
			for _, text := range []string{oldDeployment, newDeployment} {
				obj := object(t, text)
				if err := unstructured.SetNestedField(obj.Object, "zone-a", "spec", "template", "spec", "failureDomain"); err != nil {
					t.Fatal(err)
				}
				world := complete()
				world.Placements = []rules.VSpherePlacement{c.in}
				c.want.check(t, rules.VSphereConsumer(nil, consumer(t, obj), world))

				changed := c.want
				if changed.kind != "" {
					changed = warned(c.want.text)
				}
				before := obj.DeepCopy()
				if err := unstructured.SetNestedField(before.Object, "v0", "spec", "template", "spec", "infrastructureRef", "name"); err != nil {
					t.Fatal(err)
				}
				changed.check(t, rules.VSphereConsumer(consumer(t, before), consumer(t, obj), world))
			}
			// A control plane is spread over what there is, and nobody names a zone for it.
			world := complete()
			world.Placements = []rules.VSpherePlacement{c.in}
			want := c.want
			if want.kind != "" {
				want = warned(want.text)
			}
			want.check(t, rules.VSphereConsumer(nil, consumer(t, object(t, newControlPlane)), world))

			// The same is said when the pool comes second.
			if c.in.Domain == nil {
				return
			}
			user := rules.VSphereUser{Consumer: *consumer(t, object(t, newDeployment)), Template: newTemplate("v1", "workers"), Placements: world.Placements}
			want.check(t, rules.VSphereMachineConfigPool(nil, newPool(), rules.VSpherePoolWorld{Users: []rules.VSphereUser{user}}))
		})
	}
}

// TestFailureDomainOfAdditionalInterfaces: every interface is compared, as the controller does when it builds the machine (VS-A19,
// VS-R43); one that names no network takes the failure domain's.
func TestFailureDomainOfAdditionalInterfaces(t *testing.T) {
	for network, want := range map[string]expectation{
		"pg-stor": accepted,
		"":        accepted,
		"pg-c":    warned(`slot w-1 of pool ns/workers names network "pg-c" for interface 1 (0 is the primary), failure domain fd-a of zone zone-a names "pg-stor"`),
	} {
		world := complete()
		world.Template.Spec.Template.Spec.Network.Devices = []v1beta1.NetworkDeviceSpec{{NetworkName: "pg-node"}, {NetworkName: "pg-stor"}}
		for i := range world.Pool.Spec.Configs {
			world.Pool.Spec.Configs[i].Network.Additional = []v1beta1.MachineConfigNetworkDevice{{NetworkName: network}}
		}
		world.Placements = []rules.VSpherePlacement{domain("dc-a", "pg-node", "pg-stor")}
		want.check(t, rules.VSphereConsumer(nil, consumer(t, object(t, newDeployment)), world))
	}
}

// TestOneSentenceForABoundPool: an owner that a pool is bound to refers to it, too; that is one mistake and told once (VS-W33, VS-W34).
func TestOneSentenceForABoundPool(t *testing.T) {
	world := complete()
	world.Pool.Status.ConsumerRef = &corev1.ObjectReference{APIVersion: "cluster.x-k8s.io/v1beta1", Kind: "MachineDeployment", Namespace: "ns", Name: "md"}
	other := rules.VSphereUser{Consumer: *consumer(t, object(t, newDeployment)), Template: newTemplate("v7", "workers")}
	world.Others = []rules.VSphereUser{other}
	second := consumer(t, object(t, newDeployment))
	second.Name = "md-2"
	v := rules.VSphereConsumer(nil, second, world)
	if len(v.Errors) != 1 || !strings.Contains(v.Errors[0].Error(), "is bound to MachineDeployment ns/md") {
		t.Errorf("got %v, want one sentence about the bound pool", v.Errors)
	}
}

// TestDeletedMachines: a VSphereMachine deleted alone leaves its Machine behind.
func TestDeletedMachines(t *testing.T) {
	m := &v1beta1.VSphereMachine{}
	m.Namespace, m.Name = "ns", "m"
	warned("while its Machine demo-1 lives").check(t, rules.VSphereMachineDelete(m, "demo-1"))
	accepted.check(t, rules.VSphereMachineDelete(m, ""))
}
