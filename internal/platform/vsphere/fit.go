package vsphere

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/guest"
	"github.com/berth-dev/berth/internal/machine"
)

// current is the state of a server for an act on it: from the store while that is good, from the live read that the caller has
// just made, else live.
func (s *Session) current(ctx context.Context, server *machine.Server) (vm, error) {
	ref, ok := parseRef(server.ServerID)
	if !ok {
		return vm{}, refused(ReasonBadShape, "%q is not a virtual machine's reference", server.ServerID)
	}
	if v, known := s.observer.known(ref); known && ours(v, server.Mark) {
		return v, nil
	}
	if v, known := s.observer.recent(ref); known && ours(v, server.Mark) {
		return v, nil
	}
	return s.live(ctx, server)
}

// live is a fresh read of a server for an act on it.
func (s *Session) live(ctx context.Context, server *machine.Server) (vm, error) {
	ref, ok := parseRef(server.ServerID)
	if !ok {
		return vm{}, refused(ReasonBadShape, "%q is not a virtual machine's reference", server.ServerID)
	}
	v, err := s.client.readVM(ctx, ref)
	if err != nil {
		return vm{}, failed(err, "reading virtual machine %s", server.Name)
	}
	if !ours(v, server.Mark) {
		return vm{}, conflict(ReasonNameTaken, "virtual machine %s (%s) does not carry the mark %s: it is left alone", v.name,
			v.ref.Value, server.Mark)
	}
	s.observer.took(v, server.Mark)
	return v, nil
}

// Fit implements machine.Platform: one reconfiguration with the persistent disks, the user data and the metadata. Tags and a
// newer virtual hardware, where the specification asks for them, come first and are waited for.
func (s *Session) Fit(ctx context.Context, server *machine.Server, fit machine.Fit) (machine.Operation, error) {
	shape, err := shapeOf(fit.Spec.Shape)
	if err != nil {
		return machine.Operation{}, err
	}
	v, err := s.current(ctx, server)
	if err != nil {
		return machine.Operation{}, err
	}
	if why := v.unreadable(); why != "" {
		return machine.Operation{}, busy(ReasonAttachments, 0, "virtual machine %s cannot be fitted: %s", v.name, why)
	}
	if v.power != types.VirtualMachinePowerStatePoweredOff {
		return machine.Operation{}, refused(ReasonNotOff, "virtual machine %s is %s: disks and guest data are only handed to a "+
			"machine that is off", v.name, v.power)
	}
	if newer(shape.HardwareVersion, v.version) {
		if err := s.upgrade(ctx, v, server.Mark, shape.HardwareVersion); err != nil {
			return machine.Operation{}, err
		}
	}
	if err := s.enroll(ctx, v, shape); err != nil {
		return machine.Operation{}, err
	}
	config, digest, err := fitConfig(v, fit, shape)
	if err != nil {
		return machine.Operation{}, err
	}
	return s.reconfigure(ctx, act{
		kind: machine.OpFit, mark: server.Mark, entity: v.ref, doing: "fitting virtual machine " + v.name,
		promise: func(v vm) bool { return v.fitted() && v.fit.Digest == digest },
	}, *config)
}

// upgrade raises the virtual hardware and waits for it: it takes a moment, and the reconfiguration that follows depends on it.
func (s *Session) upgrade(ctx context.Context, v vm, mark machine.Mark, version string) error {
	doing := "upgrading the virtual hardware of " + v.name + " to " + version
	op, err := s.start(ctx, act{kind: machine.OpFit, mark: mark, entity: v.ref, doing: doing},
		func(ctx context.Context) (types.ManagedObjectReference, error) {
			res, err := methods.UpgradeVM_Task(ctx, s.client.vim, &types.UpgradeVM_Task{This: v.ref, Version: version})
			if err != nil {
				return types.ManagedObjectReference{}, err
			}
			return res.Returnval, nil
		})
	if err != nil || op.Ref == "" {
		return err
	}
	_, err = s.await(ctx, types.ManagedObjectReference{Type: "Task", Value: op.Ref}, machine.OpFit, doing)
	return failed(err, "%s", doing)
}

func (s *Session) reconfigure(ctx context.Context, a act, config types.VirtualMachineConfigSpec) (machine.Operation, error) {
	return s.start(ctx, a, func(ctx context.Context) (types.ManagedObjectReference, error) {
		res, err := methods.ReconfigVM_Task(ctx, s.client.vim, &types.ReconfigVM_Task{This: a.entity, Spec: config})
		if err != nil {
			return types.ManagedObjectReference{}, err
		}
		return res.Returnval, nil
	})
}

// newer compares "vmx-NN".
func newer(want, have string) bool {
	w, errW := strconv.Atoi(strings.TrimPrefix(want, "vmx-"))
	h, errH := strconv.Atoi(strings.TrimPrefix(have, "vmx-"))
	return errW == nil && errH == nil && w > h
}

