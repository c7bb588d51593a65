package hcs

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

func (c *cloud) networkRoutes(on func(string, string, handler)) {
	on("GET /vpc/{version}/{project}/vpcs", "ListVPCs", c.listVPCs)
	on("GET /vpc/{version}/{project}/vpcs/{id}", "ShowVPC", func(r *request) (int, any, *refusal) {
		return one(c.vpcs, "vpc", r.PathValue("id"), func(v VPC) (string, map[string]any) { return v.ID, vpcView(v) })
	})
	on("GET /vpc/{version}/{project}/subnets", "ListSubnets", c.listSubnets)
	on("GET /vpc/{version}/{project}/subnets/{id}", "ShowSubnet", func(r *request) (int, any, *refusal) {
		return one(c.subnets, "subnet", r.PathValue("id"), func(s Subnet) (string, map[string]any) { return s.ID, c.subnetView(s) })
	})
	on("GET /vpc/{version}/{project}/subnets/{id}/privateips", "ListPrivateIPs", c.listPrivateIPs)
	on("GET /vpc/{version}/{project}/security-groups", "ListSecurityGroups", c.listSecurityGroups)
	on("GET /vpc/{version}/{project}/ports", "ListPorts", c.listPorts)
	on("GET /ims/v2/cloudimages", "ListImages", c.listImages)
}

func one[T any](all []T, word, id string, view func(T) (string, map[string]any)) (int, any, *refusal) {
	for _, v := range all {
		if got, body := view(v); got == id {
			return http.StatusOK, map[string]any{word: body}, nil
		}
	}
	return 0, nil, neutronRefusal(http.StatusNotFound, "NotFound", "%s %s could not be found", word, id)
}

func vpcView(v VPC) map[string]any {
	return map[string]any{"id": v.ID, "name": v.Name, "cidr": v.CIDR, "status": "OK", "enterprise_project_id": "0"}
}

func (c *cloud) listVPCs(r *request) (int, any, *refusal) {
	list := []any{}
	for _, v := range page(r, c.vpcs, false, func(v VPC) string { return v.ID }) {
		list = append(list, vpcView(v))
	}
	return http.StatusOK, map[string]any{"vpcs": list}, nil
}

func (c *cloud) subnetView(s Subnet) map[string]any {
	vpc := ""
	for _, v := range c.vpcs {
		if v.Name == s.VPC {
			vpc = v.ID
		}
	}
	var dns []string
	for _, d := range []string{s.PrimaryDNS, s.SecondaryDNS} {
		if d != "" {
			dns = append(dns, d)
		}
	}
	return map[string]any{
		"id": s.ID, "name": s.Name, "cidr": s.CIDR.String(), "gateway_ip": s.Gateway.String(), "dhcp_enable": true, "primary_dns": s.PrimaryDNS,
		"secondary_dns": s.SecondaryDNS, "dnsList": dns, "vpc_id": vpc, "status": "ACTIVE", "neutron_network_id": s.ID, "neutron_subnet_id": s.NeutronSubnetID,
		"availability_zone": "",
	}
}

func (c *cloud) listSubnets(r *request) (int, any, *refusal) {
	vpc := r.URL.Query().Get("vpc_id")
	var all []map[string]any
	for _, s := range c.subnets {
		if v := c.subnetView(s); vpc == "" || v["vpc_id"] == vpc {
			all = append(all, v)
		}
	}
	list := []any{}
	for _, v := range page(r, all, false, func(v map[string]any) string { return v["id"].(string) }) {
		list = append(list, v)
	}
	return http.StatusOK, map[string]any{"subnets": list}, nil
}

func (c *cloud) listSecurityGroups(r *request) (int, any, *refusal) {
	list := []any{}
	for _, g := range page(r, c.groups, false, func(g SecurityGroup) string { return g.ID }) {
		list = append(list, map[string]any{"id": g.ID, "name": g.Name, "vpc_id": "", "security_group_rules": []any{}})
	}
	return http.StatusOK, map[string]any{"security_groups": list}, nil
}

func (c *cloud) portsInOrder() []*port {
	return slices.SortedFunc(maps.Values(c.ports), func(a, b *port) int { return strings.Compare(a.id, b.id) })
}

func (c *cloud) listPorts(r *request) (int, any, *refusal) {
	q := r.URL.Query()
	address, byAddress := "", false
	for _, f := range q["fixed_ips"] {
		if v, ok := strings.CutPrefix(f, "ip_address="); ok {
			address, byAddress = v, true
		}
	}
	var all []*port
	for _, p := range c.portsInOrder() {
		if (q.Get("network_id") == "" || p.network == q.Get("network_id")) && (!byAddress || p.address.String() == address) &&
			(q.Get("device_id") == "" || p.device == q.Get("device_id")) {
			all = append(all, p)
		}
	}
	list := []any{}
	for _, p := range page(r, all, false, func(p *port) string { return p.id }) {
		subnet, _ := c.subnet(p.network)
		list = append(list, map[string]any{
			"id": p.id, "network_id": p.network, "device_id": p.device, "device_owner": p.owner, "status": "ACTIVE", "mac_address": p.mac,
			"fixed_ips": []any{map[string]any{"ip_address": p.address.String(), "subnet_id": subnet.NeutronSubnetID}}, "security_groups": []string{},
		})
	}
	return http.StatusOK, map[string]any{"ports": list}, nil
}

func (c *cloud) listPrivateIPs(r *request) (int, any, *refusal) {
	list := []any{}
	for _, p := range c.portsInOrder() {
		if p.network == r.PathValue("id") {
			list = append(list, map[string]any{"id": p.id, "ip_address": p.address.String(), "device_owner": p.owner, "status": "ACTIVE", "subnet_id": p.network})
		}
	}
	return http.StatusOK, map[string]any{"privateips": list}, nil
}

// listImages compares names exactly, as the image service does.
func (c *cloud) listImages(r *request) (int, any, *refusal) {
	name, list := r.URL.Query().Get("name"), []any{}
	for _, i := range c.images {
		if name != "" && i.Name != name {
			continue
		}
		list = append(list, map[string]any{
			"id": i.ID, "name": i.Name, "status": "active", "min_disk": i.MinDiskGB, "min_ram": 0, "__os_type": "Linux", "__image_size": "4294967296",
			"__imagetype": "private", "__isregistered": "true", "virtual_env_type": "FusionCompute",
		})
	}
	return http.StatusOK, map[string]any{"images": list}, nil
}
