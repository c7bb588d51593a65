package vsphere

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
)

// markSpace makes instance UUIDs of marks that are not UUIDs themselves.
var markSpace = uuid.MustParse("6f2c0b52-6f0e-4d0b-9a44-0c3f3a1f7a55")

// instanceUUID is the instance UUID that a virtual machine with this mark gets: the mark itself where it is a UUID.
func instanceUUID(mark machine.Mark) string {
	if id, err := uuid.Parse(string(mark)); err == nil {
		return id.String()
	}
	return uuid.NewSHA1(markSpace, []byte(mark)).String()
}

// ours reports whether a virtual machine carries this mark.
func ours(v vm, mark machine.Mark) bool {
	return mark != "" && (v.instanceUUID == instanceUUID(mark) || v.mark == string(mark))
}

// parseRef reads "VirtualMachine:vm-12".
func parseRef(id string) (types.ManagedObjectReference, bool) {
	var ref types.ManagedObjectReference
	if id == "" || !ref.FromString(id) || ref.Type != "VirtualMachine" {
		return types.ManagedObjectReference{}, false
	}
	return ref, true
}

// Lookup implements machine.Platform. It costs no call while the store is as good as a live read.
func (s *Session) Lookup(ctx context.Context, id machine.Identity) (*machine.Server, error) {
	ref, ok := parseRef(id.ServerID)
	if !ok {
		ref, ok = s.observer.byMark(id.Mark)
	}
	if ok {
		if v, known := s.observer.known(ref); known && ours(v, id.Mark) {
			return s.server(ctx, v, id), nil
		}
	}
	return s.LookupLive(ctx, id)
}

// LookupLive implements machine.Platform: by the recorded reference, then by instance UUID, then by BIOS UUID.
func (s *Session) LookupLive(ctx context.Context, id machine.Identity) (*machine.Server, error) {
	v, err := s.find(ctx, id)
	if err != nil {
		return nil, err
	}
	s.observer.took(v, id.Mark)
	return s.server(ctx, v, id), nil
}

// find is a live look-up. NotFound only when every identity given leads to nothing of ours.
func (s *Session) find(ctx context.Context, id machine.Identity) (vm, error) {
	tried := map[types.ManagedObjectReference]bool{}
	var foreign *vm
	look := func(ref types.ManagedObjectReference) (vm, bool, error) {
		if tried[ref] {
			return vm{}, false, nil
		}
		tried[ref] = true
		v, err := s.client.readVM(ctx, ref)
		switch {
		case isFault[*types.ManagedObjectNotFound](err) || machine.Is(err, machine.NotFound):
			s.observer.forget(ref)
			return vm{}, false, nil
		case err != nil:
			return vm{}, false, failed(err, "reading virtual machine %s", ref.Value)
		case ours(v, id.Mark):
			return v, true, nil
		case v.instanceUUID == "" && v.mark == "":
			// Not even its identity can be read: neither proof of presence nor of absence.
			return vm{}, false, busy(ReasonAttachments, 0, "virtual machine %s (%s) does not show its identity (connection "+
				"state %s); waiting until it does", v.name, ref.Value, v.connection)
		case v.mark == "":
			foreign = &v
		}
		return vm{}, false, nil
	}
	ref, ok := parseRef(id.ServerID)
	if !ok {
		ref, ok = s.observer.byMark(id.Mark) // our own clone, its reference not on record yet
	}
	if ok {
		if v, found, err := look(ref); err != nil || found {
			return v, err
		}
	}
	searches := []struct {
		uuid     string
		instance bool
	}{{uuid: strings.ToLower(id.HardwareID)}}
	if id.Mark != "" {
		searches = slices.Insert(searches, 0, struct {
			uuid     string
			instance bool
		}{instanceUUID(id.Mark), true})
	}
	for _, search := range searches {
		if search.uuid == "" {
			continue
		}
		res, err := methods.FindAllByUuid(ctx, s.client.vim, &types.FindAllByUuid{
			This: *s.client.vim.ServiceContent.SearchIndex, Uuid: search.uuid, VmSearch: true,
			InstanceUuid: types.NewBool(search.instance),
		})
		if err != nil {
			return vm{}, failed(err, "looking for UUID %s", search.uuid)
		}
		for _, ref := range res.Returnval {
			if v, found, err := look(ref); err != nil || found {
				return v, err
			}
		}
	}
	if foreign != nil {
		return vm{}, conflict(ReasonNameTaken, "virtual machine %s (%s) has a UUID or reference recorded for %s but does not "+
			"carry its mark (instance UUID %s, expected %s): it is left alone; a human must decide whose it is", foreign.name,
			foreign.ref.Value, id.Name, foreign.instanceUUID, instanceUUID(id.Mark))
	}
	return vm{}, notFound("no virtual machine of %s: none with instance UUID %s, BIOS UUID %q or reference %q", id.Name,
		instanceUUID(id.Mark), id.HardwareID, id.ServerID)
}

