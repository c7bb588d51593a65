package vcenter

import (
	"context"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// collectors serve the waits for updates. vcsim's own reads every object of every filter again for every change of any
// object of the whole inventory, looks for changes fifty times a second, and gives the updates of a wait whose client has
// left to nobody. These read the objects that changed, when they change, and repeat an answer that was not received.
type collectors struct {
	mu   sync.Mutex
	open map[waitKey]*collector
	// filters guards vcsim's lists of filters.
	filters sync.Mutex
	// world keeps what is read together still.
	world *sync.RWMutex
}

type waitKey struct {
	session string
	ref     types.ManagedObjectReference
}

func newCollectors(world *sync.RWMutex) *collectors {
	return &collectors{open: map[waitKey]*collector{}, world: world}
}

// rearrange changes the filters of a collector, and has its open wait look at them.
func (cs *collectors) rearrange(change func() soap.HasFault) soap.HasFault {
	cs.filters.Lock()
	response := change()
	cs.filters.Unlock()
	cs.each(func(c *collector) { c.noteFilters() })
	return response
}

func (cs *collectors) filtersOf(pc *simulator.PropertyCollector) []types.ManagedObjectReference {
	cs.filters.Lock()
	defer cs.filters.Unlock()
	return slices.Clone(pc.Filter)
}

// Reference identifies the handler among vcsim's.
func (cs *collectors) Reference() types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "Collectors", Value: "strict"}
}

// PutObject may bring a new member of a view.
func (cs *collectors) PutObject(_ *simulator.Context, object mo.Reference) {
	if _, ok := object.(mo.Entity); ok {
		cs.each(func(c *collector) { c.noteNew() })
	}
}

// UpdateObject runs under the object's lock.
func (cs *collectors) UpdateObject(_ *simulator.Context, object mo.Reference, _ []types.PropertyChange) {
	ref := object.Reference()
	cs.each(func(c *collector) { c.noteChange(ref) })
}

// RemoveObject is a change, too: the object cannot be read any more.
func (cs *collectors) RemoveObject(_ *simulator.Context, ref types.ManagedObjectReference) {
	cs.each(func(c *collector) { c.noteChange(ref) })
}

func (cs *collectors) each(f func(*collector)) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.open {
		f(c)
	}
}

func (cs *collectors) of(session string, pc *simulator.PropertyCollector) *collector {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	key := waitKey{session, pc.Self}
	c := cs.open[key]
	if c == nil {
		c = &collector{
			all: cs, pc: pc, wake: make(chan struct{}, 1), filters: map[types.ManagedObjectReference]*filterState{},
			interest: map[types.ManagedObjectReference]bool{}, dirty: map[types.ManagedObjectReference]bool{},
		}
		cs.open[key] = c
	}
	return c
}

// forget drops one collector of a session, or all of them.
func (cs *collectors) forget(session string, ref *types.ManagedObjectReference) {
	cs.mu.Lock()
	var gone []*collector
	for key, c := range cs.open {
		if key.session == session && (ref == nil || *ref == key.ref) {
			delete(cs.open, key)
			gone = append(gone, c)
		}
	}
	cs.mu.Unlock()
	for _, c := range gone {
		c.interrupt()
	}
}

// collector is the state of one property collector.
type collector struct {
	all  *collectors
	pc   *simulator.PropertyCollector
	wake chan struct{}

	// turn is held by the wait that runs.
	turn    sync.Mutex
	filters map[types.ManagedObjectReference]*filterState
	version int
	// last is the answer that led from lastFrom to version, kept until its version is asked for.
	last     *types.UpdateSet
	lastFrom string
	// rest are updates that did not fit into the last answer.
	rest []types.PropertyFilterUpdate

	mu     sync.Mutex
	cancel context.CancelFunc
	// interest are the objects read so far and the roots of traversals; dirty those of them that changed.
	interest map[types.ManagedObjectReference]bool
	dirty    map[types.ManagedObjectReference]bool
	// added: there are new entities in the inventory.
	added bool
}

