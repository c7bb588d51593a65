package rest

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// VPCInfo is a virtual private cloud.
type VPCInfo struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	CIDR string `json:"cidr"`
}

// networkPage is how many objects of the network service are asked for at once.
const networkPage = 500

// pages reads a list of the network service to its end.
func pages[T any](ctx context.Context, c *Client, operation, path, key string, q url.Values, id func(T) string) ([]T, error) {
	if q == nil {
		q = url.Values{}
	}
	q.Set("limit", strconv.Itoa(networkPage))
	var all []T
	for {
		var out map[string][]T
		if err := c.do(ctx, call{operation: operation, service: VPC, method: http.MethodGet, path: path, query: q, out: &out}); err != nil {
			return nil, err
		}
		all = append(all, out[key]...)
		if len(out[key]) < networkPage {
			return all, nil
		}
		q.Set("marker", id(all[len(all)-1]))
	}
}

// VPCs lists the VPCs of the project.
func (c *Client) VPCs(ctx context.Context) ([]VPCInfo, error) {
	return pages(ctx, c, "list VPCs", "/v1/{project}/vpcs", "vpcs", nil, func(v VPCInfo) string { return v.ID })
}

// SubnetInfo is a subnet.
type SubnetInfo struct {
	// ID is the network's, which interfaces are attached to.
	ID   string `json:"id"`
	Name string `json:"name"`
	// NeutronSubnetID is what the load balancer's address is taken from.
	NeutronSubnetID string `json:"neutron_subnet_id"`
	CIDR            string `json:"cidr"`
	GatewayIP       string `json:"gateway_ip"`
	VPCID           string `json:"vpc_id"`
	PrimaryDNS      string `json:"primary_dns"`
	SecondaryDNS    string `json:"secondary_dns"`
	DHCP            bool   `json:"dhcp_enable"`
}

// Subnets lists the subnets of a VPC.
func (c *Client) Subnets(ctx context.Context, vpc string) ([]SubnetInfo, error) {
	return pages(ctx, c, "list subnets", "/v1/{project}/subnets", "subnets", url.Values{"vpc_id": {vpc}}, func(s SubnetInfo) string { return s.ID })
}

// SecurityGroupInfo is a security group.
type SecurityGroupInfo struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// SecurityGroups lists the security groups of the project.
func (c *Client) SecurityGroups(ctx context.Context) ([]SecurityGroupInfo, error) {
	return pages(ctx, c, "list security groups", "/v1/{project}/security-groups", "security_groups", nil, func(g SecurityGroupInfo) string { return g.ID })
}

// PortInfo is a network interface of something.
type PortInfo struct {
	ID       string `json:"id"`
	DeviceID string `json:"device_id"`
	// DeviceOwner says what has it, such as "compute:az1".
	DeviceOwner string `json:"device_owner"`
}

// Ports lists who has an address of a network.
func (c *Client) Ports(ctx context.Context, network, address string) ([]PortInfo, error) {
	q := url.Values{"network_id": {network}, "fixed_ips": {"ip_address=" + address}}
	return pages(ctx, c, "list ports", "/v1/{project}/ports", "ports", q, func(p PortInfo) string { return p.ID })
}

// ImageInfo is an image that servers are made from.
type ImageInfo struct {
	ID, Name  string
	MinDiskGB int
}

// Images lists the active images of a name, exact.
func (c *Client) Images(ctx context.Context, name string) ([]ImageInfo, error) {
	all, err := c.images(ctx, url.Values{"name": {name}, "status": {"active"}})
	var exact []ImageInfo
	for _, i := range all {
		if i.Name == name {
			exact = append(exact, i)
		}
	}
	return exact, err
}

// AllImages lists the active images, for messages.
func (c *Client) AllImages(ctx context.Context) ([]ImageInfo, error) {
	return c.images(ctx, url.Values{"status": {"active"}})
}

func (c *Client) images(ctx context.Context, q url.Values) ([]ImageInfo, error) {
	var out struct {
		Images []struct {
			ID      string `json:"id"`
			Name    string `json:"name"`
			MinDisk number `json:"min_disk"`
		} `json:"images"`
	}
	if err := c.do(ctx, call{operation: "list images", service: IMS, method: http.MethodGet, path: "/v2/cloudimages", query: q, out: &out}); err != nil {
		return nil, err
	}
	var images []ImageInfo
	for _, i := range out.Images {
		images = append(images, ImageInfo{ID: i.ID, Name: i.Name, MinDiskGB: int(i.MinDisk)})
	}
	return images, nil
}
