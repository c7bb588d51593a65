package vsphere

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
)

// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get;list;watch

// claimAgain is when a machine that waits for addresses looks again although no event of a claim came.
const claimAgain = time.Minute

// claimedAddresses are what an interface has got from its pools of addresses, in their order.
type claimedAddresses struct {
	// cidrs are addresses with prefix length.
	cidrs              []string
	gateway4, gateway6 string
}

// onto lays claimed addresses over a device. Gateways that the device names itself stay.
func (c claimedAddresses) onto(d *infrav1.NetworkDeviceSpec) {
	d.IPAddrs = append(d.IPAddrs, c.cidrs...)
	if d.Gateway4 == "" {
		d.Gateway4 = c.gateway4
	}
	if d.Gateway6 == "" {
		d.Gateway6 = c.gateway6
	}
}

// claims is the state of all address claims of a VSphereVM.
type claims struct {
	// addresses by the index of the device.
	addresses map[int]claimedAddresses
	// reason and message say what is missing; empty when nothing is.
	reason, message string
}

// say sets the condition on the VSphereVM.
func (c *claims) say(vm *infrav1.VSphereVM) {
	switch {
	case c == nil:
	case c.reason == "":
		setCondition(vm, infrav1.IPAddressClaimedCondition, metav1.ConditionTrue, infrav1.SatisfiedReason, "")
	default:
		setCondition(vm, infrav1.IPAddressClaimedCondition, metav1.ConditionFalse, c.reason, c.message)
	}
}

// claimsAddresses says whether any device takes addresses from pools.
func claimsAddresses(vm *infrav1.VSphereVM) bool {
	return slices.ContainsFunc(vm.Spec.Network.Devices, func(d infrav1.NetworkDeviceSpec) bool { return len(d.AddressesFromPools) > 0 })
}

// claimName is deterministic, so that nothing is claimed twice, whatever is lost.
func claimName(vm string, device, pool int) string { return fmt.Sprintf("%s-%d-%d", vm, device, pool) }

// claimAddresses makes the claims of a VSphereVM that are missing, one for each pool of each device, and reads what the others
// were given. Claims carry the VSphereVM as their owner and a finalizer: an address is free again when the virtual machine is gone.
func claimAddresses(ctx context.Context, c client.Client, live client.Reader, vm *infrav1.VSphereVM) (*claims, error) {
	out := &claims{addresses: map[int]claimedAddresses{}}
	var made, waiting, bad, lost []string
	started := conditions.IsTrue(vm, infrav1.InitialPowerOnCompletedCondition)
	for i, device := range vm.Spec.Network.Devices {
		for n, pool := range device.AddressesFromPools {
			name := claimName(vm.Name, i, n)
			claim, err := findClaim(ctx, c, live, client.ObjectKey{Namespace: vm.Namespace, Name: name})
			switch {
			case err != nil:
				return nil, err
			case claim == nil && started:
				lost = append(lost, "IPAddressClaim "+name)
				continue
			case claim == nil:
				if err := makeClaim(ctx, c, vm, name, pool); err != nil {
					return nil, err
				}
				made = append(made, "IPAddressClaim "+name)
				continue
			case !ownsClaim(vm, claim):
				return nil, &machine.Error{
					Kind: machine.Conflict, Reason: infrav1.NameConflictReason,
					Message: fmt.Sprintf("IPAddressClaim %s/%s exists and does not belong to VSphereVM %s: wait for it to go, or change spec.namingStrategy so that names differ",
						vm.Namespace, name, vm.Name),
				}
			case claim.Status.AddressRef.Name == "":
				waiting = append(waiting, fmt.Sprintf("IPAddressClaim %s (%s %s)%s", name, pool.Kind, pool.Name, whyNot(claim)))
				continue
			}
			address, err := addressOf(ctx, c, live, claim)
			if err != nil {
				return nil, err
			}
			if problem := out.take(i, address, claim); problem != "" {
				bad = append(bad, problem)
			}
		}
	}
	switch {
	case len(bad) > 0:
		out.reason, out.message = infrav1.IPAddressInvalidReason, strings.Join(bad, "; ")
	case len(lost) > 0:
		out.reason = infrav1.IPAddressClaimNotFoundReason
		out.message = strings.Join(lost, ", ") + ": removed behind our back; the machine keeps its address, which may be given to another one: replace the Machine"
	case len(made) > 0:
		out.reason, out.message = infrav1.IPAddressClaimsBeingCreatedReason, strings.Join(made, ", ")+" was created; the provider of the addresses has to answer"
	case len(waiting) > 0:
		out.reason, out.message = infrav1.WaitingForIPAddressReason, "waiting for an address of "+strings.Join(waiting, ", ")
	}
	return out, nil
}

// whyNot repeats what the provider of the addresses says about a claim.
func whyNot(claim *ipamv1.IPAddressClaim) string {
	if c := conditions.Get(claim, ipamv1.IPAddressClaimReadyCondition); c != nil && c.Status != metav1.ConditionTrue {
		return fmt.Sprintf(": %s %s", c.Reason, c.Message)
	}
	return ""
}

// findClaim reads a claim, nil if there is none. Its absence from the cache proves nothing.
func findClaim(ctx context.Context, c client.Client, live client.Reader, key client.ObjectKey) (*ipamv1.IPAddressClaim, error) {
	claim := &ipamv1.IPAddressClaim{}
	err := c.Get(ctx, key, claim)
	if apierrors.IsNotFound(err) {
		err = live.Get(ctx, key, claim)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading IPAddressClaim %s: %w", key, err)
	}
	return claim, nil
}