// filterState is what a client knows of a filter's objects.
type filterState struct {
	objects map[types.ManagedObjectReference]map[string]types.AnyType
}

func (c *collector) noteChange(ref types.ManagedObjectReference) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.interest[ref] {
		c.dirty[ref] = true
		c.signal()
	}
}

func (c *collector) noteNew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.added = true
	c.signal()
}

func (c *collector) noteFilters() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.signal()
}

func (c *collector) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// interrupt ends the wait that is open.
func (c *collector) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
}

// begin makes this the only wait: one that a client has left behind gives way.
func (c *collector) begin(ctx context.Context) (context.Context, func()) {
	wait, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	if c.cancel != nil {
		c.cancel()
	}
	c.cancel = cancel
	c.mu.Unlock()
	c.turn.Lock()
	return wait, func() {
		c.turn.Unlock()
		cancel()
	}
}

// gather lets the updates of one operation come together.
const gather = time.Millisecond

// maxUpdates is vCenter's limit of objects in an answer.
const maxUpdates = 100

// wait returns the next set of updates, nil when there was none in the time given.
func (c *collector) wait(ctx *simulator.Context, stopped <-chan struct{}, version string, options *types.WaitOptions) (*types.UpdateSet, types.BaseMethodFault) {
	wait, end := c.begin(context.Background())
	defer end()

	limit := maxUpdates
	var timeout <-chan time.Time
	if options != nil {
		if n := int(options.MaxObjectUpdates); n > 0 {
			limit = min(n, maxUpdates)
		}
		if options.MaxWaitSeconds != nil {
			timer := time.NewTimer(time.Duration(*options.MaxWaitSeconds) * time.Second)
			defer timer.Stop()
			timeout = timer.C
		}
	}
	switch {
	case version == "":
		c.forgetAll()
	case c.last != nil && version == c.lastFrom:
		return c.last, nil
	case version != strconv.Itoa(c.version):
		return nil, &types.InvalidCollectorVersion{}
	}
	for {
		if len(c.rest) == 0 {
			updates, fault := c.evaluate(ctx)
			if fault != nil {
				return nil, fault
			}
			c.rest = updates
		}
		if len(c.rest) > 0 || version == "" {
			return c.answer(version, limit), nil
		}
		select {
		case <-c.wake:
			pause(wait, gather)
		case <-timeout:
			return nil, nil
		case <-wait.Done():
			return nil, &types.RequestCanceled{}
		case <-stopped:
			return nil, &types.RequestCanceled{}
		}
	}
}

func (c *collector) forgetAll() {
	c.filters, c.last, c.rest = map[types.ManagedObjectReference]*filterState{}, nil, nil
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.interest)
	clear(c.dirty)
}

// answer takes as many updates as fit.
func (c *collector) answer(from string, limit int) *types.UpdateSet {
	set := &types.UpdateSet{}
	for limit > 0 && len(c.rest) > 0 {
		filter := c.rest[0]
		n := min(limit, len(filter.ObjectSet))
		set.FilterSet = append(set.FilterSet, types.PropertyFilterUpdate{Filter: filter.Filter, ObjectSet: filter.ObjectSet[:n]})
		limit -= n
		if n < len(filter.ObjectSet) {
			c.rest[0].ObjectSet = filter.ObjectSet[n:]
		} else {
			c.rest = c.rest[1:]
		}
	}
	if len(c.rest) > 0 {
		set.Truncated = types.NewBool(true)
	}
	c.version++
	set.Version = strconv.Itoa(c.version)
	c.last, c.lastFrom = set, from
	return set
}

