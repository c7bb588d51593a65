package vsphere

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
)

// ReasonHosts: the host group or the VM group of a failure domain is missing, or no rule ties them together.
const ReasonHosts = "HostsMisconfigured"

// ReasonNoHost: hosts that would do are there, and none of them takes virtual machines now.
const ReasonNoHost = "HostsUnavailable"

// affinity is what a compute cluster knows of groups and of the rules between them.
type affinity struct {
	vms   map[string]*types.ClusterVmGroup
	hosts map[string]*types.ClusterHostGroup
	rules []*types.ClusterVmHostRuleInfo
}

// affinityOf reads the groups and rules of a compute cluster, live.
func (s *Session) affinityOf(ctx context.Context, cluster *node) (*affinity, error) {
	out := &affinity{vms: map[string]*types.ClusterVmGroup{}, hosts: map[string]*types.ClusterHostGroup{}}
	if cluster.ref.Type != "ClusterComputeResource" {
		return out, nil // a single host has neither
	}
	content, err := s.client.retrieve(ctx, properties("ClusterComputeResource", []string{"configurationEx"}, cluster.ref))
	if err != nil {
		return nil, failed(err, "reading the groups and rules of compute cluster %s", cluster.name)
	}
	if len(content) != 1 || len(content[0].PropSet) != 1 {
		return nil, refused(ReasonNoPermission, "vCenter does not show the groups and rules of compute cluster %s: the account needs "+
			"to read it", cluster.name)
	}
	config, ok := content[0].PropSet[0].Val.(types.ClusterConfigInfoEx)
	if !ok {
		return nil, busy(ReasonTask, 5*time.Second, "compute cluster %s does not show its configuration", cluster.name)
	}
	for _, g := range config.Group {
		switch group := g.(type) {
		case *types.ClusterVmGroup:
			out.vms[group.Name] = group
		case *types.ClusterHostGroup:
			out.hosts[group.Name] = group
		}
	}
	for _, r := range config.Rule {
		if rule, ok := r.(*types.ClusterVmHostRuleInfo); ok {
			out.rules = append(out.rules, rule)
		}
	}
	return out, nil
}

// checkHosts looks for both groups of a failure domain and the rule that keeps the VM group on the host group. disabled is a
// sentence about a rule that is there and switched off.
func (a *affinity) checkHosts(cluster *node, hostGroup, vmGroup string) (disabled string, err error) {
	const field = "spec.topology.hosts"
	switch group := a.hosts[hostGroup]; {
	case group == nil:
		return "", refused(ReasonHosts, "%s.hostGroupName %q: compute cluster %s has no such host group; there is %s", field, hostGroup,
			cluster.name, listNames(sorted(a.hosts)))
	case len(group.Host) == 0:
		return "", refused(ReasonHosts, "%s.hostGroupName %q: the host group of compute cluster %s is empty: put hosts into it", field,
			hostGroup, cluster.name)
	}
	if a.vms[vmGroup] == nil {
		return "", refused(ReasonHosts, "%s.vmGroupName %q: compute cluster %s has no such VM group; there is %s: create it in vSphere "+
			"and tie it to host group %s by a rule", field, vmGroup, cluster.name, listNames(sorted(a.vms)), hostGroup)
	}
	var off *types.ClusterVmHostRuleInfo
	var others []string
	for _, rule := range a.rules {
		switch {
		case rule.VmGroupName != vmGroup:
		case rule.AffineHostGroupName != hostGroup:
			others = append(others, rule.Name)
		case rule.Enabled == nil || *rule.Enabled:
			return "", nil // must (mandatory) or should: both keep machines in the zone while its hosts are there
		default:
			off = rule
		}
	}
	if off != nil {
		return fmt.Sprintf("%s: rule %q of compute cluster %s, which keeps VM group %s on host group %s, is disabled: enable it, or "+
			"machines may run outside of the zone", field, off.Name, cluster.name, vmGroup, hostGroup), nil
	}
	return "", refused(ReasonHosts, "%s: no rule of compute cluster %s keeps VM group %s on host group %s; rules about this VM group: %s: "+
		"create one (must or should run on hosts in group)", field, cluster.name, vmGroup, hostGroup, listNames(others))
}

