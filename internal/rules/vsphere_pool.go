package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
)

// clusterGroup is the API group of a Cluster; its version is nobody's business.
const clusterGroup = "cluster.x-k8s.io"

// VSpherePoolWorld is what the rules for a pool look at beside the pool.
type VSpherePoolWorld struct {
	// Cluster that the pool names, nil if it does not exist.
	Cluster *Cluster
	// Pools of the namespace; the pool itself may be among them.
	Pools []v1beta1.VSphereMachineConfigPool
	// Users are the owners of machines that get their places from this pool, with the template they use now.
	Users []VSphereUser
}

// VSphereUser is a KubeadmControlPlane or MachineDeployment with its machine template.
type VSphereUser struct {
	Consumer
	// Template that it names, nil if it does not exist.
	Template *v1beta1.VSphereMachineTemplate
	// Placements are the failure domains that its machines may go to.
	Placements []VSpherePlacement
}

// VSphereMachineConfigPool judges a new pool (old is nil) or a changed one.
func VSphereMachineConfigPool(old, pool *v1beta1.VSphereMachineConfigPool, w VSpherePoolWorld) Verdict {
	var v Verdict
	if pool.DeletionTimestamp != nil || (old != nil && equality.Semantic.DeepEqual(old.Spec, pool.Spec)) {
		return v // never in the way of a finalizer, a label or a deletion
	}
	if old != nil {
		// What is forbidden is said once, and the rest is judged as if that had been left alone.
		v.Merge(allocatedSlots(old, pool))
		pool = restored(old, pool)
	}
	v.Merge(poolClusterRef(old, pool, w))

	configs := field.NewPath("spec", "configs")
	if len(pool.Spec.Configs) == 0 {
		v.refuse(field.Required(configs, "a pool needs at least one slot; list a place for each machine"))
	}
	v.Merge(releaseDelay(old, pool))

	before := slotsByName(old)
	endpoint := ""
	if w.Cluster != nil {
		endpoint = w.Cluster.Endpoint
	}
	var places []place
	for i := range pool.Spec.Configs {
		slot, path := &pool.Spec.Configs[i], configs.Index(i)
		was, existed := before[slot.Hostname]
		untouched := existed && equality.Semantic.DeepEqual(was, slot)
		one, addresses := poolSlot(path, slot, endpoint)
		v.add(untouched, one.Errors)
		v.Warnings = append(v.Warnings, one.Warnings...)
		places = append(places, place{path: path, slot: slot, untouched: untouched, addresses: addresses})
	}
	v.Merge(uniquePlaces(pool, places, w.Pools))
	v.Merge(poolLayout(old, pool))
	v.Merge(poolSize(old, pool))
	v.Merge(poolUsers(pool, w))
	return v
}

// releaseDelay checks the grace period of released slots.
func releaseDelay(old, pool *v1beta1.VSphereMachineConfigPool) Verdict {
	var v Verdict
	h, path := pool.Spec.ReleaseDelayHours, field.NewPath("spec", "releaseDelayHours")
	switch {
	case h == nil:
	case *h < 0:
		v.refuse(field.Invalid(path, *h, "must be 0 (the disks of a released slot are deleted at once) or more; leave it out for 24"))
	case *h == 0 && (old == nil || old.Spec.ReleaseDelayHours == nil || *old.Spec.ReleaseDelayHours != 0):
		v.warn(path, "0 leaves no time to think again: the persistent disks of a slot are deleted as soon as its machine is gone for good, and scaling in by mistake costs their data; leave it out for 24")
	}
	return v
}

