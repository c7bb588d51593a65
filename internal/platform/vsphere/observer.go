package vsphere

import (
	"context"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
)

const (
	// pollSeconds is how long one wait for updates may stay open.
	pollSeconds = 55
	// gather is how long changes of the list of watched VMs are collected before they are sent in one call.
	gather = 10 * time.Millisecond
	// settleTime bounds how long the end of a clone is held back until the new VM is in the store.
	settleTime = 2 * time.Second
)

// observer keeps one property collector and one open wait per session. It watches our virtual machines, which it is told of
// one by one, and all recent tasks, which tell of themselves; tasks of ours that take their time join the virtual machines in
// the list, because the list of recent tasks is short. Everything it knows is a cache: losing the collector costs a rebuild, a
// missed update costs a live read.
type observer struct {
	c       *client
	changes func(machine.Mark)

	mu    sync.Mutex
	vms   map[types.ManagedObjectReference]*watchedVM
	marks map[machine.Mark]types.ManagedObjectReference
	tasks map[string]*watchedTask
	// open: the wait stands and the store follows it.
	open bool
	err  error
	// list is the ListView of the current collector; add and remove are what it does not know yet.
	list        types.ManagedObjectReference
	collector   types.ManagedObjectReference
	add, remove map[types.ManagedObjectReference]bool
	modify      *time.Timer
	// pulse is closed and replaced when anything was taken over.
	pulse chan struct{}
	// starting and queue: see reserve.
	starting map[string]int
	queue    []machine.Mark
	// generation counts collectors; what an old one says does not count.
	generation int

	cancel context.CancelFunc
	done   chan struct{}
}

// watchedVM is one of our virtual machines.
type watchedVM struct {
	mark machine.Mark
	vm   vm
	// seen: the current collector has told all about it.
	seen bool
	// staleUntil: something of ours ended without the collector telling; until then it may not have told the effect either.
	staleUntil time.Time
	// live is the last live read, good for an act right after it (see recent).
	live   vm
	liveAt time.Time
	// promise is what the end of an operation promised and the collector has to show before the store counts again.
	promise func(vm) bool
	// gone: it left the inventory.
	gone bool
}

func newObserver(c *client, changes func(machine.Mark)) *observer {
	return &observer{
		c: c, changes: changes,
		vms:   map[types.ManagedObjectReference]*watchedVM{},
		marks: map[machine.Mark]types.ManagedObjectReference{},
		tasks: map[string]*watchedTask{}, starting: map[string]int{},
		add: map[types.ManagedObjectReference]bool{}, remove: map[types.ManagedObjectReference]bool{},
		done: make(chan struct{}), pulse: make(chan struct{}),
	}
}

// start opens the first collector, so that a session that was handed out watches, and keeps it open until stop.
func (o *observer) start(ctx context.Context) error {
	if err := o.build(ctx); err != nil {
		return err
	}
	run, cancel := context.WithCancel(context.Background())
	o.cancel = cancel
	go o.run(run)
	return nil
}

func (o *observer) stop(ctx context.Context) {
	o.cancel()
	o.mu.Lock()
	collector := o.collector
	if o.modify != nil {
		o.modify.Stop()
	}
	o.mu.Unlock()
	// Destroying the collector ends the wait on the server too; a cut connection alone would leave it there.
	_, _ = methods.DestroyPropertyCollector(ctx, o.c.vim, &types.DestroyPropertyCollector{This: collector})
	select {
	case <-o.done:
	case <-ctx.Done():
	}
}

