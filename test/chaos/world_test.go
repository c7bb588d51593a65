package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	controllers "github.com/berth-dev/berth/internal/controller/vsphere"
	invariants "github.com/berth-dev/berth/internal/invariant/vsphere"
	"github.com/berth-dev/berth/internal/platform/vsphere"
	"github.com/berth-dev/berth/internal/sim/disturb"
	"github.com/berth-dev/berth/internal/sim/vcenter"
	"github.com/berth-dev/berth/internal/workload"
)

// world is one namespace, one vCenter behind a proxy, and the manager that lives, dies and is started again between them.
type world struct {
	ns      string
	flow    flow
	dir     string
	vcenter *vcenter.Server
	proxy   *disturb.Proxy
	watch   *invariants.Watch
	others  *others

	mu sync.Mutex
	// fault to be done, nil while the flow is prepared or recorded.
	fault *point
	armed bool
	// events since the flow began, and the numbers of the next ones.
	events []event
	seen   map[string]int
	struck atomic.Int32
	// moment is called at the call where a point of the kind removed strikes.
	moment func()

	lives []*life
	ended sync.WaitGroup
	over  bool
	// ahead is how far the managers' clock is before the real one.
	ahead atomic.Int64
	// moves counts what happens, to notice when nothing does.
	moves atomic.Int64
	trail trail
}

// life is one run of a manager, from its start to its death.
type life struct {
	agent string
	dead  atomic.Bool
	end   context.CancelFunc
	done  chan struct{}
}

func newWorld(f flow, p point) (*world, error) {
	w := &world{flow: f, seen: map[string]int{}}
	var err error
	if w.dir, err = os.MkdirTemp("", "berth-chaos-"); err != nil {
		return nil, err
	}
	o := vcenter.Options{Dir: w.dir, Log: slog.New(slog.DiscardHandler)}
	if p.kind == killDuring {
		o.CloneTime = 700 * time.Millisecond
		o.TaskTimes = map[string]time.Duration{p.what: 700 * time.Millisecond}
	}
	if w.vcenter, err = vcenter.Start(o); err != nil {
		return w, err
	}
	w.proxy = disturb.Start(disturb.Options{Target: w.vcenter.Address(), Tasks: w.vcenter.Admin(), Witness: w})
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "chaos-" + strings.ReplaceAll(f.name, "_", "-") + "-"}}
	if err := k8s.Create(ctx, ns); err != nil {
		return w, err
	}
	w.ns = ns.Name
	w.watch = invariants.Start(ctx, w.vcenter.Admin(), client.NewNamespacedClient(k8s, w.ns), 2*time.Second)
	w.others = newOthers(w)
	return w, nil
}

// close ends everything of this world. What it leaves in the API server is in nobody's way.
func (w *world) close() {
	w.mu.Lock()
	w.over = true
	lives := slices.Clone(w.lives)
	w.mu.Unlock()
	if w.others != nil {
		w.others.stop()
	}
	for _, l := range lives {
		l.dead.Store(true)
		l.end()
	}
	w.ended.Wait()
	if w.proxy != nil {
		w.proxy.Close()
	}
	if w.vcenter != nil {
		w.vcenter.Close()
	}
	_ = os.RemoveAll(w.dir)
}

// start runs one more manager, as berth-manager does, for this namespace.
func (w *world) start() error {
	l := &life{done: make(chan struct{}), end: func() {}}
	w.mu.Lock()
	if w.over {
		w.mu.Unlock()
		return nil
	}
	w.lives = append(w.lives, l)
	l.agent = fmt.Sprintf("berth-chaos/%d", len(w.lives))
	w.mu.Unlock()
	w.trail.add("%s starts", l.agent)
	own := rest.CopyConfig(restConfig)
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return &gate{w: w, life: l, next: next} })
	mgr, err := ctrl.NewManager(own, ctrl.Options{
		Scheme:                  scheme,
		Controller:              config.Controller{UsePriorityQueue: ptr.To(false)},
		Metrics:                 server.Options{BindAddress: "0"},
		Cache:                   cache.Options{DefaultNamespaces: map[string]cache.Config{w.ns: {}}},
		Client:                  client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		GracefulShutdownTimeout: ptr.To(5 * time.Second),
	})
	if err != nil {
		return err
	}
	runCtx, end := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			end()
		}
	}()
	err = controllers.Setup(runCtx, mgr, controllers.Options{
		Sessions: vsphere.NewSessions(), Meter: &vsphere.Meter{},
		Workload:            &workload.Clusters{Secrets: mgr.GetAPIReader(), Timeout: 2 * time.Second},
		ControllerNamespace: controllerNamespace, UserAgent: l.agent, SkipNameValidation: true, Now: w.now,
		Concurrency: controllers.Concurrency{Cluster: 2, Machine: 4, VM: 2, Pool: 2, Zone: 1},
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || l.dead.Load() {
		end()
		close(l.done)
		return nil
	}
	l.end = end
	w.ended.Go(func() {
		_ = mgr.Start(runCtx)
		close(l.done)
	})
	return nil
}

// die ends a manager in the middle of whatever it does, and starts another one.
func (w *world) die(l *life) {
	if l.dead.Swap(true) {
		return
	}
	w.trail.add("%s dies", l.agent)
	l.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.ended.Go(func() {
			if err := w.start(); err != nil {
				w.trail.add("the next manager does not start: %v", err)
			}
		})
	}
}

