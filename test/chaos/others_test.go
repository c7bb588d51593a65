package chaos

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// others play everybody else: guests that boot, mount, write and join, Cluster API that deletes in its order, and time.
type others struct {
	w    *world
	quit chan struct{}
	done chan struct{}

	mu sync.Mutex
	// doomed Machines, by name; their infrastructure goes first, then the Node, then they.
	doomed map[string]bool
	// ending: the Cluster is deleted; its infrastructure follows its Machines.
	ending bool
	// written is what guests have written, by the address of the disk, with the disk's identity.
	written map[string]content
	booted  map[string]bool
	// wrongs are what no guest and no Cluster API should ever have met.
	wrongs []string
	// resting: time does not pass by itself.
	resting bool
	pokes   int
}

type content struct{ identity, token string }

func newOthers(w *world) *others {
	o := &others{
		w: w, quit: make(chan struct{}), done: make(chan struct{}),
		doomed: map[string]bool{}, written: map[string]content{}, booted: map[string]bool{}, resting: true,
	}
	go o.run()
	return o
}

func (o *others) stop() {
	close(o.quit)
	<-o.done
}

// idle is how long nothing happens before time makes a jump; real waits of the manager are shorter or end by events.
const idle = 900 * time.Millisecond

func (o *others) run() {
	defer close(o.done)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	moves, since, booted := o.w.moves.Load(), time.Now(), time.Time{}
	for {
		select {
		case <-o.quit:
			return
		case <-tick.C:
		}
		if now := o.w.moves.Load(); now != moves {
			moves, since = now, time.Now()
			// A look that fails proves nothing; the last one must not.
			_ = o.w.watch.Look(ctx)
		}
		// Guests boot when something happens; what the vCenter does by itself a little later is seen a little later.
		if time.Since(since) < time.Second || time.Since(booted) > time.Second {
			booted = time.Now()
			o.guests()
		}
		o.core()
		o.mu.Lock()
		resting := o.resting
		o.mu.Unlock()
		if !resting && time.Since(since) > idle {
			o.w.pass(61 * time.Second)
			since = time.Now()
		}
	}
}

// haste lets time pass whenever nothing happens.
func (o *others) haste(yes bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.resting = !yes
}

func (o *others) wrong(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Contains(o.wrongs, text) {
		o.wrongs = append(o.wrongs, text)
	}
}

// guests boot once per virtual machine: they use the disks they find, register their Node and report their address.
func (o *others) guests() {
	for _, vm := range o.w.vcenter.World().VMs {
		if vm.Template || vm.Power != "poweredOn" || o.booted[vm.Ref] {
			continue
		}
		object := &infrav1.VSphereVM{}
		if err := k8s.Get(ctx, client.ObjectKey{Namespace: o.w.ns, Name: vm.Name}, object); err != nil {
			continue
		}
		host := object.Annotations[infrav1.SlotHostnameAnnotation]
		guest := vcenter.Guest{HostName: host, ToolsRunning: true}
		for i, nic := range vm.NICs {
			var addresses []string
			for _, a := range object.Spec.Network.Devices[i].IPAddrs {
				addresses = append(addresses, strings.Split(a, "/")[0])
			}
			guest.NICs = append(guest.NICs, vcenter.GuestNIC{MAC: nic.MAC, Network: nic.Network, Addresses: addresses})
		}
		for _, d := range vm.Disks {
			if !d.Own {
				o.mount(d)
			}
		}
		o.join(host, "vsphere://"+strings.ToLower(vm.UUID))
		if o.w.vcenter.ReportGuest(vm.Ref, guest) == nil {
			o.booted[vm.Ref] = true
		}
	}
}