// evaluate compares what changed with what the client knows.
func (c *collector) evaluate(ctx *simulator.Context) ([]types.PropertyFilterUpdate, types.BaseMethodFault) {
	c.mu.Lock()
	dirty, added := c.dirty, c.added
	c.dirty, c.added = map[types.ManagedObjectReference]bool{}, false
	c.mu.Unlock()
	c.all.world.RLock()
	defer c.all.world.RUnlock()

	var updates []types.PropertyFilterUpdate
	live := map[types.ManagedObjectReference]bool{}
	for _, ref := range c.all.filtersOf(c.pc) {
		filter, ok := ctx.Session.Get(ref).(*simulator.PropertyFilter)
		if !ok {
			continue
		}
		live[ref] = true
		objects, fault := c.evaluateFilter(ctx, filter, dirty, added)
		if fault != nil {
			return nil, fault
		}
		if len(objects) > 0 {
			updates = append(updates, types.PropertyFilterUpdate{Filter: ref, ObjectSet: objects})
		}
	}
	for ref := range c.filters {
		if !live[ref] {
			delete(c.filters, ref)
		}
	}
	return updates, nil
}

func (c *collector) evaluateFilter(ctx *simulator.Context, filter *simulator.PropertyFilter, dirty map[types.ManagedObjectReference]bool, added bool) ([]types.ObjectUpdate, types.BaseMethodFault) {
	state := c.filters[filter.Self]
	first := state == nil
	if first {
		state = &filterState{objects: map[types.ManagedObjectReference]map[string]types.AnyType{}}
		c.filters[filter.Self] = state
	}
	var updates []types.ObjectUpdate
	var read []types.ManagedObjectReference
	if first || membersMayDiffer(filter.Spec, dirty, added) {
		// Before the members are read: what changes from here on is seen.
		c.watch(rootsOf(filter.Spec)...)
		members, fault := c.members(ctx, filter.Spec)
		if fault != nil {
			return nil, fault
		}
		for _, ref := range members {
			if state.objects[ref] == nil {
				read = append(read, ref)
			}
		}
		for ref := range state.objects {
			if !slices.Contains(members, ref) {
				delete(state.objects, ref)
				updates = append(updates, types.ObjectUpdate{Kind: types.ObjectUpdateKindLeave, Obj: ref})
			}
		}
	}
	for ref := range dirty {
		if state.objects[ref] != nil {
			read = append(read, ref)
		}
	}
	c.watch(read...)
	return append(updates, c.read(ctx, filter.Spec, state, read)...), nil
}

// read fetches objects and tells what the client does not know of them yet.
func (c *collector) read(ctx *simulator.Context, spec types.PropertyFilterSpec, state *filterState, refs []types.ManagedObjectReference) []types.ObjectUpdate {
	if len(refs) == 0 {
		return nil
	}
	spec.ReportMissingObjectsInResults = types.NewBool(true)
	spec.ObjectSet = make([]types.ObjectSpec, len(refs))
	for i, ref := range refs {
		spec.ObjectSet[i].Obj = ref
	}
	found := map[types.ManagedObjectReference]types.ObjectContent{}
	contents, _ := c.retrieve(ctx, spec)
	for _, content := range contents {
		found[content.Obj] = content
	}
	var updates []types.ObjectUpdate
	for _, ref := range refs {
		known := state.objects[ref]
		content, ok := found[ref]
		if !ok {
			if known != nil {
				delete(state.objects, ref)
				updates = append(updates, types.ObjectUpdate{Kind: types.ObjectUpdateKindLeave, Obj: ref})
			}
			continue
		}
		update := types.ObjectUpdate{Kind: types.ObjectUpdateKindModify, Obj: ref}
		if known == nil {
			update.Kind, update.MissingSet = types.ObjectUpdateKindEnter, content.MissingSet
		}
		values := map[string]types.AnyType{}
		for _, p := range content.PropSet {
			values[p.Name] = p.Val
		}
		state.objects[ref] = values
		update.ChangeSet = differences(known, content.PropSet, values)
		if known == nil || len(update.ChangeSet) > 0 {
			updates = append(updates, update)
		}
	}
	return updates
}