// server puts a virtual machine into neutral words.
func (s *Session) server(ctx context.Context, v vm, id machine.Identity) *machine.Server {
	out := &machine.Server{
		Identity: machine.Identity{
			Mark: id.Mark, ServerID: v.ref.String(), HardwareID: v.biosUUID, Location: id.Location, Name: v.name,
		},
		Power:        powerState(v.power),
		Host:         s.hostName(ctx, v.host),
		GuestRunning: v.tools == string(types.VirtualMachineToolsRunningStatusGuestToolsRunning),
		Volumes:      v.volumes(),
		NICs:         v.nics(),
		Fitted:       v.fitted(),

		PassedThrough: v.passedThrough(),
	}
	out.Unreadable = v.unreadable()
	out.Readable = out.Unreadable == ""
	return out
}

func powerState(p types.VirtualMachinePowerState) machine.PowerState {
	switch p {
	case types.VirtualMachinePowerStatePoweredOn:
		return machine.PowerOn
	case types.VirtualMachinePowerStatePoweredOff:
		return machine.PowerOff
	case types.VirtualMachinePowerStateSuspended:
		return machine.PowerSuspended
	default:
		return machine.PowerUnknown
	}
}

// unreadable says why what is known of a virtual machine is no proof of anything, "" if it is.
func (v vm) unreadable() string {
	switch {
	case v.connection != "" && v.connection != types.VirtualMachineConnectionStateConnected:
		return fmt.Sprintf("its connection state is %s", v.connection)
	case len(v.missing) > 0:
		return "vCenter does not show its " + strings.Join(v.missing, ", ")
	case len(v.devices) == 0:
		return "vCenter does not show its devices"
	case v.template:
		return "it was turned into a template"
	default:
		return ""
	}
}

// fitted: the last fit is complete, the volumes it attached are there.
func (v vm) fitted() bool {
	if v.fit == nil || v.fit.Digest == "" || v.fit.Mark != v.mark {
		return false
	}
	attached := map[string]bool{}
	for _, d := range v.attached() {
		attached[d.path] = true
	}
	for _, path := range v.fit.Volumes {
		if !attached[normalPath(path)] {
			return false
		}
	}
	return true
}

// passedThrough counts physical devices and vGPUs.
func (v vm) passedThrough() int {
	n := 0
	for _, d := range v.devices {
		if _, ok := d.(*types.VirtualPCIPassthrough); ok {
			n++
		}
	}
	return n
}

func (v vm) nics() []machine.ObservedNIC {
	var out []machine.ObservedNIC
	for _, card := range v.cards() {
		nic := machine.ObservedNIC{MAC: strings.ToLower(card.MacAddress)}
		if b, ok := card.Backing.(*types.VirtualEthernetCardNetworkBackingInfo); ok {
			nic.Network = b.DeviceName
		}
		for _, net := range v.nets {
			if !strings.EqualFold(net.MacAddress, card.MacAddress) {
				continue
			}
			if net.Network != "" {
				nic.Network = net.Network
			}
			nic.Connected = net.Connected
			nic.Addresses = append(nic.Addresses, addressesOf(net)...)
		}
		out = append(out, nic)
	}
	return out
}

func addressesOf(net types.GuestNicInfo) []string {
	if net.IpConfig == nil || len(net.IpConfig.IpAddress) == 0 {
		return net.IpAddress
	}
	out := slices.Clone(net.IpAddress)
	for _, a := range net.IpConfig.IpAddress {
		if !slices.Contains(out, a.IpAddress) {
			out = append(out, a.IpAddress)
		}
	}
	return out
}

// cards lists the network cards in the guest's order.
func (v vm) cards() []*types.VirtualEthernetCard {
	var out []*types.VirtualEthernetCard
	for _, d := range v.devices {
		if card, ok := d.(types.BaseVirtualEthernetCard); ok {
			out = append(out, card.GetVirtualEthernetCard())
		}
	}
	slices.SortStableFunc(out, func(a, b *types.VirtualEthernetCard) int { return int(a.Key - b.Key) })
	return out
}

// hostName turns a host's reference into its name; hosts hardly ever change theirs. "" when it cannot be read.
func (s *Session) hostName(ctx context.Context, ref types.ManagedObjectReference) string {
	if ref.Value == "" {
		return ""
	}
	if name, ok := s.hosts.Load(ref); ok {
		return name.(string)
	}
	content, err := s.client.retrieve(ctx, properties("HostSystem", []string{"name"}, ref))
	if err != nil || len(content) != 1 || len(content[0].PropSet) != 1 {
		return ""
	}
	name, _ := content[0].PropSet[0].Val.(string)
	s.hosts.Store(ref, name)
	return name
}
