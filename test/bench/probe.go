package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/internal/local"
)

// longPoll is the one call that waits inside vCenter for news. It is counted with the others and told apart.
const longPoll = "WaitForUpdatesEx"

// managerAgent is how berth-manager names itself to vCenter.
const managerAgent = "berth-manager"

// counts are events by kind.
type counts map[string]int64

func (c counts) total() (n int64) {
	for _, v := range c {
		n += v
	}
	return n
}

// less is what has been counted since.
func (c counts) less(since counts) counts {
	out := counts{}
	for k, v := range c {
		if d := v - since[k]; d != 0 {
			out[k] = d
		}
	}
	return out
}

// where sums the kinds that match.
func (c counts) where(match func(kind string) bool) (n int64) {
	for k, v := range c {
		if match(k) {
			n += v
		}
	}
	return n
}

// sample is everything that is counted, at one moment.
type sample struct {
	at time.Time
	// calls of the manager to vCenter by method, and its connections, since vCenter was started.
	calls       counts
	connections int64
	// requests of the manager's present process to the API server, "METHOD code".
	requests counts
	// resources are the API server's requests except this program's own, "VERB resource[/subresource]".
	resources counts
	// conflicts are those of them that were answered with 409.
	conflicts counts
	// reconciles of the manager's present process by controller.
	reconciles counts
	// cpu seconds that the manager's present process has used.
	cpu float64
	// others are the CPU seconds of the other processes of the environment, by name.
	others map[string]float64
}

// probe takes samples.
type probe struct {
	*world
	clients *kubernetes.Clientset
	// pids of the processes that stay the same.
	pids map[string]int
}

func newProbe(ctx context.Context, w *world) (*probe, error) {
	clients, err := kubernetes.NewForConfig(w.config)
	if err != nil {
		return nil, err
	}
	pids, err := w.pids(ctx)
	delete(pids, local.ManagerProcess)
	return &probe{world: w, clients: clients, pids: pids}, err
}

// glance is a sample without what the API server counts: to ask it for its metrics is work that would be measured too.
func (p *probe) glance(ctx context.Context) (*sample, error) {
	s := &sample{at: time.Now(), calls: counts{}, others: map[string]float64{}}
	for name, pid := range p.pids {
		used, err := cpuSeconds(pid)
		if err != nil {
			return nil, fmt.Errorf("reading the CPU time of %s: %w", name, err)
		}
		s.others[name] = used
	}
	counters, err := p.vcenter.Counters(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the simulated vCenter's counters: %w", err)
	}
	for agent, client := range counters.Clients {
		if !strings.HasPrefix(agent, managerAgent) {
			continue
		}
		s.connections += client.Connections
		for method, n := range client.Calls {
			s.calls[shortMethod(method)] += n
		}
	}
	manager, err := fetchMetrics(ctx, p.env.ManagerMetrics())
	if err != nil {
		return nil, fmt.Errorf("reading the manager's metrics: %w", err)
	}
	s.requests = sum(manager["rest_client_requests_total"], func(l map[string]string) string { return l["method"] + " " + l["code"] })
	s.reconciles = sum(manager["controller_runtime_reconcile_total"], func(l map[string]string) string { return l["controller"] })
	for _, m := range manager["process_cpu_seconds_total"].GetMetric() {
		s.cpu = m.GetCounter().GetValue()
	}
	return s, nil
}

// sample counts everything.
func (p *probe) sample(ctx context.Context) (*sample, error) {
	s, err := p.glance(ctx)
	if err != nil {
		return nil, err
	}
	text, err := p.clients.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	server, err := parseMetrics(strings.NewReader(string(text)))
	if err != nil {
		return nil, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	own, ownConflicts := p.own.counts()
	key := func(l map[string]string) string { return resourceKey(l["verb"], l["resource"], l["subresource"]) }
	s.resources = sum(server["apiserver_request_total"], key).less(own)
	s.conflicts = sum(server["apiserver_request_total"], func(l map[string]string) string {
		if l["code"] != strconv.Itoa(http.StatusConflict) {
			return ""
		}
		return key(l)
	}).less(ownConflicts)
	delete(s.conflicts, "")
	return s, nil
}

// shortMethod folds the paths of files and REST objects, which differ from machine to machine.
func shortMethod(method string) string {
	path, isREST := strings.CutPrefix(method, "REST ")
	if !isREST {
		return method
	}
	verb, path, _ := strings.Cut(path, " ")
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return verb + " /" + first
}

// resourceKey names a request to an API server. Server-side apply is a patch here too.
func resourceKey(verb, resource, subresource string) string {
	if verb == "APPLY" {
		verb = http.MethodPatch
	}
	if subresource != "" {
		resource += "/" + subresource
	}
	return verb + " " + resource
}

func sum(family *dto.MetricFamily, key func(labels map[string]string) string) counts {
	out := counts{}
	for _, m := range family.GetMetric() {
		labels := map[string]string{}
		for _, pair := range m.GetLabel() {
			labels[pair.GetName()] = pair.GetValue()
		}
		out[key(labels)] += int64(m.GetCounter().GetValue())
	}
	return out
}

func fetchMetrics(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, res.Status)
	}
	return parseMetrics(res.Body)
}

func parseMetrics(text io.Reader) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(text)
}

// settled waits until the manager has nothing more to do for a second: no call but the long poll, no write.
func (p *probe) settled(ctx context.Context) (*sample, error) {
	const quiet = time.Second
	last, err := p.glance(ctx)
	if err != nil {
		return nil, err
	}
	since := last.at
	err = until(ctx, 250*time.Millisecond, "the manager is at rest", func(ctx context.Context) (bool, error) {
		now, err := p.glance(ctx)
		if err != nil {
			return false, err
		}
		if busy(now) != busy(last) {
			since = now.at
		}
		last = now
		return now.at.Sub(since) >= quiet, nil
	})
	if err != nil {
		return nil, err
	}
	return p.sample(ctx)
}

// busy counts everything that a manager with work to do increases.
func busy(s *sample) int64 {
	return s.calls.where(func(method string) bool { return method != longPoll }) + s.requests.where(isWrite) + s.reconciles.total()
}

// isWrite recognises a request of sample.requests that changes something.
func isWrite(kind string) bool {
	method, _, _ := strings.Cut(kind, " ")
	switch method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}

func isConflict(kind string) bool { return isWrite(kind) && strings.HasSuffix(kind, " 409") }

// ownRequests counts what this program itself asks of the API server, so that it can be taken off.
type ownRequests struct {
	mu             sync.Mutex
	all, conflicts counts
}

func newOwnRequests() *ownRequests { return &ownRequests{all: counts{}, conflicts: counts{}} }

func (o *ownRequests) counts() (all, conflicts counts) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.all), maps.Clone(o.conflicts)
}

func (o *ownRequests) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		res, err := next.RoundTrip(req)
		if resource, subresource := resourceOf(req.URL.Path); err == nil && req.Method != http.MethodGet {
			o.mu.Lock()
			key := resourceKey(req.Method, resource, subresource)
			o.all[key]++
			if res.StatusCode == http.StatusConflict {
				o.conflicts[key]++
			}
			o.mu.Unlock()
		}
		return res, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// resourceOf takes a path of the Kubernetes API apart: /api/v1/... or /apis/group/version/..., then an optional namespace.
func resourceOf(path string) (resource, subresource string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return "", ""
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		subresource = parts[2]
	}
	return parts[0], subresource
}
