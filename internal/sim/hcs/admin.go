package hcs

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// World is everything that exists at one moment, for checks that must not depend on the API under test, and for guests.
type World struct {
	Time time.Time `json:"time"`
	// Version grows with every change; who has seen one can wait for a later one.
	Version   int64           `json:"version"`
	Servers   []ServerState   `json:"servers"`
	Volumes   []VolumeState   `json:"volumes"`
	Ports     []PortState     `json:"ports"`
	Groups    []GroupState    `json:"serverGroups"`
	Balancers []BalancerState `json:"loadBalancers"`
}

// ServerState is a server.
type ServerState struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Status   string            `json:"status"`
	Zone     string            `json:"zone"`
	Host     int               `json:"host"`
	Flavor   string            `json:"flavor"`
	Image    Image             `json:"image"`
	Group    string            `json:"serverGroup,omitempty"`
	Metadata map[string]string `json:"metadata"`
	NICs     []NICState        `json:"nics"`
	Volumes  []AttachedVolume  `json:"volumes"`
}

// NICState is an interface of a server.
type NICState struct {
	MAC     string     `json:"mac"`
	Network string     `json:"network"`
	Address netip.Addr `json:"address"`
	Subnet  Subnet     `json:"subnet"`
}

// AttachedVolume is a volume of a server.
type AttachedVolume struct {
	ID     string `json:"id"`
	Device string `json:"device"`
	SizeGB int    `json:"sizeGB"`
	Root   bool   `json:"root,omitempty"`
	// Own: it came with the server.
	Own bool `json:"own"`
}

// VolumeState is a volume.
type VolumeState struct {
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Status   string            `json:"status"`
	SizeGB   int               `json:"sizeGB"`
	Type     string            `json:"type"`
	Zone     string            `json:"zone"`
	Server   string            `json:"server,omitempty"`
	Metadata map[string]string `json:"metadata"`
	// HasContent: something was written on it.
	HasContent bool `json:"hasContent"`
}

// PortState is an address in use.
type PortState struct {
	ID      string     `json:"id"`
	Network string     `json:"network"`
	Address netip.Addr `json:"address"`
	Device  string     `json:"device"`
	Owner   string     `json:"owner"`
}

// GroupState is a server group.
type GroupState struct {
	ID      string   `json:"id"`
	Name    string   `json:"name"`
	Policy  string   `json:"policy"`
	Members []string `json:"members"`
}

// BalancerState is a load balancer.
type BalancerState struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	VIP       string          `json:"vip"`
	Hybrid    bool            `json:"hybrid"`
	Listeners map[int32][]Hop `json:"listeners"`
}

// Hop is where a listener forwards to.
type Hop struct {
	Address string `json:"address"`
	Port    int32  `json:"port"`
}

// World returns everything that exists.
func (s *Server) World() World {
	c := s.cloud
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance()
	w := World{Time: s.opts.Now(), Version: c.version}
	for _, v := range c.serversInOrder() {
		if v.gone {
			continue
		}
		w.Servers = append(w.Servers, c.serverState(v))
	}
	for _, v := range c.volumesInOrder() {
		state := VolumeState{
			ID: v.id, Name: v.name, Status: v.status, SizeGB: v.size, Type: v.kind, Zone: v.zone, Metadata: maps.Clone(v.metadata), HasContent: c.hasContent(v.id),
		}
		if v.server != nil {
			state.Server = v.server.id
		}
		w.Volumes = append(w.Volumes, state)
	}
	for _, p := range c.ports {
		w.Ports = append(w.Ports, PortState{ID: p.id, Network: p.network, Address: p.address, Device: p.device, Owner: p.owner})
	}
	for _, g := range c.affinity {
		state := GroupState{ID: g.id, Name: g.name, Policy: g.policy}
		for _, m := range c.members(g.id) {
			state.Members = append(state.Members, m.id)
		}
		w.Groups = append(w.Groups, state)
	}
	for _, b := range c.balancers {
		w.Balancers = append(w.Balancers, c.balancerState(b))
	}
	return w
}

