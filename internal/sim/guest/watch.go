package guest

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// userAgent sets the guests' calls apart from a manager's in the simulator's counters.
const userAgent = "berth-sim-guests"

var watchedProperties = []string{
	"name", "config.template", "runtime.powerState", "summary.runtime.bootTime", "guest.guestState",
}

// watch follows the power states of all virtual machines until the context ends, over one session and one wait. Whatever
// goes wrong, it logs in again and starts over with a full read.
func (d *daemon) watch(ctx context.Context) {
	for failures := 0; ; failures++ {
		began := time.Now()
		err := d.watchOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > time.Minute {
			failures = 0
		}
		pause := min(time.Duration(1<<min(failures, 5))*100*time.Millisecond, 2*time.Second)
		d.log.Info("the watch of the virtual machines broke off; starting over", "error", fmt.Sprint(err), "in", pause.String())
		if !wait(ctx, pause) {
			return
		}
	}
}

func (d *daemon) watchOnce(ctx context.Context) error {
	client, logout, err := d.login(ctx)
	if err != nil {
		return err
	}
	defer logout()
	d.setClient(client)

	all, err := view.NewManager(client).CreateContainerView(ctx, client.ServiceContent.RootFolder, []string{"VirtualMachine"}, true)
	if err != nil {
		return fmt.Errorf("creating the view: %w", err)
	}
	filter := new(property.WaitFilter).Add(all.Reference(), "VirtualMachine", watchedProperties, all.TraversalSpec())
	// The first read may come in pieces; once it is whole, what it does not hold is gone.
	seen := map[types.ManagedObjectReference]bool{}
	return property.WaitForUpdates(ctx, property.DefaultCollector(client), filter, func(updates []types.ObjectUpdate) bool {
		for _, u := range updates {
			if seen != nil {
				seen[u.Obj] = true
			}
		}
		d.apply(ctx, updates)
		if seen != nil && !filter.Truncated {
			d.forgetUnseen(seen)
			seen = nil
		}
		return false
	})
}

func (d *daemon) login(ctx context.Context) (*vim25.Client, func(), error) {
	u, err := soap.ParseURL(d.options.VCenter)
	if err != nil {
		return nil, nil, fmt.Errorf("the vCenter's address %q: %w", d.options.VCenter, err)
	}
	transport := soap.NewClient(u, true)
	transport.UserAgent = userAgent
	client, err := vim25.NewClient(ctx, transport)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to %s: %w", u.Host, err)
	}
	sessions := session.NewManager(client)
	if err := sessions.Login(ctx, url.UserPassword(d.options.Username, d.options.Password)); err != nil {
		return nil, nil, fmt.Errorf("logging in to %s as %s: %w", u.Host, d.options.Username, err)
	}
	return client, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = sessions.Logout(ctx)
		client.CloseIdleConnections()
	}, nil
}

func (d *daemon) setClient(c *vim25.Client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.client = c
}

// inspect reads the hardware of a virtual machine, again until it succeeds or the context ends.
func (d *daemon) inspect(ctx context.Context, ref types.ManagedObjectReference) (hardware, error) {
	for {
		d.mu.Lock()
		client := d.client
		d.mu.Unlock()
		var vm mo.VirtualMachine
		err := property.DefaultCollector(client).RetrieveOne(ctx, ref, machineProperties, &vm)
		if err == nil {
			return readHardware(vm, d.options.StateDir), nil
		}
		if !wait(ctx, 200*time.Millisecond) {
			return hardware{}, fmt.Errorf("reading %s: %w", ref.Value, err)
		}
	}
}

// apply takes one set of updates: first what stopped, then what started, because a successor may take over the address of
// a guest that went down in the same moment.
func (d *daemon) apply(ctx context.Context, updates []types.ObjectUpdate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var changed []types.ManagedObjectReference
	for _, u := range updates {
		if u.Kind == types.ObjectUpdateKindLeave {
			delete(d.power, u.Obj)
		} else {
			d.power[u.Obj] = merge(d.power[u.Obj], u.ChangeSet)
		}
		changed = append(changed, u.Obj)
	}
	var start []types.ManagedObjectReference
	for _, ref := range changed {
		p, exists := d.power[ref]
		if exists && p.on && !p.template {
			start = append(start, ref)
			continue
		}
		d.stop(ref, exists)
	}
	for _, ref := range start {
		d.start(ctx, ref, d.power[ref])
		if d.power[ref].shuttingDown {
			d.guests[ref].shutDown()
		}
	}
}

// forgetUnseen takes all virtual machines that a whole read did not hold for gone.
func (d *daemon) forgetUnseen(seen map[types.ManagedObjectReference]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for ref := range d.power {
		if !seen[ref] {
			delete(d.power, ref)
			d.stop(ref, false)
		}
	}
	d.forgetStrangers()
}

func merge(p power, changes []types.PropertyChange) power {
	for _, c := range changes {
		switch c.Name {
		case "name":
			if name, ok := c.Val.(string); ok {
				p.name = name
			}
		case "config.template":
			p.template, _ = c.Val.(bool)
		case "runtime.powerState":
			state, _ := c.Val.(types.VirtualMachinePowerState)
			p.on = state == types.VirtualMachinePowerStatePoweredOn
		case "guest.guestState":
			state, _ := c.Val.(string)
			p.shuttingDown = state == string(types.VirtualMachineGuestStateShuttingDown)
		case "summary.runtime.bootTime":
			p.boot, _ = c.Val.(time.Time)
		}
	}
	return p
}

// wait pauses; false means the context ended first.
func wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