// build makes a collector with both filters. Everything known becomes unseen until the collector has told of it. What was made
// of it before a failure is taken off the server again, which would keep it until the end of the session.
func (o *observer) build(ctx context.Context) (err error) {
	vim := o.c.vim
	list, err := methods.CreateListView(ctx, vim, &types.CreateListView{This: *vim.ServiceContent.ViewManager})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_, _ = methods.DestroyView(context.WithoutCancel(ctx), vim, &types.DestroyView{This: list.Returnval})
		}
	}()
	collector, err := methods.CreatePropertyCollector(ctx, vim, &types.CreatePropertyCollector{
		This: vim.ServiceContent.PropertyCollector,
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_, _ = methods.DestroyPropertyCollector(context.WithoutCancel(ctx), vim, &types.DestroyPropertyCollector{This: collector.Returnval})
		}
	}()
	filters := []types.PropertyFilterSpec{
		through(list.Returnval, "view", types.PropertySpec{Type: "VirtualMachine", PathSet: vmProperties},
			types.PropertySpec{Type: "Task", PathSet: taskProperties}),
		through(*vim.ServiceContent.TaskManager, "recentTask", types.PropertySpec{Type: "Task", PathSet: taskProperties}),
	}
	for _, filter := range filters {
		if _, err := methods.CreateFilter(ctx, vim, &types.CreateFilter{This: collector.Returnval, Spec: filter}); err != nil {
			return err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.generation++
	o.list, o.collector = list.Returnval, collector.Returnval
	o.add, o.remove = map[types.ManagedObjectReference]bool{}, map[types.ManagedObjectReference]bool{}
	for ref, w := range o.vms {
		w.seen = false
		if !w.gone {
			o.add[ref] = true
		}
	}
	for ref, t := range o.tasks {
		t.listed = false
		if t.ours && !t.over() {
			o.listTask(ref, t)
		}
	}
	o.open, o.err = true, nil
	if len(o.add) > 0 {
		o.modifySoon()
	}
	return nil
}

// run keeps the wait open.
func (o *observer) run(ctx context.Context) {
	defer close(o.done)
	version, pause := "", time.Second
	var pending []types.ObjectUpdate
	for ctx.Err() == nil {
		o.mu.Lock()
		collector := o.collector
		o.mu.Unlock()
		res, err := methods.WaitForUpdatesEx(ctx, o.c.vim, &types.WaitForUpdatesEx{
			This: collector, Version: version,
			Options: &types.WaitOptions{MaxWaitSeconds: types.NewInt32(pollSeconds)},
		})
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			version, pending = "", nil
			o.lost(err)
			for {
				err := o.build(ctx)
				if err == nil {
					pause = time.Second
					o.c.cfg.Log.Info("The watch over vCenter is open again")
					break
				}
				o.lost(err)
				select {
				case <-ctx.Done():
					return
				case <-time.After(pause):
				}
				pause = min(2*pause, 30*time.Second)
			}
			continue
		}
		if res.Returnval == nil {
			continue // nothing happened for pollSeconds
		}
		version = res.Returnval.Version
		for _, set := range res.Returnval.FilterSet {
			pending = append(pending, set.ObjectSet...)
		}
		// A truncated set is half a view: VMs and tasks agree only once it is complete.
		if res.Returnval.Truncated == nil || !*res.Returnval.Truncated {
			o.apply(pending)
			pending = nil
		}
	}
}

// lost notes that nothing in the store can be trusted for the time being. Whoever waits is woken and will read live.
func (o *observer) lost(err error) {
	o.mu.Lock()
	was := o.open
	o.open, o.err = false, err
	if was {
		o.c.cfg.Log.Info("Lost the watch over vCenter; reading live until it is open again", "error", err.Error())
	}
	var woken []machine.Mark
	if was {
		for _, w := range o.vms {
			woken = append(woken, w.mark)
		}
		for _, t := range o.tasks {
			woken = append(woken, t.op.Mark)
		}
	}
	o.mu.Unlock()
	o.wake(woken)
}

// apply takes over one complete set of updates: virtual machines first, so that the end of a task finds its effect.
func (o *observer) apply(updates []types.ObjectUpdate) {
	o.mu.Lock()
	var woken []machine.Mark
	for _, u := range updates {
		if u.Obj.Type == "VirtualMachine" {
			woken = append(woken, o.applyVM(u)...)
		}
	}
	for _, u := range updates {
		if u.Obj.Type == "Task" {
			woken = append(woken, o.applyTask(u)...)
		}
	}
	o.prune()
	close(o.pulse)
	o.pulse = make(chan struct{})
	o.mu.Unlock()
	o.wake(woken)
}

func (o *observer) applyVM(u types.ObjectUpdate) []machine.Mark {
	w, ok := o.vms[u.Obj]
	if !ok {
		return nil
	}
	if u.Kind == types.ObjectUpdateKindLeave {
		w.gone, w.seen = true, false
		o.remove[u.Obj] = true
		return []machine.Mark{w.mark}
	}
	next := w.vm
	if u.Kind == types.ObjectUpdateKindEnter {
		next = vm{ref: u.Obj}
	}
	for _, change := range u.ChangeSet {
		if change.Op == types.PropertyChangeOpRemove || change.Op == types.PropertyChangeOpIndirectRemove {
			next.set(change.Name, nil)
			continue
		}
		next.set(change.Name, change.Val)
	}
	for _, missing := range u.MissingSet {
		next.missing = append(next.missing, missing.Path)
	}
	entered := !w.seen
	w.seen, w.gone = true, false
	if !entered && w.vm.equal(next) {
		return nil
	}
	w.vm, w.liveAt = next, time.Time{}
	if w.promise != nil && w.promise(next) {
		w.promise = nil
	}
	return append([]machine.Mark{w.mark}, o.settleCreates(u.Obj)...)
}

