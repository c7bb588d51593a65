package vsphere

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
)

// Keys of our entries in a virtual machine's extra configuration. They are not guestinfo keys: the guest cannot write them.
const (
	// keyMark holds the mark in clear, beside the instance UUID made of it.
	keyMark = "berth.mark"
	// keyDisks holds which of the VM's own disks is which ephemeral disk of the place.
	keyDisks = "berth.disks"
	// keyFit holds what the last fit put on the VM, so that a crash between the call and its record is noticed.
	keyFit = "berth.fit"
)

func extra(key string) string { return `config.extraConfig["` + key + `"]` }

// vmProperties is everything anybody here ever needs to know about a virtual machine; read and watched together.
var vmProperties = []string{
	"name", "runtime.powerState", "runtime.connectionState", "runtime.host", "guest.net", "guest.toolsRunningStatus",
	"config.uuid", "config.instanceUuid", "config.template", "config.version", "config.files.vmPathName",
	"config.hardware.device", extra(keyMark), extra(keyDisks), extra(keyFit),
}

// vm is a virtual machine as read; a value, replaced and never changed in place.
type vm struct {
	ref          types.ManagedObjectReference
	name         string
	power        types.VirtualMachinePowerState
	connection   types.VirtualMachineConnectionState
	host         types.ManagedObjectReference
	nets         []types.GuestNicInfo
	tools        string
	biosUUID     string
	instanceUUID string
	template     bool
	version      string
	vmx          string
	devices      object.VirtualDeviceList
	mark         string
	disks        map[string]unit
	fit          *fitRecord
	// missing names properties the vCenter would not show.
	missing []string
}

// fitRecord is the content of keyFit.
type fitRecord struct {
	// Digest of everything the fit handed over.
	Digest string `json:"digest"`
	// Volumes that the fit attached.
	Volumes []string `json:"volumes,omitempty"`
	// Mark of the machine that was fitted: a template made from one of our machines hands the record on to its clones.
	Mark string `json:"mark"`
}

// set takes over one property.
func (v *vm) set(name string, value any) {
	switch name {
	case "name":
		v.name, _ = value.(string)
	case "runtime.powerState":
		v.power, _ = value.(types.VirtualMachinePowerState)
	case "runtime.connectionState":
		v.connection, _ = value.(types.VirtualMachineConnectionState)
	case "runtime.host":
		v.host, _ = value.(types.ManagedObjectReference)
	case "guest.net":
		v.nets = nil
		if list, ok := value.(types.ArrayOfGuestNicInfo); ok {
			v.nets = list.GuestNicInfo
		}
	case "guest.toolsRunningStatus":
		v.tools, _ = value.(string)
	case "config.uuid":
		v.biosUUID = lowerString(value)
	case "config.instanceUuid":
		v.instanceUUID = lowerString(value)
	case "config.template":
		v.template, _ = value.(bool)
	case "config.version":
		v.version, _ = value.(string)
	case "config.files.vmPathName":
		v.vmx, _ = value.(string)
	case "config.hardware.device":
		v.devices = nil
		if list, ok := value.(types.ArrayOfVirtualDevice); ok {
			v.devices = list.VirtualDevice
		}
	case extra(keyMark):
		v.mark = optionText(value)
	case extra(keyDisks):
		v.disks = nil
		_ = json.Unmarshal([]byte(optionText(value)), &v.disks)
	case extra(keyFit):
		v.fit = nil
		if text := optionText(value); text != "" {
			v.fit = new(fitRecord)
			_ = json.Unmarshal([]byte(text), v.fit)
		}
	}
}

func lowerString(value any) string {
	text, _ := value.(string)
	return strings.ToLower(text)
}

func optionText(value any) string {
	switch option := value.(type) {
	case types.OptionValue:
		text, _ := option.Value.(string)
		return text
	case *types.OptionValue:
		text, _ := option.Value.(string)
		return text
	case types.BaseOptionValue:
		text, _ := option.GetOptionValue().Value.(string)
		return text
	default:
		text, _ := value.(string)
		return text
	}
}

func fromContent(o types.ObjectContent) vm {
	v := vm{ref: o.Obj}
	for _, p := range o.PropSet {
		v.set(p.Name, p.Val)
	}
	for _, m := range o.MissingSet {
		v.missing = append(v.missing, m.Path)
	}
	return v
}

func (v vm) equal(o vm) bool { return reflect.DeepEqual(v, o) }

// folder is the VM's own directory, "[datastore] dir".
func (v vm) folder() object.DatastorePath {
	var p object.DatastorePath
	p.FromString(v.vmx)
	if i := strings.LastIndex(p.Path, "/"); i >= 0 {
		p.Path = p.Path[:i]
	}
	return p
}

// retrieve is one property read.
func (c *client) retrieve(ctx context.Context, specs ...types.PropertyFilterSpec) ([]types.ObjectContent, error) {
	res, err := methods.RetrieveProperties(ctx, c.vim, &types.RetrieveProperties{
		This: c.vim.ServiceContent.PropertyCollector, SpecSet: specs,
	})
	if err != nil {
		return nil, err
	}
	return res.Returnval, nil
}

// properties reads some properties of some objects of one type.
func properties(kind string, paths []string, refs ...types.ManagedObjectReference) types.PropertyFilterSpec {
	spec := types.PropertyFilterSpec{PropSet: []types.PropertySpec{{Type: kind, PathSet: paths}}}
	for _, ref := range refs {
		spec.ObjectSet = append(spec.ObjectSet, types.ObjectSpec{Obj: ref})
	}
	return spec
}

// through reads the objects that a property of another object lists.
func through(source types.ManagedObjectReference, path string, sets ...types.PropertySpec) types.PropertyFilterSpec {
	return types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{
			Obj: source, Skip: types.NewBool(true),
			SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{Type: source.Type, Path: path}},
		}},
		PropSet: sets,
	}
}

// readVM reads one virtual machine live. A missing one is a ManagedObjectNotFound fault.
func (c *client) readVM(ctx context.Context, ref types.ManagedObjectReference) (vm, error) {
	content, err := c.retrieve(ctx, properties("VirtualMachine", vmProperties, ref))
	if err != nil {
		return vm{}, err
	}
	if len(content) != 1 {
		return vm{}, notFound("virtual machine %s is not there", ref.Value)
	}
	return fromContent(content[0]), nil
}
