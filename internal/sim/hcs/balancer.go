package hcs

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

type balancer struct {
	id, name, description string
	vip                   netip.Addr
	subnet                Subnet
	hybrid                bool
	l4, l7                []networkIPs
	port                  *port
	own                   []*port
	// pending is how many reads still show it as being created.
	pending int
}

type networkIPs struct {
	NetworkID string   `json:"network_id"`
	IPs       []string `json:"ips"`
}

type listener struct {
	id, name, balancer string
	port               int32
	pool               string
	forward            *forwarder
}

type memberPool struct {
	id, name, listener, balancer string
	monitor                      string
	members                      []*member
}

type member struct {
	id, name, address, subnet string
	port                      int32
}

// balancerRoutes serves both dialects: they differ in the path and in two words.
func (c *cloud) balancerRoutes(on func(string, string, handler)) {
	for _, root := range []string{"/elb/v2.0/lbaas", "/elb/v3/{project}/elb"} {
		on("POST "+root+"/loadbalancers", "CreateLoadBalancer", c.createBalancer)
		on("GET "+root+"/loadbalancers", "ListLoadBalancers", c.listBalancers)
		on("GET "+root+"/loadbalancers/{id}", "ShowLoadBalancer", c.showBalancer)
		on("PUT "+root+"/loadbalancers/{id}", "UpdateLoadBalancer", c.updateBalancer)
		on("DELETE "+root+"/loadbalancers/{id}", "DeleteLoadBalancer", c.deleteBalancer)
		on("POST "+root+"/listeners", "CreateListener", c.createListener)
		on("GET "+root+"/listeners", "ListListeners", c.listListeners)
		on("GET "+root+"/listeners/{id}", "ShowListener", c.showListener)
		on("DELETE "+root+"/listeners/{id}", "DeleteListener", c.deleteListener)
		on("POST "+root+"/pools", "CreatePool", c.createPool)
		on("GET "+root+"/pools", "ListPools", c.listPools)
		on("GET "+root+"/pools/{id}", "ShowPool", c.showPool)
		on("DELETE "+root+"/pools/{id}", "DeletePool", c.deletePool)
		on("POST "+root+"/pools/{id}/members", "CreateMember", c.createMember)
		on("GET "+root+"/pools/{id}/members", "ListMembers", c.listMembers)
		on("DELETE "+root+"/pools/{id}/members/{member}", "DeleteMember", c.deleteMember)
		on("POST "+root+"/healthmonitors", "CreateHealthMonitor", c.createMonitor)
		on("DELETE "+root+"/healthmonitors/{id}", "DeleteHealthMonitor", c.deleteMonitor)
	}
}

func noSuch(what, id string) *refusal {
	return neutronRefusal(http.StatusNotFound, "EntityNotFound", "%s %s could not be found", what, id)
}

func (c *cloud) createBalancer(r *request) (int, any, *refusal) {
	var body struct {
		Balancer struct {
			Name        string       `json:"name"`
			Description string       `json:"description"`
			VIPAddress  string       `json:"vip_address"`
			Subnet      string       `json:"vip_subnet_id"`
			SubnetCIDR  string       `json:"vip_subnet_cidr_id"`
			Hybrid      bool         `json:"ip_target_enable"`
			L4          []networkIPs `json:"elb_virsubnet_l4_ips"`
			L7          []networkIPs `json:"elb_virsubnet_l7_ips"`
		} `json:"loadbalancer"`
	}
	if refused := r.decode(&body); refused != nil {
		return 0, nil, refused
	}
	in := &body.Balancer
	subnet, ok := c.neutron(cmp.Or(in.Subnet, in.SubnetCIDR))
	if !ok {
		return 0, nil, neutronRefusal(http.StatusBadRequest, "BadRequest", "subnet %s could not be found", cmp.Or(in.Subnet, in.SubnetCIDR))
	}
	vip := c.freeAddress(subnet)
	if in.VIPAddress != "" {
		var refused *refusal
		if vip, refused = c.takeable(subnet, in.VIPAddress); refused != nil {
			return 0, nil, refused
		}
	}
	b := &balancer{id: newID(), name: in.Name, description: in.Description, vip: vip, subnet: subnet, hybrid: in.Hybrid, l4: in.L4, l7: in.L7, pending: c.opts.Lag}
	type address struct {
		subnet Subnet
		ip     netip.Addr
	}
	var own []address
	for _, list := range [][]networkIPs{in.L4, in.L7} {
		for _, n := range list {
			s, ok := c.subnet(n.NetworkID)
			if !ok {
				return 0, nil, neutronRefusal(http.StatusBadRequest, "BadRequest", "network %s could not be found", n.NetworkID)
			}
			for _, text := range n.IPs {
				ip, refused := c.takeable(s, text)
				if refused != nil {
					return 0, nil, refused
				}
				own = append(own, address{s, ip})
			}
		}
	}
	b.port = c.addPort(subnet.ID, vip, b.id, "neutron:LOADBALANCERV2")
	for _, a := range own {
		if c.portAt(a.subnet.ID, a.ip) == nil {
			b.own = append(b.own, c.addPort(a.subnet.ID, a.ip, b.id, "neutron:LOADBALANCERV2"))
		}
	}
	c.balancers[b.id] = b
	c.touch()
	return http.StatusCreated, map[string]any{"loadbalancer": c.balancerView(b)}, nil
}

