package vsphere

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/singleflight"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
)

// template is a virtual machine to clone from.
type template struct {
	vm       vm
	current  *types.ManagedObjectReference
	snapshot []types.VirtualMachineSnapshotTree
	read     time.Time
}

// templates remembers templates by datacenter and the text that names them, for Limits.PathTTL.
type templates struct {
	reads singleflight.Group

	mu    sync.Mutex
	known map[string]*template
}

func (t *templates) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.known)
}

func (s *Session) template(ctx context.Context, inv *inventory, dc *node, value string) (*template, error) {
	key := dc.ref.Value + "\x00" + value
	s.templates.mu.Lock()
	known := s.templates.known[key]
	s.templates.mu.Unlock()
	if known != nil && time.Since(known.read) < s.client.cfg.PathTTL {
		return known, nil
	}
	t, err, _ := s.templates.reads.Do(key, func() (any, error) {
		// The read serves everybody who waits for it, whatever becomes of the one who started it.
		return s.readTemplate(context.WithoutCancel(ctx), inv, dc, value, key)
	})
	if err != nil {
		return nil, err
	}
	return t.(*template), nil
}

func (s *Session) readTemplate(ctx context.Context, inv *inventory, dc *node, value, key string) (*template, error) {
	ref, err := s.findTemplate(ctx, inv, dc, value)
	if err != nil {
		return nil, err
	}
	content, err := s.client.retrieve(ctx, properties("VirtualMachine", append(slices.Clone(vmProperties), "snapshot"), ref))
	if err != nil {
		return nil, failed(err, "reading template %s", value)
	}
	if len(content) != 1 {
		return nil, failed(notFound("template %s is gone", value), "")
	}
	t := &template{vm: fromContent(content[0]), read: time.Now()}
	for _, p := range content[0].PropSet {
		if info, ok := p.Val.(types.VirtualMachineSnapshotInfo); ok && p.Name == "snapshot" {
			t.current, t.snapshot = info.CurrentSnapshot, info.RootSnapshotList
		}
	}
	s.templates.mu.Lock()
	s.templates.known[key] = t
	s.templates.mu.Unlock()
	return t, nil
}

// findTemplate follows VS-V7: an instance UUID, a path, else a name anywhere in the datacenter.
func (s *Session) findTemplate(ctx context.Context, inv *inventory, dc *node, value string) (types.ManagedObjectReference, error) {
	none := types.ManagedObjectReference{}
	if value == "" {
		return none, refused(ReasonTemplate, "spec.template is empty: name the template to clone")
	}
	index := *s.client.vim.ServiceContent.SearchIndex
	if id, err := uuid.Parse(value); err == nil {
		res, err := methods.FindAllByUuid(ctx, s.client.vim, &types.FindAllByUuid{
			This: index, Datacenter: &dc.ref, Uuid: id.String(), VmSearch: true, InstanceUuid: types.NewBool(true),
		})
		if err != nil {
			return none, failed(err, "looking for template %s", value)
		}
		if len(res.Returnval) == 1 {
			return res.Returnval[0], nil
		}
	}
	path := value
	if !strings.HasPrefix(value, "/") {
		path = inv.path(dc) + "/vm/" + value
	}
	res, err := methods.FindByInventoryPath(ctx, s.client.vim, &types.FindByInventoryPath{
		This: index, InventoryPath: strings.TrimPrefix(path, "/"),
	})
	if err != nil {
		return none, failed(err, "looking for template %s", value)
	}
	if res.Returnval != nil && res.Returnval.Type == "VirtualMachine" {
		return *res.Returnval, nil
	}
	return s.searchTemplate(ctx, inv, dc, value)
}

// searchTemplate looks at the names of all virtual machines of the datacenter, and lists its templates if it must refuse.
func (s *Session) searchTemplate(ctx context.Context, inv *inventory, dc *node, value string) (types.ManagedObjectReference, error) {
	none := types.ManagedObjectReference{}
	view, err := s.client.containerView(ctx, dc.ref, []string{"VirtualMachine"})
	if err != nil {
		return none, failed(err, "listing virtual machines of %s", inv.where(dc))
	}
	content, err := s.client.retrieve(ctx, through(view, "view", types.PropertySpec{
		Type: "VirtualMachine", PathSet: []string{"name", "config.template", "parent"},
	}))
	_, _ = methods.DestroyView(ctx, s.client.vim, &types.DestroyView{This: view})
	if err != nil {
		return none, failed(err, "listing virtual machines of %s", inv.where(dc))
	}
	var found []types.ManagedObjectReference
	var paths, templates []string
	for _, o := range content {
		v := fromContent(o)
		var parent types.ManagedObjectReference
		for _, p := range o.PropSet {
			if p.Name == "parent" {
				parent, _ = p.Val.(types.ManagedObjectReference)
			}
		}
		path := strings.TrimPrefix(inv.path(inv.nodes[parent]), inv.path(dc)+"/vm") + "/" + v.name
		path = strings.TrimPrefix(path, "/")
		if v.name == value && !strings.Contains(value, "/") {
			found = append(found, o.Obj)
			paths = append(paths, path)
		}
		if v.template {
			templates = append(templates, path)
		}
	}
	slices.Sort(paths)
	slices.Sort(templates)
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return none, refused(ReasonTemplate, "spec.template %q: no virtual machine or template of this name, path or instance "+
			"UUID in %s; its templates are: %s; name one of these", value, inv.where(dc), listNames(templates))
	default:
		return none, refused(ReasonTemplate, "spec.template %q names %d virtual machines in %s: %s; give a path", value,
			len(found), inv.where(dc), listNames(paths))
	}
}

// link decides on the clone mode (VS-V8): the snapshot to link to, or nil for a full clone.
func (t *template) link(mode, name string) (*types.ManagedObjectReference, error) {
	switch mode {
	case "fullClone":
		return nil, nil
	case "", "linkedClone":
	default:
		return nil, refused(ReasonBadShape, "spec.cloneMode %q is neither fullClone nor linkedClone", mode)
	}
	if name == "" {
		return t.current, nil
	}
	var names []string
	var ref *types.ManagedObjectReference
	var walk func(list []types.VirtualMachineSnapshotTree)
	walk = func(list []types.VirtualMachineSnapshotTree) {
		for _, s := range list {
			names = append(names, s.Name)
			if s.Name == name && ref == nil {
				found := s.Snapshot
				ref = &found
			}
			walk(s.ChildSnapshotList)
		}
	}
	walk(t.snapshot)
	if ref == nil {
		return nil, refused(ReasonSnapshot, "spec.snapshot %q: template %s has no such snapshot; it has %s: name one of these, or leave spec.snapshot empty for the current one", name, t.vm.name,
			listNames(names))
	}
	return ref, nil
}