// fitConfig is the one reconfiguration of a fit, and the digest it leaves on the VM.
func fitConfig(v vm, fit machine.Fit, shape Shape) (*types.VirtualMachineConfigSpec, string, error) {
	attach, err := attachments(v, fit.Volumes)
	if err != nil {
		return nil, "", err
	}
	data, err := guestData(v, fit, shape)
	if err != nil {
		return nil, "", err
	}
	base, err := machineConfig(fit.Spec, shape)
	if err != nil {
		return nil, "", err
	}
	digest := sha256.New()
	for _, option := range data {
		o := option.GetOptionValue()
		fmt.Fprintf(digest, "%s=%v\x00", o.Key, o.Value)
	}
	record := fitRecord{Mark: string(fit.Spec.Mark)}
	for _, volume := range fit.Volumes {
		record.Volumes = append(record.Volumes, normalPath(volume.Volume))
		fmt.Fprintf(digest, "%s\x00", volume.Volume)
	}
	record.Digest = hex.EncodeToString(digest.Sum(nil))
	text, err := json.Marshal(record)
	if err != nil {
		return nil, "", failed(err, "recording the fit")
	}
	return &types.VirtualMachineConfigSpec{
		NumCPUs: base.NumCPUs, NumCoresPerSocket: base.NumCoresPerSocket, MemoryMB: base.MemoryMB, Flags: base.Flags,
		DeviceChange: attach,
		ExtraConfig:  append(data, &types.OptionValue{Key: keyFit, Value: string(text)}),
	}, record.Digest, nil
}

// attachments are the device changes that put volumes on a VM; those that are there already are left alone.
func attachments(v vm, volumes []machine.Volume) ([]types.BaseVirtualDeviceConfigSpec, error) {
	there := map[string]bool{}
	for _, d := range v.attached() {
		there[d.path], there[d.identity] = true, true
	}
	home := v.folder()
	var todo []machine.Volume
	for _, volume := range volumes {
		path := normalPath(volume.Volume)
		if there[path] || volume.Identity != "" && there[normalUUID(volume.Identity)] {
			continue // also where a storage migration has moved it
		}
		p := v.folder()
		p.FromString(path)
		if dir, _, _ := cutLast(p.Path); p.Datastore == home.Datastore && dir == home.Path {
			return nil, refused(ReasonDirectory, "persistent disk %s lies in the directory of virtual machine %s (%s), where it "+
				"would be destroyed with it: move it to a directory of its own", volume.Disk, v.name, path)
		}
		todo = append(todo, volume)
	}
	if len(todo) == 0 {
		return nil, nil
	}
	b, err := newBoard(v.devices, "virtual machine "+v.name)
	if err != nil {
		return nil, err
	}
	// Volumes with a unit of their own come first, so that those without do not take it.
	slices.SortStableFunc(todo, func(x, y machine.Volume) int { return rank(x.Unit != nil) - rank(y.Unit != nil) })
	var disks []types.BaseVirtualDeviceConfigSpec
	for i, volume := range todo {
		at, key, err := b.take(volume.Unit, false)
		if err != nil {
			return nil, err
		}
		disk := &types.VirtualDisk{
			VirtualDevice: types.VirtualDevice{
				Key: int32(-200 - i), ControllerKey: key, UnitNumber: &at.Unit, //nolint:gosec // at most 60 disks
				Backing: &types.VirtualDiskFlatVer2BackingInfo{
					VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: normalPath(volume.Volume)},
					DiskMode:                     string(types.VirtualDiskModePersistent),
				},
			},
			// Real vCenter reads the size from the file when it is left out, simulators take it from here.
			CapacityInKB: int64(volume.SizeGiB) << 20, CapacityInBytes: int64(volume.SizeGiB) << 30,
		}
		// No file operation: the file must be there, and is neither created nor replaced.
		disks = append(disks, &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: disk})
	}
	var out []types.BaseVirtualDeviceConfigSpec
	for _, c := range b.added {
		out = append(out, &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: c})
	}
	return append(out, disks...), nil
}