// takeable reads an address that must be one of a subnet, and free.
func (c *cloud) takeable(s Subnet, text string) (netip.Addr, *refusal) {
	a, err := netip.ParseAddr(text)
	if err != nil || !s.CIDR.Contains(a) || a == s.Gateway {
		return a, neutronRefusal(http.StatusBadRequest, "InvalidIpForSubnet", "IP address %s is not a valid IP for the specified subnet %s", text, s.CIDR)
	}
	if p := c.portAt(s.ID, a); p != nil {
		return a, neutronRefusal(http.StatusConflict, "IpAddressInUse", "Unable to complete operation for network %s. The IP address %s is in use.", s.ID, a)
	}
	return a, nil
}

func (c *cloud) balancerView(b *balancer) map[string]any {
	provisioning, operating := "ACTIVE", "ONLINE"
	if b.pending > 0 {
		b.pending--
		provisioning, operating = "PENDING_CREATE", "OFFLINE"
	}
	listeners, pools := []any{}, []any{}
	for _, l := range c.listenersOf(b.id) {
		listeners = append(listeners, map[string]any{"id": l.id})
	}
	for _, p := range c.poolsOf(b.id) {
		pools = append(pools, map[string]any{"id": p.id})
	}
	return map[string]any{
		"id": b.id, "name": b.name, "description": b.description, "provisioning_status": provisioning, "operating_status": operating, "admin_state_up": true,
		"vip_address": b.vip.String(), "vip_subnet_id": b.subnet.NeutronSubnetID, "vip_subnet_cidr_id": b.subnet.NeutronSubnetID, "vip_port_id": b.port.id,
		"ip_target_enable": b.hybrid, "listeners": listeners, "pools": pools, "elb_virsubnet_l4_ips": b.l4, "elb_virsubnet_l7_ips": b.l7, "provider": "vlb",
	}
}

func (c *cloud) listenersOf(balancer string) []*listener {
	var out []*listener
	for _, id := range slices.Sorted(maps.Keys(c.listeners)) {
		if l := c.listeners[id]; balancer == "" || l.balancer == balancer {
			out = append(out, l)
		}
	}
	return out
}

func (c *cloud) poolsOf(balancer string) []*memberPool {
	var out []*memberPool
	for _, id := range slices.Sorted(maps.Keys(c.pools)) {
		if p := c.pools[id]; balancer == "" || p.balancer == balancer {
			out = append(out, p)
		}
	}
	return out
}

func (c *cloud) listBalancers(r *request) (int, any, *refusal) {
	q, list := r.URL.Query(), []any{}
	for _, id := range slices.Sorted(maps.Keys(c.balancers)) {
		b := c.balancers[id]
		if (q.Get("name") == "" || strings.Contains(b.name, q.Get("name"))) && (q.Get("vip_address") == "" || b.vip.String() == q.Get("vip_address")) {
			list = append(list, c.balancerView(b))
		}
	}
	return http.StatusOK, map[string]any{"loadbalancers": list}, nil
}