// mount formats a blank disk and leaves a token on it; a disk that is not blank must be the one that it was.
func (o *others) mount(d vcenter.AttachedDisk) {
	identity := normal(d.UUID)
	o.mu.Lock()
	before, known := o.written[d.Path]
	o.mu.Unlock()
	token, err := o.read(identity)
	switch {
	case err == nil && known && token != before.token:
		o.wrong("a guest found %q on %s where %q was written", token, d.Path, before.token)
		return
	case err == nil:
		return
	case known:
		o.wrong("a guest found %s blank, where data was written", d.Path)
		return
	}
	token = fmt.Sprintf("%s of %s", d.Path, identity)
	dir := filepath.Join(o.w.dir, "disks", identity)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		o.wrong("%v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600); err != nil {
		o.wrong("%v", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.written[d.Path] = content{identity, token}
}

func (o *others) read(identity string) (string, error) {
	data, err := os.ReadFile(filepath.Join(o.w.dir, "disks", identity, "token"))
	return string(data), err
}

// join registers the Node, as a kubelet does: into a Node of its name if there is one, which then keeps its provider ID.
func (o *others) join(host, providerID string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	err := k8s.Create(ctx, node)
	if apierrors.IsAlreadyExists(err) {
		if err := k8s.Get(ctx, client.ObjectKey{Name: host}, node); err == nil && node.Spec.ProviderID != providerID {
			o.wrong("guest %s (%s) started while the Node of %s stood", host, providerID, node.Spec.ProviderID)
		}
	}
}

// remove deletes a Machine, as a user or a MachineSet does.
func (o *others) remove(name string) {
	o.w.trail.add("Machine %s is deleted", name)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.doomed[name] = true
}

// core deletes what Cluster API deletes, in its order.
func (o *others) core() {
	o.mu.Lock()
	doomed, ending := slices.Sorted(maps.Keys(o.doomed)), o.ending
	o.mu.Unlock()
	for _, name := range doomed {
		o.end(name)
	}
	if ending && len(doomed) == 0 {
		infra := &infrav1.VSphereCluster{ObjectMeta: metav1.ObjectMeta{Namespace: o.w.ns, Name: "demo"}}
		switch err := k8s.Get(ctx, client.ObjectKeyFromObject(infra), infra); {
		case err == nil && infra.DeletionTimestamp.IsZero():
			_ = k8s.Delete(ctx, infra)
		case apierrors.IsNotFound(err):
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: o.w.ns, Name: "demo"}}
			_ = k8s.Patch(ctx, cluster, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
		}
	}
}

func (o *others) end(name string) {
	m := &infrav1.VSphereMachine{}
	key := client.ObjectKey{Namespace: o.w.ns, Name: name}
	err := k8s.Get(ctx, key, m)
	switch {
	case err == nil && m.DeletionTimestamp.IsZero():
		o.w.moves.Add(1)
		_ = k8s.Delete(ctx, m)
		return
	case !apierrors.IsNotFound(err):
		return
	}
	owner := &clusterv1.Machine{}
	if err := k8s.Get(ctx, key, owner); err != nil {
		if apierrors.IsNotFound(err) {
			o.mu.Lock()
			delete(o.doomed, name)
			o.mu.Unlock()
		}
		return
	}
	if host := owner.Annotations["chaos/node"]; host != "" {
		node := &corev1.Node{}
		if err := k8s.Get(ctx, client.ObjectKey{Name: host}, node); err == nil {
			if want := owner.Annotations["chaos/provider-id"]; node.Spec.ProviderID != want {
				o.wrong("Cluster API deletes Node %s by name for Machine %s, and it is already the Node of %s (not %s)", host, name, node.Spec.ProviderID, want)
			}
			_ = k8s.Delete(ctx, node)
		}
	}
	o.w.moves.Add(1)
	_ = k8s.Delete(ctx, owner)
}

// remember notes on a Machine which Node it has, as Cluster API does in its status.
func (o *others) remember(m *infrav1.VSphereMachine) error {
	return k8s.Patch(ctx, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: o.w.ns, Name: m.Name}},
		client.RawPatch("application/merge-patch+json", []byte(fmt.Sprintf(`{"metadata":{"annotations":{"chaos/node":%q,"chaos/provider-id":%q}}}`,
			m.Annotations[infrav1.SlotHostnameAnnotation], *m.Spec.ProviderID))))
}

// belongings are the virtual machines and, if asked for, the files of this world, as answers name them.
func (o *others) belongings(files bool) []string {
	var out []string
	world := o.w.vcenter.World()
	for _, vm := range world.VMs {
		if !vm.Template {
			out = append(out, vm.Ref)
		}
	}
	for _, f := range world.Files {
		if files && strings.Contains(f.Path, o.w.ns) && !f.Directory {
			_, path, _ := strings.Cut(f.Path, "] ")
			out = append(out, path)
		}
	}
	return out
}

// poke makes the manager look at everything again, as a resync does.
func (o *others) poke() {
	o.mu.Lock()
	o.pokes++
	n := o.pokes
	o.mu.Unlock()
	patch := client.RawPatch("application/merge-patch+json", []byte(fmt.Sprintf(
		`{"metadata":{"labels":{%q:"poke-%d"},"annotations":{"chaos/poke":"%d"}}}`, clusterv1.WatchLabel, n, n)))
	for _, list := range []client.ObjectList{
		&infrav1.VSphereClusterList{}, &infrav1.VSphereMachineConfigPoolList{}, &infrav1.VSphereMachineList{},
	} {
		if k8s.List(ctx, list, client.InNamespace(o.w.ns)) != nil {
			continue
		}
		switch l := list.(type) {
		case *infrav1.VSphereClusterList:
			for i := range l.Items {
				_ = k8s.Patch(ctx, &l.Items[i], patch)
			}
		case *infrav1.VSphereMachineConfigPoolList:
			for i := range l.Items {
				_ = k8s.Patch(ctx, &l.Items[i], patch)
			}
		case *infrav1.VSphereMachineList:
			for i := range l.Items {
				_ = k8s.Patch(ctx, &l.Items[i], patch)
			}
		}
	}
}

// normal is a disk's UUID as the guest spells it.
func normal(uuid string) string { return strings.ToLower(strings.ReplaceAll(uuid, "-", "")) }

// endCluster lets the Cluster's infrastructure follow its Machines.
func (o *others) endCluster() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ending = true
}