// differences: properties that are new or have another value, and those that have none any more.
func differences(known map[string]types.AnyType, properties []types.DynamicProperty, values map[string]types.AnyType) []types.PropertyChange {
	var changes []types.PropertyChange
	for _, p := range properties {
		if before, ok := known[p.Name]; !ok || !reflect.DeepEqual(before, p.Val) {
			changes = append(changes, types.PropertyChange{Name: p.Name, Op: types.PropertyChangeOpAssign, Val: p.Val})
		}
	}
	for _, name := range sortedKeys(known) {
		if _, ok := values[name]; !ok {
			changes = append(changes, types.PropertyChange{Name: name, Op: types.PropertyChangeOpAssign})
		}
	}
	return changes
}

// members are the objects that a filter selects.
func (c *collector) members(ctx *simulator.Context, spec types.PropertyFilterSpec) ([]types.ManagedObjectReference, types.BaseMethodFault) {
	if list := listOf(ctx, spec); list != nil {
		var refs []types.ManagedObjectReference
		ctx.WithLock(list, func() { refs = slices.Clone(list.View) })
		return refs, nil
	}
	props := make([]types.PropertySpec, len(spec.PropSet))
	for i, p := range spec.PropSet {
		props[i] = types.PropertySpec{Type: p.Type}
	}
	spec.PropSet = props
	contents, fault := c.retrieve(ctx, spec)
	refs := make([]types.ManagedObjectReference, 0, len(contents))
	for _, content := range contents {
		refs = append(refs, content.Obj)
	}
	return refs, fault
}

// listOf returns the list view whose members are all that a filter selects, which need no look at each of them.
func listOf(ctx *simulator.Context, spec types.PropertyFilterSpec) *simulator.ListView {
	if len(spec.ObjectSet) != 1 || len(spec.ObjectSet[0].SelectSet) != 1 {
		return nil
	}
	traversal, ok := spec.ObjectSet[0].SelectSet[0].(*types.TraversalSpec)
	if !ok || traversal.Path != "view" || len(traversal.SelectSet) > 0 || spec.ObjectSet[0].Skip == nil || !*spec.ObjectSet[0].Skip {
		return nil
	}
	list, _ := ctx.Session.Get(spec.ObjectSet[0].Obj).(*simulator.ListView)
	return list
}

func (c *collector) retrieve(ctx *simulator.Context, spec types.PropertyFilterSpec) ([]types.ObjectContent, types.BaseMethodFault) {
	response := c.pc.RetrievePropertiesEx(ctx, &types.RetrievePropertiesEx{This: c.pc.Self, SpecSet: []types.PropertyFilterSpec{spec}})
	if fault := response.Fault(); fault != nil {
		vim, _ := fault.VimFault().(types.BaseMethodFault)
		return nil, vim
	}
	body, ok := response.(*methods.RetrievePropertiesExBody)
	if !ok || body.Res.Returnval == nil {
		return nil, nil
	}
	return body.Res.Returnval.Objects, nil
}

func (c *collector) watch(refs ...types.ManagedObjectReference) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ref := range refs {
		c.interest[ref] = true
	}
}

// rootsOf are the objects where a filter's traversals begin.
func rootsOf(spec types.PropertyFilterSpec) []types.ManagedObjectReference {
	var roots []types.ManagedObjectReference
	for _, object := range spec.ObjectSet {
		if len(object.SelectSet) > 0 {
			roots = append(roots, object.Obj)
		}
	}
	return roots
}

// membersMayDiffer: a view that changed says so; what is below a folder has to be looked at when there is anything new.
func membersMayDiffer(spec types.PropertyFilterSpec, dirty map[types.ManagedObjectReference]bool, added bool) bool {
	for _, root := range rootsOf(spec) {
		if dirty[root] || added && root.Type != "ListView" && root.Type != "ContainerView" {
			return true
		}
	}
	return false
}