func (c *cloud) showBalancer(r *request) (int, any, *refusal) {
	b := c.balancers[r.PathValue("id")]
	if b == nil {
		return 0, nil, noSuch("loadbalancer", r.PathValue("id"))
	}
	return http.StatusOK, map[string]any{"loadbalancer": c.balancerView(b)}, nil
}

// updateBalancer only ever turns the hybrid mode on.
func (c *cloud) updateBalancer(r *request) (int, any, *refusal) {
	b := c.balancers[r.PathValue("id")]
	if b == nil {
		return 0, nil, noSuch("loadbalancer", r.PathValue("id"))
	}
	var body struct {
		Balancer struct {
			Name        *string `json:"name"`
			Description *string `json:"description"`
			Hybrid      *bool   `json:"ip_target_enable"`
		} `json:"loadbalancer"`
	}
	if refused := r.decode(&body); refused != nil {
		return 0, nil, refused
	}
	in := &body.Balancer
	if in.Hybrid != nil {
		if !*in.Hybrid && b.hybrid {
			return 0, nil, neutronRefusal(http.StatusBadRequest, "BadRequest", "ip_target_enable cannot be changed to false")
		}
		b.hybrid = *in.Hybrid
	}
	if in.Name != nil {
		b.name = *in.Name
	}
	if in.Description != nil {
		b.description = *in.Description
	}
	c.touch()
	return http.StatusOK, map[string]any{"loadbalancer": c.balancerView(b)}, nil
}

func (c *cloud) deleteBalancer(r *request) (int, any, *refusal) {
	b := c.balancers[r.PathValue("id")]
	if b == nil {
		return 0, nil, noSuch("loadbalancer", r.PathValue("id"))
	}
	if len(c.listenersOf(b.id)) > 0 || len(c.poolsOf(b.id)) > 0 {
		return 0, nil, neutronRefusal(http.StatusConflict, "EntityInUse", "loadbalancer %s is using this listener or pool", b.id)
	}
	for _, p := range append(b.own, b.port) {
		delete(c.ports, p.id)
	}
	delete(c.balancers, b.id)
	c.touch()
	return http.StatusNoContent, nil, nil
}

func (c *cloud) createListener(r *request) (int, any, *refusal) {
	var body struct {
		Listener struct {
			Name     string `json:"name"`
			Balancer string `json:"loadbalancer_id"`
			Protocol string `json:"protocol"`
			Port     int32  `json:"protocol_port"`
		} `json:"listener"`
	}
	if refused := r.decode(&body); refused != nil {
		return 0, nil, refused
	}
	in := &body.Listener
	b := c.balancers[in.Balancer]
	switch {
	case b == nil:
		return 0, nil, noSuch("loadbalancer", in.Balancer)
	case in.Protocol != "TCP" || in.Port < 1 || in.Port > 65535:
		return 0, nil, neutronRefusal(http.StatusBadRequest, "BadRequest", "protocol %q and port %d are not supported", in.Protocol, in.Port)
	case slices.ContainsFunc(c.listenersOf(b.id), func(l *listener) bool { return l.port == in.Port }):
		return 0, nil, neutronRefusal(http.StatusConflict, "ListenerPortInUse", "load balancer %s already has a listener with protocol_port of %d", b.id, in.Port)
	}
	l := &listener{id: newID(), name: in.Name, balancer: b.id, port: in.Port}
	forward, err := c.forwardFrom(b.vip, l)
	if err != nil {
		return 0, nil, neutronRefusal(http.StatusServiceUnavailable, "ServiceUnavailable", "the address cannot be listened on: %v", err)
	}
	l.forward = forward
	c.listeners[l.id] = l
	c.touch()
	return http.StatusCreated, map[string]any{"listener": listenerView(l)}, nil
}

func listenerView(l *listener) map[string]any {
	var pool any
	if l.pool != "" {
		pool = l.pool
	}
	return map[string]any{
		"id": l.id, "name": l.name, "protocol": "TCP", "protocol_port": l.port, "default_pool_id": pool, "admin_state_up": true,
		"loadbalancers": []any{map[string]any{"id": l.balancer}},
	}
}

func (c *cloud) listListeners(r *request) (int, any, *refusal) {
	list := []any{}
	for _, l := range c.listenersOf(r.URL.Query().Get("loadbalancer_id")) {
		list = append(list, listenerView(l))
	}
	return http.StatusOK, map[string]any{"listeners": list}, nil
}

