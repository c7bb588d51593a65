package vcenter

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// clusterOf is the compute cluster whose host a VM is on, nil if it is on a single host.
func (s *strict) clusterOf(ctx *simulator.Context, vm *simulator.VirtualMachine) *simulator.ClusterComputeResource {
	var on *types.ManagedObjectReference
	ctx.WithLock(vm, func() { on = vm.Runtime.Host })
	if on == nil {
		return nil
	}
	host, ok := ctx.Map.Get(*on).(*simulator.HostSystem)
	if !ok || host.Parent == nil {
		return nil
	}
	cluster, _ := ctx.Map.Get(*host.Parent).(*simulator.ClusterComputeResource)
	return cluster
}

// evict takes a VM that is destroyed out of the VM groups of its cluster; vcsim would leave it there.
func (s *strict) evict(ctx *simulator.Context, cluster *simulator.ClusterComputeResource, vm types.ManagedObjectReference) {
	if cluster == nil {
		return
	}
	ctx.WithLock(cluster, func() {
		config, ok := cluster.ConfigurationEx.(*types.ClusterConfigInfoEx)
		if !ok {
			return
		}
		next := slices.Clone(config.Group)
		for i, g := range next {
			group, ok := g.(*types.ClusterVmGroup)
			if !ok || !slices.Contains(group.Vm, vm) {
				continue
			}
			without := *group
			without.Vm = slices.DeleteFunc(slices.Clone(group.Vm), func(ref types.ManagedObjectReference) bool { return ref == vm })
			next[i] = &without
		}
		config.Group = next
	})
}

// obey moves a VM that is powered on to a host that the rules of its cluster allow, as DRS does; vcsim knows no rules. A rule that
// no host can satisfy keeps a VM off if it is mandatory.
func (s *strict) obey(ctx *simulator.Context, vm *simulator.VirtualMachine) types.BaseMethodFault {
	cluster := s.clusterOf(ctx, vm)
	if cluster == nil {
		return nil
	}
	for _, rule := range affine(ctx, cluster, vm.Self) {
		var on types.ManagedObjectReference
		var stores []types.ManagedObjectReference
		ctx.WithLock(vm, func() { on, stores = *vm.Runtime.Host, slices.Clone(vm.Datastore) })
		if slices.Contains(rule.hosts, on) || len(stores) == 0 {
			continue
		}
		host := s.pickHost(ctx, rule.hosts, stores[0])
		if host == nil {
			if rule.mandatory {
				return &types.NoCompatibleHost{}
			}
			continue
		}
		s.vMotion(ctx, vm, on, *host)
	}
	return nil
}

// affineRule is a rule about a VM.
type affineRule struct {
	hosts     []types.ManagedObjectReference
	mandatory bool
}

func affine(ctx *simulator.Context, cluster *simulator.ClusterComputeResource, vm types.ManagedObjectReference) []affineRule {
	var out []affineRule
	ctx.WithLock(cluster, func() {
		config, ok := cluster.ConfigurationEx.(*types.ClusterConfigInfoEx)
		if !ok {
			return
		}
		vms, hosts := map[string][]types.ManagedObjectReference{}, map[string][]types.ManagedObjectReference{}
		for _, g := range config.Group {
			switch group := g.(type) {
			case *types.ClusterVmGroup:
				vms[group.Name] = group.Vm
			case *types.ClusterHostGroup:
				hosts[group.Name] = group.Host
			}
		}
		for _, r := range config.Rule {
			rule, ok := r.(*types.ClusterVmHostRuleInfo)
			if !ok || rule.Enabled != nil && !*rule.Enabled || !slices.Contains(vms[rule.VmGroupName], vm) || rule.AffineHostGroupName == "" {
				continue
			}
			out = append(out, affineRule{hosts: slices.Clone(hosts[rule.AffineHostGroupName]), mandatory: rule.Mandatory != nil && *rule.Mandatory})
		}
	})
	return out
}

// vMotion puts a VM on another host; watchers see it as a vMotion.
func (s *strict) vMotion(ctx *simulator.Context, vm *simulator.VirtualMachine, from, to types.ManagedObjectReference) {
	for ref, arrives := range map[types.ManagedObjectReference]bool{from: false, to: true} {
		host, ok := ctx.Map.Get(ref).(*simulator.HostSystem)
		if !ok {
			continue
		}
		ctx.WithLock(host, func() {
			host.Vm = slices.DeleteFunc(slices.Clone(host.Vm), func(r types.ManagedObjectReference) bool { return r == vm.Self })
			if arrives {
				host.Vm = append(host.Vm, vm.Self)
			}
		})
	}
	ctx.WithLock(vm, func() {
		ctx.Update(vm, []types.PropertyChange{{Name: "runtime.host", Val: &to}, {Name: "summary.runtime.host", Val: &to}})
	})
}
