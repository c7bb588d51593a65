package vsphere

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
)

// Tag is a tag that must be on an inventory object: by it, storage and the cloud provider of the guests know regions and zones.
type Tag struct {
	// Field is where it is declared, such as "spec.region".
	Field          string
	Name, Category string
	// On is the kind of object that carries it.
	On Carrier
	// Configure makes what is missing: category, tag, and its attachment.
	Configure bool
}

// Carrier is a kind of object that carries the tag of a region or a zone.
type Carrier string

// Carriers, as published.
const (
	OnDatacenter     Carrier = "Datacenter"
	OnComputeCluster Carrier = "ComputeCluster"
	OnHostGroup      Carrier = "HostGroup"
)

// carriers are the objects that must carry a tag.
type carriers struct {
	// kind is vCenter's type of them, words what people call them.
	kind  string
	words string
	refs  []mo.Reference
}

// carriersOf finds the objects for a tag: the hosts of a host group carry it one by one, because a group cannot.
func carriersOf(tag Tag, reason string, dc, cluster *node, groups *affinity, hostGroup string) (carriers, error) {
	switch {
	case tag.On == OnDatacenter:
		return carriers{"Datacenter", "datacenter " + dc.name, []mo.Reference{dc.ref}}, nil
	case cluster == nil:
		return carriers{}, refused(reason, "%s.type is %s, which needs spec.topology.computeCluster", tag.Field, tag.On)
	case tag.On == OnComputeCluster:
		return carriers{cluster.ref.Type, "compute cluster " + cluster.name, []mo.Reference{cluster.ref}}, nil
	case groups == nil:
		return carriers{}, refused(reason, "%s.type is %s, which needs spec.topology.hosts", tag.Field, tag.On)
	}
	out := carriers{kind: "HostSystem", words: "hosts of host group " + hostGroup}
	for _, host := range groups.hosts[hostGroup].Host {
		out.refs = append(out.refs, host)
	}
	return out, nil
}

// checkTag looks for category, tag and attachment. With Configure it makes what is missing, and never takes away or replaces what
// somebody else has made.
func (s *Session) checkTag(ctx context.Context, tag Tag, reason string, on carriers) error {
	if tag.Configure {
		s.tagging.Lock()
		defer s.tagging.Unlock()
	}
	doing := fmt.Sprintf("checking tag %q of category %q", tag.Name, tag.Category)
	return s.rest(ctx, doing, func(ctx context.Context, c *rest.Client) error {
		m := tags.NewManager(c)
		category, err := s.category(ctx, m, tag, reason, on)
		if err != nil {
			return err
		}
		there, err := m.GetTagsForCategory(ctx, category.ID)
		if err != nil {
			return err
		}
		id, err := s.tag(ctx, m, tag, reason, category, there)
		if err != nil {
			return err
		}
		return s.attached(ctx, m, tag, reason, category, there, id, on)
	})
}