func (c *cloud) showListener(r *request) (int, any, *refusal) {
	l := c.listeners[r.PathValue("id")]
	if l == nil {
		return 0, nil, noSuch("listener", r.PathValue("id"))
	}
	return http.StatusOK, map[string]any{"listener": listenerView(l)}, nil
}

func (c *cloud) deleteListener(r *request) (int, any, *refusal) {
	l := c.listeners[r.PathValue("id")]
	if l == nil {
		return 0, nil, noSuch("listener", r.PathValue("id"))
	}
	if l.pool != "" {
		return 0, nil, neutronRefusal(http.StatusConflict, "EntityInUse", "listener %s is using this pool", l.id)
	}
	l.stop()
	delete(c.listeners, l.id)
	c.touch()
	return http.StatusNoContent, nil, nil
}

func (c *cloud) createPool(r *request) (int, any, *refusal) {
	var body struct {
		Pool struct {
			Name     string `json:"name"`
			Listener string `json:"listener_id"`
			Protocol string `json:"protocol"`
		} `json:"pool"`
	}
	if refused := r.decode(&body); refused != nil {
		return 0, nil, refused
	}
	l := c.listeners[body.Pool.Listener]
	switch {
	case l == nil:
		return 0, nil, noSuch("listener", body.Pool.Listener)
	case l.pool != "":
		return 0, nil, neutronRefusal(http.StatusConflict, "ListenerInUse", "listener %s has a default pool already", l.id)
	}
	p := &memberPool{id: newID(), name: body.Pool.Name, listener: l.id, balancer: l.balancer}
	l.pool = p.id
	c.pools[p.id] = p
	c.touch()
	return http.StatusCreated, map[string]any{"pool": poolView(p)}, nil
}

func poolView(p *memberPool) map[string]any {
	var monitor any
	if p.monitor != "" {
		monitor = p.monitor
	}
	members := []any{}
	for _, m := range p.members {
		members = append(members, map[string]any{"id": m.id})
	}
	return map[string]any{
		"id": p.id, "name": p.name, "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "healthmonitor_id": monitor, "members": members, "admin_state_up": true,
		"listeners": []any{map[string]any{"id": p.listener}}, "loadbalancers": []any{map[string]any{"id": p.balancer}},
	}
}

func (c *cloud) listPools(r *request) (int, any, *refusal) {
	list := []any{}
	for _, p := range c.poolsOf(r.URL.Query().Get("loadbalancer_id")) {
		list = append(list, poolView(p))
	}
	return http.StatusOK, map[string]any{"pools": list}, nil
}

func (c *cloud) showPool(r *request) (int, any, *refusal) {
	p := c.pools[r.PathValue("id")]
	if p == nil {
		return 0, nil, noSuch("pool", r.PathValue("id"))
	}
	return http.StatusOK, map[string]any{"pool": poolView(p)}, nil
}

func (c *cloud) deletePool(r *request) (int, any, *refusal) {
	p := c.pools[r.PathValue("id")]
	switch {
	case p == nil:
		return 0, nil, noSuch("pool", r.PathValue("id"))
	case len(p.members) > 0 || p.monitor != "":
		return 0, nil, neutronRefusal(http.StatusConflict, "EntityInUse", "pool %s has members or a health monitor", p.id)
	}
	if l := c.listeners[p.listener]; l != nil {
		l.pool = ""
	}
	delete(c.pools, p.id)
	c.touch()
	return http.StatusNoContent, nil, nil
}

