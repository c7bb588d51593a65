package vcenter

import (
	"slices"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// census knows the VMs and datastores there are. vcsim would look through all its objects, tasks of the past included.
type census struct {
	mu  sync.Mutex
	vms []*simulator.VirtualMachine
	ds  []*simulator.Datastore
}

// Reference identifies the handler among vcsim's.
func (c *census) Reference() types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "Census", Value: "strict"}
}

// PutObject counts a new object.
func (c *census) PutObject(_ *simulator.Context, object mo.Reference) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch o := object.(type) {
	case *simulator.VirtualMachine:
		if !slices.Contains(c.vms, o) {
			c.vms = append(c.vms, o)
		}
	case *simulator.Datastore:
		if !slices.Contains(c.ds, o) {
			c.ds = append(c.ds, o)
		}
	}
}

// UpdateObject is of no interest.
func (c *census) UpdateObject(*simulator.Context, mo.Reference, []types.PropertyChange) {}

// RemoveObject strikes an object off.
func (c *census) RemoveObject(_ *simulator.Context, ref types.ManagedObjectReference) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.vms = slices.DeleteFunc(c.vms, func(vm *simulator.VirtualMachine) bool { return vm.Self == ref })
	c.ds = slices.DeleteFunc(c.ds, func(ds *simulator.Datastore) bool { return ds.Self == ref })
}

func (c *census) machines() []*simulator.VirtualMachine {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.vms)
}

func (c *census) stores() []*simulator.Datastore {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.ds)
}