func (c *cloud) serverState(v *server) ServerState {
	state := ServerState{
		ID: v.id, Name: v.name, Status: v.status, Zone: v.zone, Host: v.host, Flavor: v.flavor.Name, Image: v.image, Group: v.groupID, Metadata: maps.Clone(v.metadata),
	}
	for _, p := range v.ports {
		subnet, _ := c.subnet(p.network)
		state.NICs = append(state.NICs, NICState{MAC: p.mac, Network: p.network, Address: p.address, Subnet: subnet})
	}
	for _, a := range v.volumes {
		state.Volumes = append(state.Volumes, AttachedVolume{ID: a.volume.id, Device: a.device, SizeGB: a.volume.size, Root: a.volume.root, Own: a.own})
	}
	return state
}

// UserData of a server, as the client gave it.
func (s *Server) UserData(id string) ([]byte, bool) {
	s.cloud.mu.Lock()
	defer s.cloud.mu.Unlock()
	v := s.cloud.servers[id]
	if v == nil || v.gone {
		return nil, false
	}
	return v.userData, true
}

// Inject adds faults.
func (s *Server) Inject(list ...Fault) error { return s.faults.add(list...) }

// Calls by operation so far.
func (s *Server) Calls() map[string]int { return s.counters.snapshot() }

func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	reply := func(w http.ResponseWriter, value any) { answer(w, http.StatusOK, value) }
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /world", s.getWorld)
	mux.HandleFunc("GET /violations", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.Violations()) })
	mux.HandleFunc("GET /counters", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.counters.snapshot()) })
	mux.HandleFunc("POST /counters/reset", func(w http.ResponseWriter, _ *http.Request) {
		s.counters.reset()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.faults.list()) })
	mux.HandleFunc("DELETE /faults", func(w http.ResponseWriter, _ *http.Request) {
		s.faults.clear()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /faults", s.postFaults)
	mux.HandleFunc("GET /servers/{id}/user-data", func(w http.ResponseWriter, r *http.Request) {
		data, ok := s.UserData(r.PathValue("id"))
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(data)
	})
	// What people and hardware do behind the platform's back.
	mux.HandleFunc("DELETE /servers/{id}", func(w http.ResponseWriter, r *http.Request) { s.behind(w, r, s.cloud.eraseServer) })
	mux.HandleFunc("DELETE /volumes/{id}", func(w http.ResponseWriter, r *http.Request) { s.behind(w, r, s.cloud.eraseVolume) })
	mux.HandleFunc("POST /servers/{id}/stop", func(w http.ResponseWriter, r *http.Request) { s.behind(w, r, s.cloud.stopBehind) })
	mux.HandleFunc("POST /loadbalancers/{id}/hybrid-off", func(w http.ResponseWriter, r *http.Request) { s.behind(w, r, s.cloud.hybridOff) })
	return mux
}

// longPoll is how long a question for the next change waits.
const longPoll = 30 * time.Second

// getWorld answers at once, or with ?after=<version> when there is a later one.
func (s *Server) getWorld(w http.ResponseWriter, r *http.Request) {
	if after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64); err == nil {
		s.cloud.mu.Lock()
		changed, seen := s.cloud.changed, after >= s.cloud.version
		s.cloud.mu.Unlock()
		if !seen {
			answer(w, http.StatusOK, s.World())
			return
		}
		timer := time.NewTimer(longPoll)
		defer timer.Stop()
		select {
		case <-changed:
		case <-timer.C:
		case <-r.Context().Done():
			return
		case <-s.stopped:
			return
		}
	}
	answer(w, http.StatusOK, s.World())
}

var errNoSuchThing = errors.New("there is no such thing")

func (s *Server) behind(w http.ResponseWriter, r *http.Request, act func(id string) error) {
	s.cloud.mu.Lock()
	defer s.cloud.mu.Unlock()
	s.cloud.advance()
	if err := act(r.PathValue("id")); err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	s.cloud.touch()
	w.WriteHeader(http.StatusNoContent)
}

// postFaults takes one rule or a list of them.
func (s *Server) postFaults(w http.ResponseWriter, r *http.Request) {
	var raw json.RawMessage
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&raw); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var list []Fault
	if json.Unmarshal(raw, &list) != nil {
		list = make([]Fault, 1)
		if err := json.Unmarshal(raw, &list[0]); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	if err := s.faults.add(list...); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// counters of calls by operation.
type counters struct {
	mu    sync.Mutex
	calls map[string]int
}

func newCounters() *counters { return &counters{calls: map[string]int{}} }

func (c *counters) count(operation string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[operation]++
}

func (c *counters) snapshot() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.calls)
}

func (c *counters) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = map[string]int{}
}