// guestData renders and encodes what the guest reads at its first start (VS-V15 to V20c).
func guestData(v vm, fit machine.Fit, shape Shape) ([]types.BaseOptionValue, error) {
	devices, err := devicesOf(shape, fit.Spec.Place)
	if err != nil {
		return nil, err
	}
	host := fit.Spec.Name
	if fit.Spec.Place != nil {
		host = fit.Spec.Place.HostName
	}
	disks, err := guestDisks(v, fit)
	if err != nil {
		return nil, err
	}
	meta, err := metadata(v, fit.Spec.Mark, host, devices, shape.Routes)
	if err != nil {
		return nil, err
	}
	if fit.Format == "ignition" {
		if len(disks) > 0 {
			return nil, refused(guest.ReasonContentInvalid, "the bootstrap data is Ignition, which cannot carry the %d disks of "+
				"this machine's slot: use the cloud-config format", len(disks))
		}
		return append(encoded("guestinfo.ignition.config.data", fit.UserData), encoded("guestinfo.metadata", meta)...), nil
	}
	in := guest.Input{UserData: fit.UserData, Disks: disks}
	if fit.Spec.Place != nil {
		in.HostName, in.NodeIP = host, nodeIP(devices)
	}
	user, err := guest.Merge(in)
	if guest.IsContentInvalid(err) {
		return nil, refused(guest.ReasonContentInvalid, "%v", err)
	}
	if err != nil {
		return nil, failed(err, "preparing the user data of %s", fit.Spec.Name)
	}
	return append(encoded("guestinfo.userdata", user), encoded("guestinfo.metadata", meta)...), nil
}

// encoded is one guestinfo value, encoded exactly once (VS-V16).
func encoded(key string, value []byte) []types.BaseOptionValue {
	return []types.BaseOptionValue{
		&types.OptionValue{Key: key, Value: base64.StdEncoding.EncodeToString(value)},
		&types.OptionValue{Key: key + ".encoding", Value: "base64"},
	}
}

// guestDisks are the disks of the place as the guest must know them, in the order of declaration, every identity known.
func guestDisks(v vm, fit machine.Fit) ([]guest.Disk, error) {
	if fit.Spec.Place == nil {
		return nil, nil
	}
	own := map[string]string{}
	for _, d := range v.attached() {
		if isOwn, name := v.own(d); isOwn && name != "" {
			own[name] = d.identity
		}
	}
	volumes := map[string]machine.Volume{}
	for _, volume := range fit.Volumes {
		volumes[volume.Disk] = volume
	}
	var out []guest.Disk
	for _, d := range fit.Spec.Place.Disks {
		g := guest.Disk{
			Name: d.Name, MountPath: d.MountPath, Filesystem: d.Filesystem, Options: d.MountOptions,
			Wipe: d.WipeFilesystem, Ephemeral: d.Ephemeral, SlotKey: fit.Spec.PlaceKey,
		}
		if d.Ephemeral {
			g.Identity = own[d.Name]
		} else {
			g.Identity = normalUUID(volumes[d.Name].Identity)
		}
		if g.Identity == "" {
			return nil, busy(ReasonForeignDisk, 0, "disk %s of slot %s is not known by its UUID yet; the machine is not started "+
				"with half of its disks", d.Name, fit.Spec.Place.HostName)
		}
		out = append(out, g)
	}
	return out, nil
}

// metadata renders the document from the MACs that the cards really got.
func metadata(v vm, mark machine.Mark, host string, devices []Device, routes []Route) ([]byte, error) {
	cards := v.cards()
	if len(cards) != len(devices) {
		return nil, refused(ReasonTopology, "virtual machine %s has %d network cards, its specification %d: somebody changed "+
			"it, or the clone lost them", v.name, len(cards), len(devices))
	}
	meta := guest.Meta{InstanceID: string(mark), HostName: host}
	for _, r := range routes {
		meta.Routes = append(meta.Routes, guest.Route(r))
	}
	for i, d := range devices {
		nic := guest.NIC{
			MAC: strings.ToLower(cards[i].MacAddress), DeviceName: d.DeviceName, DHCP4: d.DHCP4, DHCP6: d.DHCP6,
			Addresses: d.IPAddrs, Gateway4: d.Gateway4, Gateway6: d.Gateway6, Nameservers: d.Nameservers,
			SearchDomains: d.SearchDomains,
		}
		if d.MTU != nil {
			nic.MTU = *d.MTU
		}
		if d.DHCP4Overrides != nil {
			o := guest.DHCPOverrides(*d.DHCP4Overrides)
			nic.DHCP4Overrides = &o
		}
		if d.DHCP6Overrides != nil {
			o := guest.DHCPOverrides(*d.DHCP6Overrides)
			nic.DHCP6Overrides = &o
		}
		for _, r := range d.Routes {
			nic.Routes = append(nic.Routes, guest.Route(r))
		}
		meta.NICs = append(meta.NICs, nic)
	}
	doc, err := guest.Metadata(meta)
	if err != nil {
		return nil, refused(ReasonBadShape, "%v", err)
	}
	return doc, nil
}

// nodeIP is the first static address of the first interface that has one.
func nodeIP(devices []Device) string {
	for _, d := range devices {
		for _, a := range d.IPAddrs {
			ip, _, _ := strings.Cut(a, "/")
			return ip
		}
	}
	return ""
}
