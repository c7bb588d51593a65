package vsphere_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/machine/platformtest"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// VS-B5, VS-B15: disks and servers are put through the whole contract of a platform, failed creations included.
func TestPlatform(t *testing.T) {
	platformtest.Run(t, func(t *testing.T) *platformtest.Harness {
		c := newCloud(t, vcenter.Options{})
		return &platformtest.Harness{
			Platform: c.dial(t), Restart: func(t *testing.T) machine.Platform { return c.dial(t) },
			Cloud: c, Shape: shape(), Location: "dc-a", Network: "pg-node",
		}
	})
}

func shape() vsphere.Shape {
	return vsphere.Shape{
		Template: "os-v136-3", Datacenter: "dc-a", Folder: "k8s", ResourcePool: "k8s", Datastore: "ds-shared-a",
		NumCPUs: 4, MemoryMiB: 4096, DiskGiB: 40, Devices: []vsphere.Device{{NetworkName: "pg-node"}},
	}
}

// cloud is a simulated vCenter and an administrator's client beside the adapter under test.
type cloud struct {
	*vcenter.Server
	dir   string
	meter *vsphere.Meter
}

func newCloud(t *testing.T, options vcenter.Options) *cloud {
	t.Helper()
	options.Dir = t.TempDir()
	options.DisksDir = filepath.Join(options.Dir, "disks")
	server, err := vcenter.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return &cloud{Server: server, dir: options.DisksDir, meter: &vsphere.Meter{}}
}

func (c *cloud) config() vsphere.Config {
	return vsphere.Config{
		Server: c.Address(), Username: vcenter.DefaultUsername, Password: vcenter.DefaultPassword,
		Thumbprint: c.Thumbprint(), Meter: c.meter, UserAgent: "adapter",
	}
}

func (c *cloud) dial(t *testing.T) *vsphere.Session {
	t.Helper()
	s, err := vsphere.Dial(t.Context(), c.config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return s
}

// admin is a login of its own.
func (c *cloud) admin(t *testing.T) (*govmomi.Client, *find.Finder, *object.Datacenter) {
	t.Helper()
	u := c.URL()
	u.User = c.Userinfo()
	client, err := govmomi.NewClient(t.Context(), u, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Logout(context.Background()) })
	f := find.NewFinder(client.Client)
	dc, err := f.Datacenter(t.Context(), "dc-a")
	if err != nil {
		t.Fatal(err)
	}
	return client, f.SetDatacenter(dc), dc
}

func (c *cloud) Report(t *testing.T, server *machine.Server, addresses ...string) {
	t.Helper()
	guest := vcenter.Guest{HostName: server.Name, ToolsRunning: true}
	for i, nic := range server.NICs {
		guest.NICs = append(guest.NICs, vcenter.GuestNIC{MAC: nic.MAC, Addresses: []string{addresses[i]}})
	}
	ref := strings.TrimPrefix(server.ServerID, "VirtualMachine:")
	if err := c.Admin().ReportGuest(t.Context(), ref, guest); err != nil {
		t.Fatal(err)
	}
}

func (c *cloud) Foreign(t *testing.T, name string) {
	t.Helper()
	_, f, _ := c.admin(t)
	c.foreign(t, f, name)
}

func (c *cloud) foreign(t *testing.T, f *find.Finder, name string) *object.VirtualMachine {
	t.Helper()
	tmpl, err := f.VirtualMachine(t.Context(), "os-v136-3")
	if err != nil {
		t.Fatal(err)
	}
	folder, err := f.Folder(t.Context(), "k8s")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := f.ResourcePool(t.Context(), "cl-a/Resources/k8s")
	if err != nil {
		t.Fatal(err)
	}
	ref := pool.Reference()
	task, err := tmpl.Clone(t.Context(), folder, name, types.VirtualMachineCloneSpec{
		Location: types.VirtualMachineRelocateSpec{Pool: &ref},
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := task.WaitForResult(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return object.NewVirtualMachine(tmpl.Client(), info.Result.(types.ManagedObjectReference))
}

func (c *cloud) Steal(t *testing.T, volume string) {
	t.Helper()
	_, f, _ := c.admin(t)
	vm := c.foreign(t, f, "thief")
	devices, err := vm.Device(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	controller, err := devices.FindDiskController("")
	if err != nil {
		t.Fatal(err)
	}
	disk := devices.CreateDisk(controller, types.ManagedObjectReference{}, volume)
	if err := vm.AddDevice(t.Context(), disk); err != nil {
		t.Fatal(err)
	}
}

func (c *cloud) Blind(t *testing.T) func() {
	t.Helper()
	_, f, _ := c.admin(t)
	ref := c.foreign(t, f, "blind").Reference()
	set := func(state types.VirtualMachineConnectionState) {
		ctx := *c.Service().Context
		vm := ctx.Map.Get(ref).(*simulator.VirtualMachine)
		ctx.WithLock(vm, func() {
			ctx.Update(vm, []types.PropertyChange{{Name: "runtime.connectionState", Val: state}})
		})
	}
	set(types.VirtualMachineConnectionStateInaccessible)
	return func() { set(types.VirtualMachineConnectionStateConnected) }
}

var methodsOf = map[string]string{
	machine.OpCreate: "CloneVM_Task", machine.OpFit: "ReconfigVM_Task", machine.OpPowerOn: "PowerOnVM_Task",
	machine.OpPowerOff: "PowerOffVM_Task", machine.OpDetach: "ReconfigVM_Task", machine.OpDestroy: "Destroy_Task",
}

func (c *cloud) Fail(t *testing.T, kind string, how platformtest.Fault) {
	t.Helper()
	fault := vcenter.Fault{Method: methodsOf[kind], Message: "injected"}
	switch how {
	case platformtest.Before:
		fault.Kind = vcenter.FaultBefore
	case platformtest.Lost:
		fault.Kind = vcenter.FaultDrop
	case platformtest.Fails:
		fault.Kind = vcenter.FaultTask
	case platformtest.FailsAfter:
		fault.Kind = vcenter.FaultTaskAfter
	}
	if err := c.Admin().Inject(t.Context(), fault); err != nil {
		t.Fatal(err)
	}
}

func (c *cloud) file(identity string) string {
	return filepath.Join(c.dir, strings.ReplaceAll(identity, "-", ""), "content")
}

func (c *cloud) Write(t *testing.T, identity, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(c.file(identity)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.file(identity), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (c *cloud) Content(t *testing.T, identity string) string {
	t.Helper()
	data, err := os.ReadFile(c.file(identity))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}

func (c *cloud) Servers(*testing.T) []string {
	var out []string
	for _, vm := range c.World().VMs {
		if !vm.Template {
			out = append(out, vm.Name)
		}
	}
	return out
}

func (c *cloud) Violations(*testing.T) []string {
	var out []string
	for _, v := range c.Server.Violations() {
		out = append(out, fmt.Sprintf("%s: %s", v.Kind, v.Detail))
	}
	return out
}
