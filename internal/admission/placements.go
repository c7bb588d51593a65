package admission

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/rules"
)

// infrastructure is the VSphereCluster of a Cluster, nil if it does not exist or is another provider's.
func (w World) infrastructure(ctx context.Context, c *clusterv1.Cluster) (*v1beta1.VSphereCluster, error) {
	if c.Spec.InfrastructureRef.Kind != "VSphereCluster" {
		return nil, nil
	}
	var infra v1beta1.VSphereCluster
	key := client.ObjectKey{Namespace: c.Namespace, Name: c.Spec.InfrastructureRef.Name}
	if err := w.Reader.Get(ctx, key, &infra); err != nil {
		return nil, absent(err, "reading VSphereCluster %s", key)
	}
	return &infra, nil
}

// placements are the failure domains that the machines of an owner may go to: the one it names, or, for a control plane, those that
// the VSphereCluster offers.
func (w World) placements(ctx context.Context, c *rules.Consumer) ([]rules.VSpherePlacement, error) {
	var zones []string
	switch {
	case c.FailureDomain != "":
		zones = []string{c.FailureDomain}
	case c.Kind == rules.KindKubeadmControlPlane && c.Cluster != "":
		var cluster clusterv1.Cluster
		key := client.ObjectKey{Namespace: c.Namespace, Name: c.Cluster}
		if err := w.Reader.Get(ctx, key, &cluster); err != nil {
			return nil, absent(err, "reading Cluster %s", key)
		}
		infra, err := w.infrastructure(ctx, &cluster)
		if infra == nil || err != nil {
			return nil, err
		}
		for _, d := range infra.Status.FailureDomains {
			if d.ControlPlane != nil && *d.ControlPlane {
				zones = append(zones, d.Name)
			}
		}
	}
	var out []rules.VSpherePlacement
	for _, name := range zones {
		p := rules.VSpherePlacement{Zone: name}
		var zone v1beta1.VSphereDeploymentZone
		err := w.Reader.Get(ctx, client.ObjectKey{Name: name}, &zone)
		if absent(err, "") != nil {
			return nil, fmt.Errorf("reading VSphereDeploymentZone %s: %w", name, err)
		}
		if err == nil && zone.Spec.FailureDomain != "" {
			var domain v1beta1.VSphereFailureDomain
			err := w.Reader.Get(ctx, client.ObjectKey{Name: zone.Spec.FailureDomain}, &domain)
			if absent(err, "") != nil {
				return nil, fmt.Errorf("reading VSphereFailureDomain %s: %w", zone.Spec.FailureDomain, err)
			}
			if err == nil {
				p.Domain = &domain
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// LivingMachine names the Machine that owns a VSphereMachine and is not being deleted, "" if there is none.
func (w World) LivingMachine(ctx context.Context, m *v1beta1.VSphereMachine) (string, error) {
	for _, ref := range m.OwnerReferences {
		if ref.Kind != "Machine" {
			continue
		}
		var owner clusterv1.Machine
		key := client.ObjectKey{Namespace: m.Namespace, Name: ref.Name}
		if err := w.Reader.Get(ctx, key, &owner); err != nil {
			return "", absent(err, "reading Machine %s", key)
		}
		if owner.UID == ref.UID && owner.DeletionTimestamp.IsZero() {
			return owner.Name, nil
		}
	}
	return "", nil
}
