package vsphere

import (
	"context"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
)

// Session is one login at one vCenter. It implements machine.Platform. Safe for concurrent use.
type Session struct {
	client    *client
	observer  *observer
	inventory *inventories
	templates templates
	spaces    spaces
	policies  policies
	markers   markers
	scans     scans
	hosts     sync.Map
	desk      *desk
	groups    groups
	fields    fields
	// tagging serialises the making of tags: two zones of one region would both find none and both make one.
	tagging sync.Mutex

	softMu    sync.Mutex
	softAsked map[types.ManagedObjectReference]time.Time

	marks *queue
}

var _ machine.Platform = (*Session)(nil)

// Dial logs in and starts the watch. Errors: Refused (credentials, thumbprint, not a vCenter), Broken (unreachable).
// ctx bounds the login only. Most callers want Sessions.Acquire.
func Dial(ctx context.Context, cfg Config) (*Session, error) {
	return dial(ctx, cfg, &breaker{pause: cfg.Limits.withDefaults().AuthPause})
}

func dial(ctx context.Context, cfg Config, b *breaker) (*Session, error) {
	cfg.Limits = cfg.Limits.withDefaults()
	c, err := connect(ctx, cfg, b)
	if err != nil {
		return nil, err
	}
	s := &Session{
		client:    c,
		inventory: &inventories{c: c, ttl: cfg.PathTTL},
		templates: templates{known: map[string]*template{}},
		policies:  policies{known: map[string]policyAnswer{}},
		spaces:    spaces{free: map[types.ManagedObjectReference]space{}},
		markers:   markers{known: map[string]knownMarker{}},
		softAsked: map[types.ManagedObjectReference]time.Time{},
		marks:     newQueue(),
		desk:      newDesk(),
	}
	s.observer = newObserver(c, s.marks.put)
	if err := s.observer.start(ctx); err != nil {
		_ = c.logOut(ctx)
		return nil, failed(err, "watching vCenter %s", cfg.Server)
	}
	return s, nil
}

// Version is the vCenter's version, such as "8.0.3".
func (s *Session) Version() string { return s.client.vim.ServiceContent.About.Version }

// Healthy tells whether the watch is open: nil, or why the vCenter cannot be reached at the moment. It makes no call.
func (s *Session) Healthy() error {
	return failed(s.observer.health(), "vCenter %s", s.client.cfg.Server)
}

// Changes implements machine.Platform.
func (s *Session) Changes() <-chan machine.Mark { return s.marks.out }

// Close ends the watch and logs out. Later calls fail.
func (s *Session) Close(ctx context.Context) error {
	s.observer.stop(ctx)
	err := s.client.logOut(ctx)
	s.marks.close()
	return failed(err, "logging out of vCenter %s", s.client.cfg.Server)
}

// queue hands marks on without ever holding up the watch: a mark that is still waiting is not queued twice.
type queue struct {
	out  chan machine.Mark
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex
	waiting []machine.Mark
	queued  map[machine.Mark]bool
	closed  bool
}

func newQueue() *queue {
	q := &queue{
		out: make(chan machine.Mark), wake: make(chan struct{}, 1), done: make(chan struct{}),
		queued: map[machine.Mark]bool{},
	}
	go q.run()
	return q
}

func (q *queue) put(m machine.Mark) {
	q.mu.Lock()
	if !q.queued[m] && !q.closed {
		q.queued[m] = true
		q.waiting = append(q.waiting, m)
	}
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) run() {
	defer close(q.out)
	for {
		select {
		case <-q.done:
			return
		case <-q.wake:
		}
		for {
			q.mu.Lock()
			if len(q.waiting) == 0 {
				q.mu.Unlock()
				break
			}
			m := q.waiting[0]
			q.waiting = q.waiting[1:]
			// What happens from here on is a new change, even while this one waits for its reader.
			delete(q.queued, m)
			q.mu.Unlock()
			select {
			case q.out <- m:
			case <-q.done:
				return
			}
		}
	}
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		close(q.done)
	}
}
