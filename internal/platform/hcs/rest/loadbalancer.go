package rest

import (
	"context"
	"net/http"
	"net/url"
)

// BalancerInfo is a load balancer.
type BalancerInfo struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	// Provisioning is the platform's word: ACTIVE, PENDING_CREATE, ERROR and others.
	Provisioning string `json:"provisioning_status"`
	VIPAddress   string `json:"vip_address"`
	// Hybrid: a member may open the balancer's own address.
	Hybrid flag `json:"ip_target_enable"`
}

// NetworkIPs are addresses of one network.
type NetworkIPs struct {
	// NetworkID of the subnet.
	NetworkID string   `json:"network_id"`
	IPs       []string `json:"ips"`
}

// NewBalancer is a load balancer to create.
type NewBalancer struct {
	Name, Description string
	VPCID             string
	// VIPSubnetID is the Neutron ID of the subnet of the virtual address.
	VIPSubnetID string
	VIPAddress  string
	// L4 and L7 are the addresses that the balancer itself uses towards its members.
	L4, L7 []NetworkIPs
	// Zones for the dialect that asks for them.
	Zones []string
}

// ListenerInfo is a listener.
type ListenerInfo struct {
	ID   string `json:"id"`
	Port int32  `json:"protocol_port"`
	// DefaultPoolID is the group that it forwards to.
	DefaultPoolID word         `json:"default_pool_id"`
	Balancers     []identified `json:"loadbalancers"`
}

// PoolInfo is a group of members.
type PoolInfo struct {
	ID              string       `json:"id"`
	Name            string       `json:"name"`
	HealthMonitorID word         `json:"healthmonitor_id"`
	Listeners       []identified `json:"listeners"`
	Balancers       []identified `json:"loadbalancers"`
}

// MemberInfo is a member of a group.
type MemberInfo struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Address string `json:"address"`
	Port    int32  `json:"protocol_port"`
}

// lb is a path of the load balancer's API in the dialect of the platform.
func (c *Client) lb(path string) string {
	if c.cfg.ELB == ELBv3 {
		return "/v3/{project}/elb" + path
	}
	return "/v2.0/lbaas" + path
}

// subnetKey is what a member's subnet is called.
func (c *Client) subnetKey() string {
	if c.cfg.ELB == ELBv3 {
		return "subnet_cidr_id"
	}
	return "subnet_id"
}

// CreateBalancer creates a load balancer.
func (c *Client) CreateBalancer(ctx context.Context, n NewBalancer) (*BalancerInfo, error) {
	in := map[string]any{"name": n.Name, "description": n.Description, "admin_state_up": true, "vip_address": n.VIPAddress, "ip_target_enable": true}
	if c.cfg.ELB == ELBv3 {
		in["vip_subnet_cidr_id"], in["vpc_id"], in["availability_zone_list"] = n.VIPSubnetID, n.VPCID, n.Zones
		var networks []string
		for _, l := range n.L4 {
			networks = append(networks, l.NetworkID)
		}
		in["elb_virsubnet_ids"] = networks
	} else {
		in["provider"], in["vip_subnet_id"] = "vlb", n.VIPSubnetID
		in["elb_virsubnet_l4_ips"], in["elb_virsubnet_l7_ips"] = n.L4, n.L7
	}
	var out struct {
		Balancer BalancerInfo `json:"loadbalancer"`
	}
	err := c.do(ctx, call{
		operation: "create load balancer", service: ELB, method: http.MethodPost, path: c.lb("/loadbalancers"),
		in: map[string]any{"loadbalancer": in}, out: &out,
	})
	if err != nil {
		return nil, err
	}
	return &out.Balancer, nil
}

// Balancer reads a load balancer.
func (c *Client) Balancer(ctx context.Context, id string) (*BalancerInfo, error) {
	var out struct {
		Balancer BalancerInfo `json:"loadbalancer"`
	}
	err := c.do(ctx, call{operation: "read load balancer", service: ELB, method: http.MethodGet, path: c.lb("/loadbalancers/" + url.PathEscape(id)), out: &out})
	if err != nil {
		return nil, err
	}
	return &out.Balancer, nil
}

// Balancers lists the load balancers of a name.
func (c *Client) Balancers(ctx context.Context, name string) ([]BalancerInfo, error) {
	var out struct {
		Balancers []BalancerInfo `json:"loadbalancers"`
	}
	err := c.do(ctx, call{operation: "list load balancers", service: ELB, method: http.MethodGet, path: c.lb("/loadbalancers"), query: url.Values{"name": {name}}, out: &out})
	if err != nil {
		return nil, err
	}
	var exact []BalancerInfo
	for _, b := range out.Balancers {
		if b.Name == name {
			exact = append(exact, b)
		}
	}
	return exact, nil
}

// EnableHybrid lets members open the load balancer's own address again.
func (c *Client) EnableHybrid(ctx context.Context, id string) error {
	return c.do(ctx, call{
		operation: "update load balancer", service: ELB, method: http.MethodPut, path: c.lb("/loadbalancers/" + url.PathEscape(id)),
		in: map[string]any{"loadbalancer": map[string]any{"ip_target_enable": true}},
	})
}

// DeleteBalancer deletes a load balancer without listeners.
func (c *Client) DeleteBalancer(ctx context.Context, id string) error {
	return c.remove(ctx, "delete load balancer", "/loadbalancers/"+url.PathEscape(id))
}