// category finds the category and sees that it may be put on the carriers.
func (s *Session) category(ctx context.Context, m *tags.Manager, tag Tag, reason string, on carriers) (*tags.Category, error) {
	all, err := m.GetCategories(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range all {
		names = append(names, all[i].Name)
		if all[i].Name != tag.Category {
			continue
		}
		category := &all[i]
		if len(category.AssociableTypes) == 0 || slices.ContainsFunc(category.AssociableTypes, func(t string) bool { return associable(t) == on.kind }) {
			return category, nil
		}
		if !tag.Configure {
			return nil, refused(reason, "%s.tagCategory %q: the category allows its tags on %s, not on the %s: allow %s, or set %s.autoConfigure",
				tag.Field, tag.Category, strings.Join(category.AssociableTypes, ", "), on.words, on.kind, tag.Field)
		}
		category.AssociableTypes = append(category.AssociableTypes, on.kind)
		s.client.cfg.Log.Info("Allowing a tag category on one more kind of object", "category", tag.Category, "kind", on.kind)
		return category, m.UpdateCategory(ctx, category)
	}
	if !tag.Configure {
		slices.Sort(names)
		return nil, refused(reason, "%s.tagCategory %q: vCenter has no such tag category; there is %s: create it, or set %s.autoConfigure",
			tag.Field, tag.Category, listNames(names), tag.Field)
	}
	// One tag of the category per object: nothing is in two regions or in two zones.
	category := &tags.Category{
		Name: tag.Category, Description: "Failure domains of Kubernetes clusters", Cardinality: "SINGLE", AssociableTypes: []string{on.kind},
	}
	s.client.cfg.Log.Info("Creating a tag category", "category", tag.Category)
	category.ID, err = m.CreateCategory(ctx, category)
	return category, raced(err)
}

// associable strips the name space that vCenter may put before the type's name.
func associable(kind string) string {
	return kind[strings.LastIndex(kind, ":")+1:]
}

// tag finds the tag in its category and returns its ID.
func (s *Session) tag(ctx context.Context, m *tags.Manager, tag Tag, reason string, category *tags.Category, there []tags.Tag) (string, error) {
	var names []string
	for i := range there {
		names = append(names, there[i].Name)
		if there[i].Name == tag.Name {
			return there[i].ID, nil
		}
	}
	if !tag.Configure {
		slices.Sort(names)
		return "", refused(reason, "%s.name %q: tag category %q has no such tag; there is %s: create it, or set %s.autoConfigure",
			tag.Field, tag.Name, tag.Category, listNames(names), tag.Field)
	}
	s.client.cfg.Log.Info("Creating a tag", "category", tag.Category, "tag", tag.Name)
	id, err := m.CreateTag(ctx, &tags.Tag{Name: tag.Name, CategoryID: category.ID, Description: "Failure domains of Kubernetes clusters"})
	return id, raced(err)
}

// raced: another program was quicker. What it made is looked at in a moment.
func raced(err error) error {
	if machine.Is(restFault(err), machine.Conflict) {
		return busy(ReasonTask, firstAbsence, "another program is making the same tags")
	}
	return err
}

// attached sees that all carriers have the tag, and that none has another tag of a category that allows one only.
func (s *Session) attached(ctx context.Context, m *tags.Manager, tag Tag, reason string, category *tags.Category, there []tags.Tag, id string, on carriers) error {
	list, err := m.ListAttachedTagsOnObjects(ctx, on.refs)
	if err != nil {
		return err
	}
	has := map[types.ManagedObjectReference][]string{}
	for _, a := range list {
		has[a.ObjectID.Reference()] = a.TagIDs
	}
	single := strings.EqualFold(category.Cardinality, "SINGLE")
	var missing []mo.Reference
	for _, ref := range on.refs {
		on := has[ref.Reference()]
		if slices.Contains(on, id) {
			continue
		}
		missing = append(missing, ref)
		for i := range there {
			if single && slices.Contains(on, there[i].ID) {
				return refused(reason, "%s: %s carries tag %q of category %q, not %q: an object has one tag of this category; correct the tag "+
					"in vSphere, or %s.name", tag.Field, s.called(ctx, ref.Reference()), there[i].Name, tag.Category, tag.Name, tag.Field)
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if !tag.Configure {
		return refused(reason, "%s: tag %q of category %q is not on %s: attach it to the %s, or set %s.autoConfigure", tag.Field, tag.Name,
			tag.Category, s.allCalled(ctx, missing), on.words, tag.Field)
	}
	for _, ref := range missing {
		s.client.cfg.Log.Info("Attaching a tag", "category", tag.Category, "tag", tag.Name, "object", ref.Reference().Value)
		if err := m.AttachTag(ctx, id, ref); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) allCalled(ctx context.Context, refs []mo.Reference) string {
	var names []string
	for _, ref := range refs {
		names = append(names, s.called(ctx, ref.Reference()))
	}
	return listNames(names)
}

// called is what people call a carrier of tags.
func (s *Session) called(ctx context.Context, ref types.ManagedObjectReference) string {
	if ref.Type == "HostSystem" {
		if name := s.hostName(ctx, ref); name != "" {
			return "host " + name
		}
		return ref.Value
	}
	word := "datacenter"
	if ref.Type != "Datacenter" {
		word = "compute cluster"
	}
	inv, err := s.inventory.get(ctx)
	if err == nil && inv.nodes[ref] != nil {
		return word + " " + inv.nodes[ref].name
	}
	return ref.Value
}