func sorted[T any](m map[string]T) []string {
	out := make([]string, 0, len(m))
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// zoneHosts are the hosts that the rules allow to a virtual machine of a VM group; nil for one that joins none. It is made on one of
// them: not every cluster moves machines to where they belong when they start.
func (s *Session) zoneHosts(ctx context.Context, cluster *node, spec machine.ServerSpec) ([]types.ManagedObjectReference, error) {
	shape, err := shapeOf(spec.Shape)
	if err != nil || shape.VMGroup == "" {
		return nil, err
	}
	a, err := s.affinityOf(ctx, cluster)
	if err != nil {
		return nil, err
	}
	for _, rule := range a.rules {
		group := a.hosts[rule.AffineHostGroupName]
		if rule.VmGroupName == shape.VMGroup && group != nil && (rule.Enabled == nil || *rule.Enabled) {
			return slices.Clone(group.Host), nil
		}
	}
	return nil, nil // the zone says what is wrong with it
}

// groups serialises the changes of VM groups. vCenter takes a group's list of members as a whole: two machines that join at the
// same time would each write a list without the other (VS-V48).
type groups struct {
	mu    sync.Mutex
	known map[string]*group
}

// group is one VM group; whoever has the turn takes all that wait along, so that a wave of machines is few calls.
type group struct {
	turn    chan struct{}
	mu      sync.Mutex
	waiting map[types.ManagedObjectReference]bool
}

func (g *groups) of(cluster types.ManagedObjectReference, name string) *group {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := cluster.Value + "\x00" + name
	if g.known[key] == nil {
		if g.known == nil {
			g.known = map[string]*group{}
		}
		g.known[key] = &group{turn: make(chan struct{}, 1), waiting: map[types.ManagedObjectReference]bool{}}
	}
	return g.known[key]
}

func (g *group) set(vm types.ManagedObjectReference, waits bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if waits {
		g.waiting[vm] = true
	} else {
		delete(g.waiting, vm)
	}
}

func (g *group) waits(vm types.ManagedObjectReference) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting[vm]
}

func (g *group) all() []types.ManagedObjectReference {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []types.ManagedObjectReference
	for ref := range g.waiting {
		out = append(out, ref)
	}
	slices.SortFunc(out, func(a, b types.ManagedObjectReference) int { return strings.Compare(a.Value, b.Value) })
	return out
}

// joinVMGroup makes a VM a member of the group that its failure domain names.
func (s *Session) joinVMGroup(ctx context.Context, v vm, shape Shape) error {
	var cluster *node
	err := s.inventory.with(ctx, func(inv *inventory) error {
		dc, err := inv.datacenter(shape.Datacenter, "")
		if err != nil {
			return err
		}
		cluster, err = inv.find(kindComputeCluster, dc, shape.ComputeCluster)
		return err
	})
	if err != nil {
		return err
	}
	g := s.groups.of(cluster.ref, shape.VMGroup)
	g.set(v.ref, true)
	defer g.set(v.ref, false)
	late := time.NewTimer(s.client.cfg.CallTimeout)
	defer late.Stop()
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-late.C:
		return busy(ReasonTask, 5*time.Second, "VM group %s of compute cluster %s is being changed for other machines; waiting for it", shape.VMGroup,
			cluster.name)
	case <-ctx.Done():
		return failed(ctx.Err(), "waiting for a change of VM group %s", shape.VMGroup)
	}
	if !g.waits(v.ref) {
		return nil // whoever had the turn before took it along and saw it in
	}
	return s.extend(ctx, cluster, shape.VMGroup, g, v.ref)
}

// joinTries is how often a list that somebody else wrote over is written again in one pass.
const joinTries = 3

// extend writes all that wait into the group and reads it again, until self is seen in it: another program, or a person, may have
// written at the same time.
func (s *Session) extend(ctx context.Context, cluster *node, name string, g *group, self types.ManagedObjectReference) error {
	for tries := 0; ; tries++ {
		a, err := s.affinityOf(ctx, cluster)
		if err != nil {
			return err
		}
		have := a.vms[name]
		if have == nil {
			return refused(ReasonHosts, "spec.topology.hosts.vmGroupName %q: compute cluster %s has no such VM group any more; there is "+
				"%s: create it again", name, cluster.name, listNames(sorted(a.vms)))
		}
		next := *have
		next.Vm = slices.Clone(have.Vm)
		for _, ref := range g.all() {
			if slices.Contains(have.Vm, ref) {
				g.set(ref, false)
			} else {
				next.Vm = append(next.Vm, ref)
			}
		}
		if !g.waits(self) {
			return nil // those that came meanwhile have a turn of their own
		}
		if tries == joinTries {
			return busy(ReasonHosts, 5*time.Second, "VM group %s of compute cluster %s is being changed by somebody else at the same "+
				"time; trying again", name, cluster.name)
		}
		if err := s.edit(ctx, cluster, &next); err != nil {
			return err
		}
	}
}

// edit replaces a group and waits for it: it takes a moment, and the machine must not start before.
func (s *Session) edit(ctx context.Context, cluster *node, next *types.ClusterVmGroup) error {
	doing := fmt.Sprintf("changing VM group %s of compute cluster %s", next.Name, cluster.name)
	res, err := methods.ReconfigureComputeResource_Task(ctx, s.client.vim, &types.ReconfigureComputeResource_Task{
		This: cluster.ref, Modify: true,
		Spec: &types.ClusterConfigSpecEx{GroupSpec: []types.ClusterGroupSpec{{
			ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationEdit}, Info: next,
		}}},
	})
	if err != nil {
		return failed(err, "%s", doing)
	}
	_, err = s.await(ctx, res.Returnval, "EditGroup", doing)
	return failed(err, "%s", doing)
}