// Listeners lists the listeners of a load balancer.
func (c *Client) Listeners(ctx context.Context, balancer string) ([]ListenerInfo, error) {
	var out struct {
		Listeners []ListenerInfo `json:"listeners"`
	}
	q := url.Values{"loadbalancer_id": {balancer}}
	if err := c.do(ctx, call{operation: "list listeners", service: ELB, method: http.MethodGet, path: c.lb("/listeners"), query: q, out: &out}); err != nil {
		return nil, err
	}
	var own []ListenerInfo
	for _, l := range out.Listeners {
		if has(l.Balancers, balancer) {
			own = append(own, l)
		}
	}
	return own, nil
}

func has(list []identified, id string) bool {
	for _, i := range list {
		if i.ID == id {
			return true
		}
	}
	return false
}

// CreateListener creates a TCP listener.
func (c *Client) CreateListener(ctx context.Context, balancer, name string, port int32) (*ListenerInfo, error) {
	var out struct {
		Listener ListenerInfo `json:"listener"`
	}
	in := map[string]any{"name": name, "loadbalancer_id": balancer, "protocol": "TCP", "protocol_port": port, "admin_state_up": true}
	err := c.do(ctx, call{operation: "create listener", service: ELB, method: http.MethodPost, path: c.lb("/listeners"), in: map[string]any{"listener": in}, out: &out})
	if err != nil {
		return nil, err
	}
	return &out.Listener, nil
}

// DeleteListener deletes a listener without a group.
func (c *Client) DeleteListener(ctx context.Context, id string) error {
	return c.remove(ctx, "delete listener", "/listeners/"+url.PathEscape(id))
}

// Pools lists the groups of a load balancer.
func (c *Client) Pools(ctx context.Context, balancer string) ([]PoolInfo, error) {
	var out struct {
		Pools []PoolInfo `json:"pools"`
	}
	q := url.Values{"loadbalancer_id": {balancer}}
	if err := c.do(ctx, call{operation: "list groups of members", service: ELB, method: http.MethodGet, path: c.lb("/pools"), query: q, out: &out}); err != nil {
		return nil, err
	}
	var own []PoolInfo
	for _, p := range out.Pools {
		if has(p.Balancers, balancer) {
			own = append(own, p)
		}
	}
	return own, nil
}

// CreatePool creates the group that a listener forwards to.
func (c *Client) CreatePool(ctx context.Context, listener, name string) (*PoolInfo, error) {
	var out struct {
		Pool PoolInfo `json:"pool"`
	}
	in := map[string]any{"name": name, "listener_id": listener, "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"}
	err := c.do(ctx, call{operation: "create group of members", service: ELB, method: http.MethodPost, path: c.lb("/pools"), in: map[string]any{"pool": in}, out: &out})
	if err != nil {
		return nil, err
	}
	return &out.Pool, nil
}

// DeletePool deletes a group without members.
func (c *Client) DeletePool(ctx context.Context, id string) error {
	return c.remove(ctx, "delete group of members", "/pools/"+url.PathEscape(id))
}

// Members lists the members of a group.
func (c *Client) Members(ctx context.Context, pool string) ([]MemberInfo, error) {
	var out struct {
		Members []MemberInfo `json:"members"`
	}
	err := c.do(ctx, call{operation: "list members", service: ELB, method: http.MethodGet, path: c.lb("/pools/" + url.PathEscape(pool) + "/members"), out: &out})
	return out.Members, err
}

// CreateMember adds a member to a group. subnet is the Neutron ID of the address's subnet.
func (c *Client) CreateMember(ctx context.Context, pool, name, address string, port int32, subnet string) (*MemberInfo, error) {
	var out struct {
		Member MemberInfo `json:"member"`
	}
	in := map[string]any{"name": name, "address": address, "protocol_port": port, "weight": 1, c.subnetKey(): subnet}
	err := c.do(ctx, call{
		operation: "add member", service: ELB, method: http.MethodPost, path: c.lb("/pools/" + url.PathEscape(pool) + "/members"),
		in: map[string]any{"member": in}, out: &out,
	})
	if err != nil {
		return nil, err
	}
	return &out.Member, nil
}

// DeleteMember takes a member out of a group.
func (c *Client) DeleteMember(ctx context.Context, pool, id string) error {
	return c.remove(ctx, "remove member", "/pools/"+url.PathEscape(pool)+"/members/"+url.PathEscape(id))
}

// Health of the members is asked for in this way.
const (
	healthDelay   = 5
	healthTimeout = 3
	healthRetries = 3
)

// CreateHealthMonitor watches the members of a group by TCP.
func (c *Client) CreateHealthMonitor(ctx context.Context, pool string) (id string, err error) {
	var out struct {
		Monitor identified `json:"healthmonitor"`
	}
	in := map[string]any{"pool_id": pool, "type": "TCP", "delay": healthDelay, "timeout": healthTimeout, "max_retries": healthRetries}
	err = c.do(ctx, call{operation: "create health monitor", service: ELB, method: http.MethodPost, path: c.lb("/healthmonitors"), in: map[string]any{"healthmonitor": in}, out: &out})
	return out.Monitor.ID, err
}

// DeleteHealthMonitor stops watching.
func (c *Client) DeleteHealthMonitor(ctx context.Context, id string) error {
	return c.remove(ctx, "delete health monitor", "/healthmonitors/"+url.PathEscape(id))
}

// remove deletes something of the load balancer's; what is gone already is no error.
func (c *Client) remove(ctx context.Context, operation, path string) error {
	err := c.do(ctx, call{operation: operation, service: ELB, method: http.MethodDelete, path: c.lb(path)})
	if Is(err, NotFound) {
		return nil
	}
	return err
}