func (o *observer) wake(marks []machine.Mark) {
	told := map[machine.Mark]bool{"": true}
	for _, m := range marks {
		if !told[m] {
			told[m] = true
			o.changes(m)
		}
	}
}

// watch makes ref one of our virtual machines.
func (o *observer) watch(ref types.ManagedObjectReference, mark machine.Mark) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watchLocked(ref, mark)
}

func (o *observer) watchLocked(ref types.ManagedObjectReference, mark machine.Mark) *watchedVM {
	w, ok := o.vms[ref]
	if !ok {
		w = &watchedVM{}
		o.vms[ref] = w
	}
	if mark != "" {
		w.mark = mark
		o.marks[mark] = ref
	}
	if (!ok || w.gone) && !o.add[ref] {
		w.gone = false
		o.add[ref] = true
		delete(o.remove, ref)
		o.modifySoon()
	}
	return w
}

// forget drops a virtual machine that was proved absent.
func (o *observer) forget(ref types.ManagedObjectReference) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w, ok := o.vms[ref]
	if !ok {
		return
	}
	delete(o.vms, ref)
	delete(o.add, ref)
	if o.marks[w.mark] == ref {
		delete(o.marks, w.mark)
	}
	o.remove[ref] = true
}

// modifySoon sends the collected additions, and the removals that came up meanwhile, in one call.
func (o *observer) modifySoon() {
	if o.modify != nil || o.list.Value == "" {
		return
	}
	o.modify = time.AfterFunc(gather, func() {
		o.mu.Lock()
		o.modify = nil
		req := &types.ModifyListView{This: o.list}
		for ref := range o.add {
			req.Add = append(req.Add, ref)
		}
		for ref := range o.remove {
			req.Remove = append(req.Remove, ref)
		}
		clear(o.add)
		clear(o.remove)
		generation := o.generation
		o.mu.Unlock()
		if len(req.Add)+len(req.Remove) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), o.c.cfg.CallTimeout)
		defer cancel()
		res, err := methods.ModifyListView(ctx, o.c.vim, req)
		if err == nil {
			o.unresolved(res.Returnval)
			return
		}
		// The list is lost or the vCenter does not answer: the next collector starts from all we know. Until then these
		// are unseen and read live.
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.generation == generation {
			for _, ref := range req.Add {
				o.add[ref] = true
			}
		}
	})
}

// unresolved are virtual machines that were gone, and tasks that were forgotten, before they could be watched.
func (o *observer) unresolved(refs []types.ManagedObjectReference) {
	o.mu.Lock()
	var woken []machine.Mark
	for _, ref := range refs {
		if t, ok := o.tasks[ref.Value]; ok && ref.Type == "Task" && !t.over() {
			t.told = time.Time{}
			woken = append(woken, t.op.Mark)
		}
		if w, ok := o.vms[ref]; ok {
			w.gone, w.seen = true, false
			woken = append(woken, w.mark)
		}
	}
	o.mu.Unlock()
	o.wake(woken)
}

// known returns the stored state of a virtual machine if it is as good as a live read.
func (o *observer) known(ref types.ManagedObjectReference) (vm, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w, ok := o.vms[ref]
	if !ok || !o.open || !w.seen || w.gone || time.Now().Before(w.staleUntil) || o.inFlight(ref) {
		return vm{}, false
	}
	if w.promise != nil {
		if !w.promise(w.vm) {
			return vm{}, false
		}
		w.promise = nil
	}
	return w.vm, true
}

// byMark returns the reference of a virtual machine by its mark.
func (o *observer) byMark(mark machine.Mark) (types.ManagedObjectReference, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ref, ok := o.marks[mark]
	return ref, ok
}

// took stores a live read. It does not make the entry seen: only the collector keeps it current.
func (o *observer) took(v vm, mark machine.Mark) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.watchLocked(v.ref, mark)
	w.live, w.liveAt = v, time.Now()
	if !w.seen {
		w.vm = v
	}
}

// recentRead is how long a live read is good enough for an act that follows it; the read is dropped when anything is started.
const recentRead = 2 * time.Second

// recent returns the live read that the caller of an act has just made, so that the act does not make it again.
func (o *observer) recent(ref types.ManagedObjectReference) (vm, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w, ok := o.vms[ref]
	if !ok || w.gone || time.Since(w.liveAt) > recentRead || o.inFlight(ref) {
		return vm{}, false
	}
	return w.live, true
}

func (o *observer) health() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open {
		return nil
	}
	return o.err
}
