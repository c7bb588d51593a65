package vsphere

import (
	"context"
	"sync"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
)

// fields remembers the keys of custom attributes by name. Definitions are global and hardly ever go away.
type fields struct {
	mu   sync.Mutex
	keys map[string]int32
}

// setFields sets custom attributes of a VM and defines those that are not defined yet.
func (s *Session) setFields(ctx context.Context, v vm, values map[string]string) error {
	if len(values) == 0 {
		return nil
	}
	manager := s.client.vim.ServiceContent.CustomFieldsManager
	if manager == nil {
		return refused(ReasonBadShape, "vCenter %s has no custom attributes", s.client.cfg.Server)
	}
	for _, name := range sorted(values) {
		key, err := s.fieldKey(ctx, *manager, name)
		if err != nil {
			return failed(err, "defining custom attribute %q", name)
		}
		set := func() error {
			_, err := methods.SetField(ctx, s.client.vim, &types.SetField{This: *manager, Entity: v.ref, Key: key, Value: values[name]})
			return err
		}
		err = set()
		if isFault[*types.InvalidArgument](err) {
			// Somebody removed the definition since we read it.
			s.fields.forget()
			if key, err = s.fieldKey(ctx, *manager, name); err == nil {
				err = set()
			}
		}
		if err != nil {
			return failed(err, "setting custom attribute %q of virtual machine %s", name, v.name)
		}
	}
	return nil
}

func (f *fields) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys = nil
}

// fieldKey finds or makes the definition of an attribute of virtual machines.
func (s *Session) fieldKey(ctx context.Context, manager types.ManagedObjectReference, name string) (int32, error) {
	f := &s.fields
	f.mu.Lock()
	defer f.mu.Unlock()
	if key, ok := f.keys[name]; ok {
		return key, nil
	}
	if err := f.read(ctx, s.client, manager); err != nil {
		return 0, err
	}
	if key, ok := f.keys[name]; ok {
		return key, nil
	}
	res, err := methods.AddCustomFieldDef(ctx, s.client.vim, &types.AddCustomFieldDef{This: manager, Name: name, MoType: "VirtualMachine"})
	if isFault[*types.DuplicateName](err) {
		// Another program was quicker, or the attribute is defined for another kind of object only.
		if err := f.read(ctx, s.client, manager); err != nil {
			return 0, err
		}
		if key, ok := f.keys[name]; ok {
			return key, nil
		}
		return 0, refused(ReasonBadShape, "custom attribute %q exists for another kind of object: rename it in vSphere or choose another name", name)
	}
	if err != nil {
		return 0, err
	}
	f.keys[name] = res.Returnval.Key
	return res.Returnval.Key, nil
}

func (f *fields) read(ctx context.Context, c *client, manager types.ManagedObjectReference) error {
	content, err := c.retrieve(ctx, properties("CustomFieldsManager", []string{"field"}, manager))
	if err != nil {
		return err
	}
	f.keys = map[string]int32{}
	for _, o := range content {
		for _, p := range o.PropSet {
			defs, _ := p.Val.(types.ArrayOfCustomFieldDef)
			for _, d := range defs.CustomFieldDef {
				if d.ManagedObjectType == "" || d.ManagedObjectType == "VirtualMachine" {
					f.keys[d.Name] = d.Key
				}
			}
		}
	}
	return nil
}
