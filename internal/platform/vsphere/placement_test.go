package vsphere_test

import (
	"context"
	"strings"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// domain is a failure domain of the default inventory that says nothing wrong.
func domain() vsphere.FailureDomain {
	return vsphere.FailureDomain{
		Region:     vsphere.Tag{Field: "spec.region", Name: "region-1", Category: "k8s-region", On: vsphere.OnDatacenter, Configure: true},
		Zone:       vsphere.Tag{Field: "spec.zone", Name: "zone-a", Category: "k8s-zone", On: vsphere.OnComputeCluster, Configure: true},
		Datacenter: "dc-a", ComputeCluster: "cl-a", Datastore: "ds-shared-a", Networks: []string{"pg-node"}, NetworksField: "spec.topology.networks[%d]",
		ResourcePool: "/dc-a/host/cl-a/Resources/k8s",
	}
}

// tagger is an administrator at the tag service.
func (c *cloud) tagger(t *testing.T) *tags.Manager {
	t.Helper()
	client, _, _ := c.admin(t)
	r := rest.NewClient(client.Client)
	if err := r.Login(t.Context(), c.Userinfo()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Logout(context.Background()) })
	return tags.NewManager(r)
}

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// VS-V47: whatever a failure domain names and is not there is named by field, value and place, with what there is instead.
func TestFailureDomainIsLookedFor(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	for name, wrong := range map[string]struct {
		edit   func(*vsphere.FailureDomain)
		reason string
		says   []string
	}{
		"datacenter":      {func(d *vsphere.FailureDomain) { d.Datacenter = "dc-z" }, vsphere.ReasonDatacenter, []string{"spec.topology.datacenter", "dc-z", "dc-a, dc-b"}},
		"compute cluster": {func(d *vsphere.FailureDomain) { d.ComputeCluster = "cl-b" }, vsphere.ReasonComputeCluster, []string{"spec.topology.computeCluster", "cl-b", "dc-a", "there is cl-a"}},
		"datastore":       {func(d *vsphere.FailureDomain) { d.Datastore = "ds-z" }, vsphere.ReasonDatastore, []string{"spec.topology.datastore", "ds-z", "ds-shared-a"}},
		"network":         {func(d *vsphere.FailureDomain) { d.Networks = []string{"pg-node", "pg-z"} }, vsphere.ReasonNetwork, []string{"spec.topology.networks[1]", "pg-z", "pg-stor"}},
		"region category": {func(d *vsphere.FailureDomain) { d.Region.Configure, d.Region.Category = false, "absent" }, vsphere.ReasonRegion, []string{"spec.region.tagCategory", "absent", "autoConfigure"}},
		"zone category":   {func(d *vsphere.FailureDomain) { d.Zone.Configure, d.Zone.Category = false, "absent" }, vsphere.ReasonZone, []string{"spec.zone.tagCategory", "absent", "k8s-region", "autoConfigure"}},
		"hosts without cluster": {
			func(d *vsphere.FailureDomain) { d.ComputeCluster, d.HostGroup, d.VMGroup = "", "rack-1", "vms" },
			vsphere.ReasonHosts,
			[]string{"spec.topology.hosts", "spec.topology.computeCluster"},
		},
		"zone on no cluster": {func(d *vsphere.FailureDomain) { d.ComputeCluster, d.ResourcePool = "", "" }, vsphere.ReasonZone, []string{"spec.zone.type", "computeCluster"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := domain()
			wrong.edit(&d)
			_, err := s.CheckFailureDomain(t.Context(), d)
			refusal(t, err, machine.Refused, wrong.reason, wrong.says...)
		})
	}
	if err := s.CheckConstraint(t.Context(), vsphere.Constraint{Datacenter: "dc-a", Folder: "/dc-a/vm/k8s", ResourcePool: "/dc-a/host/cl-a/Resources/k8s"}); err != nil {
		t.Fatal(err)
	}
	err := s.CheckConstraint(t.Context(), vsphere.Constraint{Datacenter: "dc-a", Folder: "nowhere"})
	refusal(t, err, machine.Refused, vsphere.ReasonFolder, "spec.placementConstraint.folder", "nowhere", "k8s")
	err = s.CheckConstraint(t.Context(), vsphere.Constraint{Datacenter: "dc-a", ResourcePool: "nowhere"})
	refusal(t, err, machine.Refused, vsphere.ReasonResourcePool, "spec.placementConstraint.resourcePool", "nowhere", "k8s")
}