func (c *cloud) createMember(r *request) (int, any, *refusal) {
	p := c.pools[r.PathValue("id")]
	if p == nil {
		return 0, nil, noSuch("pool", r.PathValue("id"))
	}
	var body struct {
		Member struct {
			Name       string `json:"name"`
			Address    string `json:"address"`
			Port       int32  `json:"protocol_port"`
			Subnet     string `json:"subnet_id"`
			SubnetCIDR string `json:"subnet_cidr_id"`
		} `json:"member"`
	}
	if refused := r.decode(&body); refused != nil {
		return 0, nil, refused
	}
	in := &body.Member
	subnet, ok := c.neutron(cmp.Or(in.Subnet, in.SubnetCIDR))
	a, err := netip.ParseAddr(in.Address)
	switch {
	case !ok:
		return 0, nil, noSuch("subnet", cmp.Or(in.Subnet, in.SubnetCIDR))
	case err != nil || !subnet.CIDR.Contains(a):
		return 0, nil, neutronRefusal(http.StatusBadRequest, "BadRequest", "address %q is not one of subnet %s", in.Address, subnet.CIDR)
	case slices.ContainsFunc(p.members, func(m *member) bool { return m.address == in.Address && m.port == in.Port }):
		return 0, nil, neutronRefusal(http.StatusConflict, "MemberExists", "member with address %s and protocol_port %d already present in pool %s", in.Address, in.Port, p.id)
	}
	m := &member{id: newID(), name: in.Name, address: in.Address, port: in.Port, subnet: subnet.NeutronSubnetID}
	p.members = append(p.members, m)
	c.touch()
	return http.StatusCreated, map[string]any{"member": memberView(m)}, nil
}

func memberView(m *member) map[string]any {
	return map[string]any{
		"id": m.id, "name": m.name, "address": m.address, "protocol_port": m.port, "subnet_id": m.subnet, "subnet_cidr_id": m.subnet, "weight": 1,
		"operating_status": "ONLINE", "admin_state_up": true,
	}
}

func (c *cloud) listMembers(r *request) (int, any, *refusal) {
	p := c.pools[r.PathValue("id")]
	if p == nil {
		return 0, nil, noSuch("pool", r.PathValue("id"))
	}
	list := []any{}
	for _, m := range p.members {
		list = append(list, memberView(m))
	}
	return http.StatusOK, map[string]any{"members": list}, nil
}

func (c *cloud) deleteMember(r *request) (int, any, *refusal) {
	p := c.pools[r.PathValue("id")]
	if p == nil {
		return 0, nil, noSuch("pool", r.PathValue("id"))
	}
	before := len(p.members)
	p.members = slices.DeleteFunc(p.members, func(m *member) bool { return m.id == r.PathValue("member") })
	if len(p.members) == before {
		return 0, nil, noSuch("member", r.PathValue("member"))
	}
	c.touch()
	return http.StatusNoContent, nil, nil
}

func (c *cloud) createMonitor(r *request) (int, any, *refusal) {
	var body struct {
		Monitor map[string]json.RawMessage `json:"healthmonitor"`
	}
	if refused := r.decode(&body); refused != nil {
		return 0, nil, refused
	}
	var id string
	_ = json.Unmarshal(body.Monitor["pool_id"], &id)
	p := c.pools[id]
	switch {
	case p == nil:
		return 0, nil, noSuch("pool", id)
	case p.monitor != "":
		return 0, nil, neutronRefusal(http.StatusConflict, "EntityInUse", "pool %s has a health monitor already", p.id)
	}
	p.monitor = newID()
	c.touch()
	return http.StatusCreated, map[string]any{"healthmonitor": map[string]any{"id": p.monitor, "type": "TCP", "pools": []any{map[string]any{"id": p.id}}}}, nil
}

func (c *cloud) deleteMonitor(r *request) (int, any, *refusal) {
	for _, p := range c.pools {
		if p.monitor == r.PathValue("id") {
			p.monitor = ""
			c.touch()
			return http.StatusNoContent, nil, nil
		}
	}
	return 0, nil, noSuch("healthmonitor", r.PathValue("id"))
}

// hybridOff is an operator who turns the mode off on the load balancer itself.
func (c *cloud) hybridOff(id string) error {
	b := c.balancers[id]
	if b == nil {
		return errNoSuchThing
	}
	b.hybrid = false
	return nil
}

func (c *cloud) balancerState(b *balancer) BalancerState {
	state := BalancerState{ID: b.id, Name: b.name, VIP: b.vip.String(), Hybrid: b.hybrid, Listeners: map[int32][]Hop{}}
	for _, l := range c.listenersOf(b.id) {
		hops := []Hop{}
		if p := c.pools[l.pool]; p != nil {
			for _, m := range p.members {
				hops = append(hops, Hop{Address: m.address, Port: m.port})
			}
		}
		state.Listeners[l.port] = hops
	}
	return state
}
