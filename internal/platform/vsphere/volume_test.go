package vsphere_test

import (
	"strings"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/soap"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/sim/vcenter"
	"github.com/berth-dev/berth/internal/slot"
)

func volumeSpec(pool string) machine.VolumeSpec {
	return machine.VolumeSpec{
		Key:  machine.VolumeKey{Namespace: "ns", Cluster: "demo", Pool: pool, HostName: "worker-1", Disk: "data", Address: "10.0.0.1"},
		Want: slot.Disk{Name: "data", SizeGiB: 10}, Location: "dc-a", Shape: shape(),
	}
}

// TestVolumeWithoutRecords: after a loss of all records a disk is found where it lies, even if the declaration has since
// named another datastore; a blank one beside it would hide the data (decision D17, hazard H9).
func TestVolumeWithoutRecords(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	f := newFleet(t, c, s)
	spec := volumeSpec("pool")
	var err error
	if spec.Address, err = s.PlanVolume(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	op, err := s.CreateVolume(t.Context(), spec)
	if err := f.end(mark, op, err); err != nil {
		t.Fatal(err)
	}

	moved := shape()
	moved.Datastore = "ds-shared-a2"
	again := volumeSpec("pool")
	again.Shape = moved
	fresh := c.dial(t)
	got, err := fresh.PlanVolume(t.Context(), again)
	if err != nil || got != spec.Address {
		t.Fatalf("planned %q (%v), the disk lies at %q", got, err, spec.Address)
	}
	other := again
	other.Key.HostName, other.Key.Disk = "worker-2", "data"
	got, err = fresh.PlanVolume(t.Context(), other)
	if err != nil || !strings.HasPrefix(got, "[ds-shared-a2] ") {
		t.Fatalf("a new place is planned at %q (%v)", got, err)
	}
}

// TestVolumeNowhere: a datacenter or datastore that does not exist is told apart from other refusals, but a disk that lies on
// another datastore is found first.
func TestVolumeNowhere(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	f := newFleet(t, c, s)
	for name, change := range map[string]func(*machine.VolumeSpec){
		"no-such-dc": func(v *machine.VolumeSpec) { v.Location = "no-such-dc" },
		"no-such-ds": func(v *machine.VolumeSpec) { v.Want.Datastore = "no-such-ds" },
	} {
		spec := volumeSpec("pool")
		change(&spec)
		if _, err := s.PlanVolume(t.Context(), spec); !machine.IsNowhere(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	spec := volumeSpec("pool")
	spec.Want.StoragePolicy = "no-such-policy"
	if _, err := s.PlanVolume(t.Context(), spec); !machine.Is(err, machine.Refused) || machine.IsNowhere(err) {
		t.Errorf("a disk could be anywhere: %v", err)
	}
	spec = volumeSpec("pool")
	var err error
	if spec.Address, err = s.PlanVolume(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	op, err := s.CreateVolume(t.Context(), spec)
	if err := f.end(mark, op, err); err != nil {
		t.Fatal(err)
	}
	renamed := volumeSpec("pool")
	renamed.Want.Datastore = "no-such-ds"
	if got, err := c.dial(t).PlanVolume(t.Context(), renamed); err != nil || got != spec.Address {
		t.Errorf("planned %q (%v), the disk lies at %q", got, err, spec.Address)
	}
}

// TestDirectoryOfStrangers: a directory that is not provably this place's is not used, and not removed (VS-D46, decision D17).
func TestDirectoryOfStrangers(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	f := newFleet(t, c, s)
	client, finder, dc := c.admin(t)
	ds, err := finder.Datastore(t.Context(), "ds-shared-a")
	if err != nil {
		t.Fatal(err)
	}
	prepare := func(pool, file, content string) machine.VolumeSpec {
		t.Helper()
		spec := volumeSpec(pool)
		if spec.Address, err = s.PlanVolume(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		var path object.DatastorePath
		path.FromString(spec.Address)
		dir, _, _ := strings.Cut(path.Path, "/")
		if err := object.NewFileManager(client.Client).MakeDirectory(t.Context(), ds.Path(dir), dc, false); err != nil {
			t.Fatal(err)
		}
		if file != "" {
			upload := soap.DefaultUpload
			if err := ds.Upload(t.Context(), strings.NewReader(content), dir+"/"+file, &upload); err != nil {
				t.Fatal(err)
			}
		}
		return spec
	}
	unmarked := prepare("a", "holiday.iso", "pictures")
	marked := prepare("b", "berth-place.json", `{"berth":1,"namespace":"other","cluster":"c","pool":"p","hostName":"h"}`)
	for name, spec := range map[string]machine.VolumeSpec{"files without a marker": unmarked, "another place's marker": marked} {
		// A second session: what the first one saw before the directory was there does not count.
		_, err := c.dial(t).CreateVolume(t.Context(), spec)
		if !machine.Is(err, machine.Conflict) {
			t.Errorf("creating in a directory with %s: %v", name, err)
		}
		if err := s.Forget(t.Context(), spec); !machine.Is(err, machine.Conflict) && !machine.Is(err, machine.Refused) {
			t.Errorf("forgetting a directory with %s: %v", name, err)
		}
	}
	// What a crash between directory and marker leaves is ours to use.
	empty := prepare("c", "", "")
	op, err := s.CreateVolume(t.Context(), empty)
	if err := f.end(mark, op, err); err != nil {
		t.Fatalf("creating in an empty directory: %v", err)
	}
	if v, err := s.LookupVolume(t.Context(), empty); err != nil || !v.Marked {
		t.Fatalf("volume %+v, %v", v, err)
	}
}

// TestDiskInMachineDirectory (hazard H10): a volume in the VM's own directory would be destroyed with it and is not attached.
func TestDiskInMachineDirectory(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	f := newFleet(t, c, s)
	spec := machine.ServerSpec{Name: "demo", Mark: mark, Location: "dc-a", Shape: shape()}
	op, err := s.Create(t.Context(), spec)
	if err := f.end(mark, op, err); err != nil {
		t.Fatal(err)
	}
	server, err := s.Lookup(t.Context(), machine.Identity{Mark: mark})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Fit(t.Context(), server, machine.Fit{
		Spec: spec, Volumes: []machine.Volume{{Disk: "data", Volume: "[ds-shared-a] demo/data.vmdk", Identity: "x", SizeGiB: 1}},
		UserData: []byte("#cloud-config\n"),
	})
	refusal(t, err, machine.Refused, vsphere.ReasonDirectory, "data", "directory")
}