// kill ends all managers and starts none.
func (w *world) kill() {
	w.mu.Lock()
	lives := slices.Clone(w.lives)
	w.mu.Unlock()
	for _, l := range lives {
		if !l.dead.Swap(true) {
			l.end()
			<-l.done
		}
	}
}

// now is the managers' clock.
func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

// pass lets time pass for the managers and wakes everything that waits for it.
func (w *world) pass(d time.Duration) {
	w.trail.add("%s pass", d)
	w.ahead.Add(int64(d))
	w.others.poke()
}

// arm lets the fault happen from now on; calls and writes are counted from here.
func (w *world) arm(p point) error {
	w.proxy.Reset()
	w.mu.Lock()
	w.armed, w.events, w.seen = true, nil, map[string]int{}
	if p.kind != "" {
		w.fault = &p
	}
	w.mu.Unlock()
	faults := map[kind]vcenter.Fault{
		fails:     {Kind: vcenter.FaultBefore},
		dropped:   {Kind: vcenter.FaultDrop},
		slow:      {Kind: vcenter.FaultDelay, Delay: 1500 * time.Millisecond},
		busy:      {Kind: disturb.Unavailable},
		expired:   {Kind: disturb.Expired},
		taskFails: {Kind: vcenter.FaultTask},
		taskLies:  {Kind: vcenter.FaultTaskAfter},
		taskSlow:  {Kind: vcenter.FaultTaskHang, Delay: 1500 * time.Millisecond},
	}
	f, ok := faults[p.kind]
	if p.kind == twin {
		w.strike()
		return w.start()
	}
	if p.kind == stale {
		w.strike()
	}
	if !ok || p.write() {
		return nil
	}
	f.Method, f.Skip = p.what, p.n-1
	return w.proxy.Inject(ctx, f)
}

// write says whether the point is a write to the API server.
func (p point) write() bool {
	_, resource, named := strings.Cut(p.what, " ")
	return named && !strings.HasPrefix(resource, "/")
}

func (w *world) strike() {
	w.struck.Add(1)
	w.trail.add("the fault strikes")
}

// hit says whether the fault has happened.
func (w *world) hit() bool {
	if w.struck.Load() > 0 || w.proxy.Struck() > 0 {
		return true
	}
	faults, err := w.vcenter.Admin().Faults(ctx)
	return err == nil && len(faults) > 0 && faults[0].Struck > 0
}

// late is how late watch events come.
func (w *world) late() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.fault == nil:
		return 0
	case w.fault.kind == stale:
		return time.Duration(w.fault.n) * 200 * time.Millisecond
	case w.fault.kind == staleKill:
		return 400 * time.Millisecond
	default:
		return 0
	}
}

// write counts a write to the API server and returns the fault to be done, if it is of a write.
func (w *world) write(what string) (event, *point) {
	w.moves.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[what]++
	e := event{what: what, n: w.seen[what], write: true}
	w.trail.add("%s %d", what, e.n)
	if !w.armed {
		return e, nil
	}
	w.events = append(w.events, e)
	if w.fault == nil || !w.fault.write() {
		return e, nil
	}
	return e, w.fault
}

// lifeOf finds whose call it is.
func (w *world) lifeOf(agent string) *life {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.lives {
		if l.agent == agent {
			return l
		}
	}
	return nil
}

// Before implements disturb.Witness.
func (w *world) Before(c disturb.Call) bool {
	l := w.lifeOf(c.Client)
	if l == nil || l.dead.Load() {
		return false
	}
	if !strings.HasPrefix(c.Method, "WaitForUpdates") {
		w.moves.Add(1)
		w.trail.add("%s %d %s", c.Method, c.N, strings.Trim(c.Object+" "+c.Name, " "))
	}
	w.mu.Lock()
	p := w.fault
	if w.armed {
		w.events = append(w.events, event{what: c.Method, n: c.N})
	}
	moment := w.moment
	w.mu.Unlock()
	if p == nil || p.write() || p.what != c.Method || p.n != c.N {
		return true
	}
	switch p.kind {
	case killBefore:
		w.strike()
		w.die(l)
		return false
	case hides:
		w.strike()
		w.proxy.Hide(1200*time.Millisecond, w.others.belongings(w.flow.hidesFiles)...)
	case removed:
		w.strike()
		if moment != nil {
			moment()
		}
	}
	return true
}

// After implements disturb.Witness.
func (w *world) After(c disturb.Call) bool {
	l := w.lifeOf(c.Client)
	if l == nil || l.dead.Load() {
		return false
	}
	w.mu.Lock()
	p := w.fault
	w.mu.Unlock()
	if p == nil || p.write() || p.what != c.Method || p.n != c.N {
		return true
	}
	switch p.kind {
	case killAfter:
		w.strike()
		w.die(l)
		return false
	case killDuring:
		// It has the answer and perhaps time to record it: the task still runs.
		w.strike()
		time.AfterFunc(150*time.Millisecond, func() { w.die(l) })
	}
	return true
}

// trail is what happened, for the report about a point that did not survive.
type trail struct {
	mu    sync.Mutex
	began time.Time
	lines []string
}

func (t *trail) add(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.began.IsZero() {
		t.began = time.Now()
	}
	t.lines = append(t.lines, fmt.Sprintf("%6.2fs ", time.Since(t.began).Seconds())+fmt.Sprintf(format, args...))
}

func (t *trail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}
