package vcenter

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// collectorGate serves the property collectors.
type collectorGate struct {
	*simulator.PropertyCollector
	unlocked
	strict *strict
}

// WaitForUpdatesEx waits.
func (g *collectorGate) WaitForUpdatesEx(ctx *simulator.Context, req *types.WaitForUpdatesEx) soap.HasFault {
	body := &methods.WaitForUpdatesExBody{}
	set, fault := g.state(ctx).wait(ctx, g.strict.server.stopped, req.Version, req.Options)
	if fault != nil {
		body.Fault_ = simulator.Fault("", fault)
		return body
	}
	body.Res = &types.WaitForUpdatesExResponse{Returnval: set}
	return body
}

// WaitForUpdates is the older form without options.
func (g *collectorGate) WaitForUpdates(ctx *simulator.Context, req *types.WaitForUpdates) soap.HasFault {
	body := &methods.WaitForUpdatesBody{}
	set, fault := g.state(ctx).wait(ctx, g.strict.server.stopped, req.Version, nil)
	if fault != nil {
		body.Fault_ = simulator.Fault("", fault)
		return body
	}
	body.Res = &types.WaitForUpdatesResponse{Returnval: *set}
	return body
}

// CancelWaitForUpdates ends the open wait.
func (g *collectorGate) CancelWaitForUpdates(ctx *simulator.Context, _ *types.CancelWaitForUpdates) soap.HasFault {
	g.state(ctx).interrupt()
	return &methods.CancelWaitForUpdatesBody{Res: &types.CancelWaitForUpdatesResponse{}}
}

// CreateFilter adds a filter, which an open wait takes up.
func (g *collectorGate) CreateFilter(ctx *simulator.Context, req *types.CreateFilter) soap.HasFault {
	return g.strict.collectors.rearrange(func() soap.HasFault { return g.PropertyCollector.CreateFilter(ctx, req) })
}

// DestroyPropertyCollector ends the collector and its wait.
func (g *collectorGate) DestroyPropertyCollector(ctx *simulator.Context, req *types.DestroyPropertyCollector) soap.HasFault {
	g.strict.collectors.forget(ctx.Session.Key, &g.Self)
	return g.PropertyCollector.DestroyPropertyCollector(ctx, req)
}

func (g *collectorGate) state(ctx *simulator.Context) *collector {
	return g.strict.collectors.of(ctx.Session.Key, g.PropertyCollector)
}

// filterGate serves the filters of property collectors.
type filterGate struct {
	*simulator.PropertyFilter
	unlocked
	strict *strict
}

// DestroyPropertyFilter removes a filter; an open wait goes on without it.
func (g *filterGate) DestroyPropertyFilter(ctx *simulator.Context, req *types.DestroyPropertyFilter) soap.HasFault {
	return g.strict.collectors.rearrange(func() soap.HasFault { return g.PropertyFilter.DestroyPropertyFilter(ctx, req) })
}