// VSphereMachineConfigPoolDelete judges the deletion of a pool.
func VSphereMachineConfigPoolDelete(pool *v1beta1.VSphereMachineConfigPool) Verdict {
	var v Verdict
	if movedAway(pool) {
		return v
	}
	var held []string
	if len(pool.Status.ConfigStatuses) == 0 { // decision D17: what is not known counts as in use
		for i := range pool.Spec.Configs {
			if why := allocation(pool, pool.Spec.Configs[i].Hostname); why != "" {
				v.refuse(field.Forbidden(field.NewPath("status", "configStatuses"), fmt.Sprintf(
					"cannot delete pool while its %d slot(s) are %s", len(pool.Spec.Configs), why)))
				return v
			}
		}
	}
	for _, s := range pool.Status.ConfigStatuses {
		if s.State == v1beta1.ConfigStateInUse && s.VacatedTime == nil {
			by := s.Hostname
			if s.MachineRef != nil && s.MachineRef.Name != "" {
				by += " (VSphereMachine " + s.MachineRef.Name + ")"
			}
			held = append(held, by)
		}
	}
	if len(held) > 0 {
		slices.Sort(held)
		v.refuse(field.Forbidden(field.NewPath("status", "configStatuses"), fmt.Sprintf(
			"cannot delete pool while %d slot(s) are still in use: %s; delete or scale down their owner first", len(held), strings.Join(held, ", "))))
	}
	return v
}

func poolClusterRef(old, pool *v1beta1.VSphereMachineConfigPool, w VSpherePoolWorld) Verdict {
	var v Verdict
	ref, path := pool.Spec.ClusterRef, field.NewPath("spec", "clusterRef")
	if ref.Name == "" {
		v.refuse(field.Required(path.Child("name"), "must be set to the name of the Cluster that the pool belongs to"))
	}
	if ref.APIVersion != "" {
		if groupOf(ref.APIVersion) != clusterGroup {
			v.refuse(field.Invalid(path.Child("apiVersion"), ref.APIVersion, "must be of the group cluster.x-k8s.io, such as cluster.x-k8s.io/v1beta2, or be left out"))
		}
	}
	if ref.Kind != "Cluster" {
		v.refuse(field.Invalid(path.Child("kind"), ref.Kind, "must be Cluster; the infrastructure cluster is found through it"))
	}
	if ref.Namespace != "" && ref.Namespace != pool.Namespace {
		v.refuse(field.Invalid(path.Child("namespace"), ref.Namespace, fmt.Sprintf("must match pool namespace %s, where its Cluster and machines live; correct it or leave it out", pool.Namespace)))
	}
	if old == nil {
		v.Merge(clusterName(path.Child("name"), ref.Name))
	}
	if old != nil && !sameClusterRef(old, pool) && old.Status.ConsumerRef != nil {
		c := old.Status.ConsumerRef
		v.refuse(field.Forbidden(path, fmt.Sprintf("cannot change clusterRef while consumerRef is set: from %s to %s, and %s %s/%s uses the pool; delete that first, or make a pool of another name",
			old.Spec.ClusterRef.Name, ref.Name, c.Kind, c.Namespace, c.Name)))
	}
	return v
}

// clusterName warns about names that belong to the cluster that manages the others.
func clusterName(path *field.Path, name string) Verdict {
	var v Verdict
	if name == managementCluster || strings.HasPrefix(name, managementCluster+"-") {
		v.warn(path, "%q is a name for the management cluster itself: a workload cluster must not be named %s, or start with %s-; choose another name unless this is that cluster", name, managementCluster, managementCluster)
	}
	return v
}

// managementCluster is what the cluster that runs Berth is called where it manages itself.
const managementCluster = "global"

// sameClusterRef compares what a reference means: versions and an empty namespace make no difference.
func sameClusterRef(a, b *v1beta1.VSphereMachineConfigPool) bool {
	return a.Spec.ClusterRef.Name == b.Spec.ClusterRef.Name &&
		cmp.Or(a.Spec.ClusterRef.Namespace, a.Namespace) == cmp.Or(b.Spec.ClusterRef.Namespace, b.Namespace)
}

func slotsByName(pool *v1beta1.VSphereMachineConfigPool) map[string]*v1beta1.VSphereMachineConfig {
	out := map[string]*v1beta1.VSphereMachineConfig{}
	if pool == nil {
		return out
	}
	for i := range pool.Spec.Configs {
		out[pool.Spec.Configs[i].Hostname] = &pool.Spec.Configs[i]
	}
	return out
}