// VS-V47: the compute cluster owns the resource pool.
func TestResourcePoolOfAnotherCluster(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	_, f, dc := c.admin(t)
	folders := must[*object.DatacenterFolders](t)(dc.Folders(t.Context()))
	other := must[*object.ClusterComputeResource](t)(folders.HostFolder.CreateCluster(t.Context(), "cl-other", types.ClusterConfigSpecEx{}))
	root := must[*object.ResourcePool](t)(other.ResourcePool(t.Context()))
	must[*object.ResourcePool](t)(root.Create(t.Context(), "theirs", types.DefaultResourceConfigSpec()))
	_ = f
	s := c.dial(t)
	d := domain()
	d.ResourcePool = "theirs"
	_, err := s.CheckFailureDomain(t.Context(), d)
	refusal(t, err, machine.Refused, vsphere.ReasonResourcePool, "theirs", "cl-other", "spec.topology.computeCluster is cl-a", "cl-a/Resources/k8s")
	d.ResourcePool = "cl-a" // its root pool
	if _, err := s.CheckFailureDomain(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// VS-V47: with autoConfigure, category and tag are made once and attached where they belong; what is there is used as it is.
func TestTagsAreConfigured(t *testing.T) {
	c := newCloud(t, vcenter.Options{})
	s := c.dial(t)
	check := func(d vsphere.FailureDomain) error {
		_, err := s.CheckFailureDomain(t.Context(), d)
		return err
	}
	if err := check(domain()); err != nil {
		t.Fatal(err)
	}
	m := c.tagger(t)
	category := must[*tags.Category](t)(m.GetCategory(t.Context(), "k8s-zone"))
	if category.Cardinality != "SINGLE" || strings.Join(category.AssociableTypes, ",") != "ClusterComputeResource" {
		t.Fatalf("%+v", category)
	}
	region := must[*tags.Tag](t)(m.GetTagForCategory(t.Context(), "region-1", "k8s-region"))
	refs := must[[]mo.Reference](t)(m.ListAttachedObjects(t.Context(), region.ID))
	if len(refs) != 1 || refs[0].Reference().Type != "Datacenter" {
		t.Fatalf("%v", refs)
	}

	// The second look makes nothing, and without autoConfigure it is content.
	before := c.meter.Snapshot()
	plain := domain()
	plain.Region.Configure, plain.Zone.Configure = false, false
	for _, d := range []vsphere.FailureDomain{domain(), plain} {
		if err := check(d); err != nil {
			t.Fatal(err)
		}
	}
	for method := range c.meter.Snapshot().Since(before).Calls {
		if strings.HasPrefix(method, "REST PATCH") || method == "REST POST /cis/tagging/tag" || method == "REST POST /cis/tagging/category" {
			t.Errorf("a configured domain costs %s", method)
		}
	}

	// One region tag sits on several datacenters.
	b := vsphere.FailureDomain{
		Region: domain().Region, Zone: vsphere.Tag{Field: "spec.zone", Name: "zone-b", Category: "k8s-zone", On: vsphere.OnDatacenter, Configure: true},
		Datacenter: "dc-b",
	}
	if err := check(b); err != nil {
		t.Fatal(err)
	}
	if refs := must[[]mo.Reference](t)(m.ListAttachedObjects(t.Context(), region.ID)); len(refs) != 2 {
		t.Fatalf("%v", refs)
	}
	// The zone's category was allowed on datacenters too, beside what it was allowed on.
	category = must[*tags.Category](t)(m.GetCategory(t.Context(), "k8s-zone"))
	if strings.Join(category.AssociableTypes, ",") != "ClusterComputeResource,Datacenter" {
		t.Fatalf("%+v", category)
	}

	// What somebody else has put there is not replaced.
	d := domain()
	d.Zone.Name = "zone-other"
	refusal(t, check(d), machine.Refused, vsphere.ReasonZone, "spec.zone", "compute cluster cl-a", `"zone-a"`, `"zone-other"`)

	// A tag that was taken off is missed.
	zone := must[*tags.Tag](t)(m.GetTagForCategory(t.Context(), "zone-a", "k8s-zone"))
	for _, ref := range must[[]mo.Reference](t)(m.ListAttachedObjects(t.Context(), zone.ID)) {
		if err := m.DetachTag(t.Context(), zone.ID, ref); err != nil {
			t.Fatal(err)
		}
	}
	refusal(t, check(plain), machine.Refused, vsphere.ReasonZone, `"zone-a"`, "compute cluster cl-a", "attach it")
	plain.Zone.Name = "zone-x"
	refusal(t, check(plain), machine.Refused, vsphere.ReasonZone, "spec.zone.name", "zone-x", "zone-a, zone-b")
	plain.Zone = vsphere.Tag{Field: "spec.zone", Name: "region-1", Category: "k8s-region", On: vsphere.OnComputeCluster}
	refusal(t, check(plain), machine.Refused, vsphere.ReasonZone, "spec.zone.tagCategory", "Datacenter", "compute cluster cl-a")

	// The login at the tag service is never left behind (pain 67).
	for _, open := range c.World().Sessions {
		if open.REST && open.UserAgent == "adapter" {
			t.Errorf("still logged in at the REST services: %+v", open)
		}
	}
}

// rack makes a host group of the first two hosts of cl-a, a VM group, and the rule between them.
func (c *cloud) rack(t *testing.T, mandatory bool) *object.ClusterComputeResource {
	t.Helper()
	_, f, _ := c.admin(t)
	cluster := must[*object.ClusterComputeResource](t)(f.ClusterComputeResource(t.Context(), "cl-a"))
	hosts := must[[]*object.HostSystem](t)(cluster.Hosts(t.Context()))
	add := types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationAdd}
	c.change(t, cluster, &types.ClusterConfigSpecEx{
		GroupSpec: []types.ClusterGroupSpec{
			{ArrayUpdateSpec: add, Info: &types.ClusterHostGroup{
				ClusterGroupInfo: types.ClusterGroupInfo{Name: "rack-1"}, Host: []types.ManagedObjectReference{hosts[0].Reference(), hosts[1].Reference()},
			}},
			{ArrayUpdateSpec: add, Info: &types.ClusterVmGroup{ClusterGroupInfo: types.ClusterGroupInfo{Name: "vms-1"}}},
		},
		RulesSpec: []types.ClusterRuleSpec{{ArrayUpdateSpec: add, Info: &types.ClusterVmHostRuleInfo{
			ClusterRuleInfo: types.ClusterRuleInfo{Name: "vms-1 on rack-1", Enabled: types.NewBool(true), Mandatory: types.NewBool(mandatory)},
			VmGroupName:     "vms-1", AffineHostGroupName: "rack-1",
		}}},
	})
	return cluster
}

func (c *cloud) change(t *testing.T, cluster *object.ClusterComputeResource, spec *types.ClusterConfigSpecEx) {
	t.Helper()
	task := must[*object.Task](t)(cluster.Reconfigure(t.Context(), spec, true))
	if err := task.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// VS-V47: a zone of hosts needs its host group, its VM group and a rule between them, must or should; each of its hosts carries the
// tag.
func TestHostGroups(t *testing.T) {
	for name, mandatory := range map[string]bool{"must": true, "should": false} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, vcenter.Options{})
			s := c.dial(t)
			d := domain()
			d.HostGroup, d.VMGroup = "rack-1", "vms-1"
			d.Zone.On = vsphere.OnHostGroup
			check := func() (string, error) { return s.CheckFailureDomain(t.Context(), d) }
			_, err := check()
			refusal(t, err, machine.Refused, vsphere.ReasonHosts, "spec.topology.hosts.hostGroupName", "rack-1", "cl-a", "none")
			cluster := c.rack(t, mandatory)
			if warning, err := check(); err != nil || warning != "" {
				t.Fatal(warning, err)
			}
			m := c.tagger(t)
			tag := must[*tags.Tag](t)(m.GetTagForCategory(t.Context(), "zone-a", "k8s-zone"))
			if refs := must[[]mo.Reference](t)(m.ListAttachedObjects(t.Context(), tag.ID)); len(refs) != 2 || refs[0].Reference().Type != "HostSystem" {
				t.Fatalf("the tag is on %v", refs)
			}
			d.VMGroup = "vms-2"
			_, err = check()
			refusal(t, err, machine.Refused, vsphere.ReasonHosts, "spec.topology.hosts.vmGroupName", "vms-2", "vms-1")
			d.VMGroup = "vms-1"

			rule := &types.ClusterVmHostRuleInfo{
				ClusterRuleInfo: types.ClusterRuleInfo{Name: "vms-1 on rack-1", Enabled: types.NewBool(false)},
				VmGroupName:     "vms-1", AffineHostGroupName: "rack-1",
			}
			edit := types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationEdit}
			c.change(t, cluster, &types.ClusterConfigSpecEx{RulesSpec: []types.ClusterRuleSpec{{ArrayUpdateSpec: edit, Info: rule}}})
			warning, err := check()
			if err != nil || !strings.Contains(warning, `"vms-1 on rack-1"`) || !strings.Contains(warning, "disabled") {
				t.Fatal(warning, err)
			}
			rule.AffineHostGroupName = "rack-2"
			c.change(t, cluster, &types.ClusterConfigSpecEx{RulesSpec: []types.ClusterRuleSpec{{ArrayUpdateSpec: edit, Info: rule}}})
			_, err = check()
			refusal(t, err, machine.Refused, vsphere.ReasonHosts, "no rule", "vms-1", "rack-1", "vms-1 on rack-1")
		})
	}
}