func makeClaim(ctx context.Context, c client.Client, vm *infrav1.VSphereVM, name string, pool corev1.TypedLocalObjectReference) error {
	cluster := vm.Labels[clusterv1.ClusterNameLabel]
	claim := &ipamv1.IPAddressClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vm.Namespace, Name: name,
			Labels:          map[string]string{clusterv1.ClusterNameLabel: cluster},
			Finalizers:      []string{infrav1.IPAddressClaimFinalizer},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, infrav1.GroupVersion.WithKind("VSphereVM"))},
		},
		Spec: ipamv1.IPAddressClaimSpec{
			ClusterName: cluster,
			PoolRef:     ipamv1.IPPoolReference{Name: pool.Name, Kind: pool.Kind, APIGroup: ptr.Deref(pool.APIGroup, "")},
		},
	}
	if filter, set := vm.Labels[clusterv1.WatchLabel]; set {
		claim.Labels[clusterv1.WatchLabel] = filter
	}
	if err := c.Create(ctx, claim); err != nil {
		return fmt.Errorf("creating IPAddressClaim %s/%s: %w", vm.Namespace, name, err)
	}
	return nil
}

// ownsClaim goes by kind and name: UIDs change in a clusterctl move.
func ownsClaim(vm *infrav1.VSphereVM, claim *ipamv1.IPAddressClaim) bool {
	return slices.ContainsFunc(claim.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.Kind == "VSphereVM" && ref.Name == vm.Name
	})
}

// addressOf reads the address that a claim was given, nil if there is none of that name.
func addressOf(ctx context.Context, c client.Client, live client.Reader, claim *ipamv1.IPAddressClaim) (*ipamv1.IPAddress, error) {
	key := client.ObjectKey{Namespace: claim.Namespace, Name: claim.Status.AddressRef.Name}
	address := &ipamv1.IPAddress{}
	err := c.Get(ctx, key, address)
	if apierrors.IsNotFound(err) {
		err = live.Get(ctx, key, address)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading IPAddress %s: %w", key, err)
	}
	return address, nil
}

// take checks an address before a machine is built on it, and says what is wrong with it.
func (c *claims) take(device int, a *ipamv1.IPAddress, claim *ipamv1.IPAddressClaim) string {
	problem := func(format string, args ...any) string {
		return fmt.Sprintf("IPAddressClaim %s: IPAddress %s ", claim.Name, claim.Status.AddressRef.Name) + fmt.Sprintf(format, args...)
	}
	if a == nil {
		return problem("does not exist")
	}
	if a.Spec.ClaimRef.Name != claim.Name {
		return problem("was given to IPAddressClaim %s", a.Spec.ClaimRef.Name)
	}
	ip, err := netip.ParseAddr(a.Spec.Address)
	if err != nil {
		return problem("has spec.address %q, which is no address", a.Spec.Address)
	}
	prefix, err := ip.Prefix(int(ptr.Deref(a.Spec.Prefix, -1)))
	if err != nil {
		return problem("has spec.prefix %d, which does not fit %s", ptr.Deref(a.Spec.Prefix, -1), ip)
	}
	got := c.addresses[device]
	if a.Spec.Gateway != "" {
		gateway, err := netip.ParseAddr(a.Spec.Gateway)
		if err != nil || !prefix.Contains(gateway) {
			return problem("has spec.gateway %q, which is no address in %s", a.Spec.Gateway, prefix)
		}
		into := &got.gateway4
		if ip.Is6() {
			into = &got.gateway6
		}
		if *into != "" && *into != a.Spec.Gateway {
			return problem("has spec.gateway %s, and another pool of the same interface has %s: one interface has one default gateway of a family", a.Spec.Gateway, *into)
		}
		*into = a.Spec.Gateway
	}
	got.cidrs = append(got.cidrs, netip.PrefixFrom(ip, prefix.Bits()).String())
	c.addresses[device] = got
	return ""
}

// releaseClaims gives the addresses of a VSphereVM back: its virtual machine is proven gone. The claims are found by their owner,
// so that none is left when the VSphereVM has been removed by force.
func releaseClaims(ctx context.Context, c client.Client, live client.Reader, namespace, cluster, vm string) error {
	list := &ipamv1.IPAddressClaimList{}
	if err := live.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster}); err != nil {
		return fmt.Errorf("listing IPAddressClaims: %w", err)
	}
	owner := &infrav1.VSphereVM{}
	owner.Name = vm
	for i := range list.Items {
		claim := &list.Items[i]
		if !ownsClaim(owner, claim) || !controllerutil.ContainsFinalizer(claim, infrav1.IPAddressClaimFinalizer) {
			continue
		}
		if claim.DeletionTimestamp.IsZero() {
			if err := c.Delete(ctx, claim.DeepCopy(), client.Preconditions{UID: &claim.UID}); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("deleting IPAddressClaim %s: %w", client.ObjectKeyFromObject(claim), err)
			}
			if err := live.Get(ctx, client.ObjectKeyFromObject(claim), claim); apierrors.IsNotFound(err) {
				continue
			} else if err != nil {
				return fmt.Errorf("reading IPAddressClaim %s: %w", client.ObjectKeyFromObject(claim), err)
			}
		}
		if err := removeFinalizer(ctx, c, claim, infrav1.IPAddressClaimFinalizer); err != nil {
			return err
		}
	}
	return nil
}