// poolSlot checks one slot on its own, and returns its addresses.
func poolSlot(path *field.Path, slot *v1beta1.VSphereMachineConfig, endpoint string) (Verdict, []placedAddress) {
	var v Verdict
	v.Errors = append(v.Errors, HostName(path.Child("hostname"), slot.Hostname)...)
	v.Merge(SlotDisks(path, slot.Hostname, slotDisks(path, slot)))
	if slot.Network == nil {
		v.refuse(field.Required(path.Child("network"), fmt.Sprintf("slot %s needs network.primary with a networkName", slot.Hostname)))
		return v, nil
	}
	network, addresses := slotNetwork(path, slot, endpoint)
	for _, err := range network.Errors {
		if !strings.Contains(err.Detail, "slot "+slot.Hostname) {
			err.Detail = fmt.Sprintf("slot %s: %s", slot.Hostname, err.Detail)
		}
	}
	v.Merge(network)
	return v, addresses
}

// slotNetwork checks the interfaces of a slot.
func slotNetwork(path *field.Path, slot *v1beta1.VSphereMachineConfig, endpoint string) (Verdict, []placedAddress) {
	var v Verdict
	var addresses []placedAddress
	routes := map[Family]*field.Path{}
	for i, nic := range slotNICs(path, slot) {
		d := nic.device
		if d.NetworkName == "" {
			v.refuse(field.Required(nic.path.Child("networkName"), fmt.Sprintf("slot %s needs the name of the network or port group that this interface is connected to", slot.Hostname)))
		}
		for _, a := range []struct {
			field, value, gatewayField, gateway string
			family                              Family
		}{
			{"ip", d.IP, "gateway", d.Gateway, IPv4},
			{"ipv6", d.IPv6, "ipv6Gateway", d.IPv6Gateway, IPv6},
		} {
			gateway := nic.path.Child(a.gatewayField)
			addr, errs := Address(nic.path.Child(a.field), a.value, gateway, a.gateway, a.family, endpoint)
			v.Errors = append(v.Errors, errs...)
			if a.gateway != "" {
				if first := routes[a.family]; first != nil {
					v.warn(gateway, "slot %s has a gateway at %s already: a machine uses one default route for each family, and which one is not sure; keep the gateway of one interface", slot.Hostname, first)
				} else {
					routes[a.family] = gateway
				}
			}
			if !addr.IsValid() {
				continue
			}
			placed := placedAddress{path: nic.path.Child(a.field), addr: addr, network: d.NetworkName, primary: i == 0}
			if gw, err := netip.ParseAddr(a.gateway); err == nil {
				placed.gateway, placed.gatewayPath = gw, gateway
			}
			addresses = append(addresses, placed)
		}
		v.Errors = append(v.Errors, NameServers(nic.path.Child("dns"), d.DNS)...)
	}
	return v, addresses
}

type slotNIC struct {
	path   *field.Path
	device *v1beta1.MachineConfigNetworkDevice
}

func slotNICs(path *field.Path, slot *v1beta1.VSphereMachineConfig) []slotNIC {
	if slot.Network == nil {
		return nil
	}
	network := path.Child("network")
	nics := []slotNIC{{network.Child("primary"), &slot.Network.Primary}}
	for i := range slot.Network.Additional {
		nics = append(nics, slotNIC{network.Child("additional").Index(i), &slot.Network.Additional[i]})
	}
	return nics
}

func slotDisks(path *field.Path, slot *v1beta1.VSphereMachineConfig) []SlotDisk {
	var disks []SlotDisk
	for i, d := range slot.PersistentDisks {
		disks = append(disks, SlotDisk{
			Path: path.Child("persistentDisks").Index(i), Name: d.Name, SizeGiB: d.SizeGiB, Unit: d.UnitNumber,
			MountPath: d.MountPath, FSFormat: string(d.FSFormat), MountOptions: d.MountOptions,
			WipeFilesystem: d.WipeFilesystem != nil && *d.WipeFilesystem,
		})
	}
	for i, d := range slot.EphemeralDisks {
		disks = append(disks, SlotDisk{
			Path: path.Child("ephemeralDisks").Index(i), Name: d.Name, SizeGiB: d.SizeGiB, Ephemeral: true,
			MountPath: d.MountPath, FSFormat: string(d.FSFormat), MountOptions: d.MountOptions,
		})
	}
	return disks
}
