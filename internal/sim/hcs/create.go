package hcs

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
)

type createServerBody struct {
	Server struct {
		Name      string `json:"name"`
		ImageRef  string `json:"imageRef"`
		FlavorRef string `json:"flavorRef"`
		VPCID     string `json:"vpcid"`
		Zone      string `json:"availability_zone"`
		NICs      []struct {
			SubnetID  string `json:"subnet_id"`
			IPAddress string `json:"ip_address"`
		} `json:"nics"`
		Root struct {
			Type string `json:"volumetype"`
			Size int    `json:"size"`
		} `json:"root_volume"`
		Data []struct {
			Type string `json:"volumetype"`
			Size int    `json:"size"`
		} `json:"data_volumes"`
		SecurityGroups []struct {
			ID string `json:"id"`
		} `json:"security_groups"`
		KeyName  string `json:"key_name"`
		UserData string `json:"user_data"`
		Hints    struct {
			Group string `json:"group"`
		} `json:"os:scheduler_hints"`
		Metadata map[string]string `json:"metadata"`
		PowerOn  *bool             `json:"power_on"`
	} `json:"server"`
}

// createServer checks what the platform checks at once; what it finds out later makes the job fail.
func (c *cloud) createServer(r *request) (int, any, *refusal) {
	token := r.Header.Get("X-Client-Token")
	if j := c.tokens[token]; token != "" && j != nil {
		return accepted(j)
	}
	var body createServerBody
	if refused := r.decode(&body); refused != nil {
		return 0, nil, refused
	}
	in := &body.Server
	if refused := c.checkServer(&body); refused != nil {
		return 0, nil, refused
	}
	userData, err := base64.StdEncoding.DecodeString(in.UserData)
	if err != nil {
		return 0, nil, refuse(http.StatusBadRequest, "Ecs.0005", "user_data is not base64")
	}
	if len(userData) > maxUserData {
		return 0, nil, refuse(http.StatusBadRequest, "Ecs.0005", "user_data has %d bytes, more than %d", len(userData), maxUserData)
	}
	id := newID()
	j := c.start(serviceECS, jobCreateServer, func(j *job) { j.serverID = id }, func() *refusal { return c.makeServer(id, &body, userData) })
	if token != "" {
		c.tokens[token] = j
	}
	return http.StatusOK, map[string]any{"job_id": j.id, "serverIds": []string{id}}, nil
}

func (c *cloud) checkServer(body *createServerBody) *refusal {
	in := &body.Server
	bad := func(format string, args ...any) *refusal {
		return refuse(http.StatusBadRequest, "Ecs.0005", format, args...)
	}
	switch {
	case in.Name == "" || len(in.Name) > maxName:
		return bad("the name of a server has 1 to %d characters", maxName)
	case len(in.NICs) == 0:
		return bad("a server has at least one network interface")
	}
	if _, ok := c.image(in.ImageRef); !ok {
		return refuse(http.StatusBadRequest, "Ecs.0022", "image %s does not exist", in.ImageRef)
	}
	flavor, ok := c.flavor(in.FlavorRef)
	if !ok {
		return refuse(http.StatusBadRequest, "Ecs.0021", "flavor %s does not exist", in.FlavorRef)
	}
	if in.Zone != "" {
		if _, ok := c.zone(in.Zone); !ok {
			return refuse(http.StatusBadRequest, "Ecs.0024", "availability zone %s does not exist", in.Zone)
		}
	}
	if !slices.ContainsFunc(c.vpcs, func(v VPC) bool { return v.ID == in.VPCID }) {
		return bad("VPC %s does not exist", in.VPCID)
	}
	for _, n := range in.NICs {
		if _, ok := c.subnet(n.SubnetID); !ok {
			return bad("subnet %s does not exist", n.SubnetID)
		}
	}
	types := []string{in.Root.Type}
	for _, d := range in.Data {
		types = append(types, d.Type)
	}
	for _, t := range types {
		if _, ok := c.volumeType(t); !ok {
			return bad("volume type %s does not exist", t)
		}
	}
	if in.Hints.Group != "" && c.affinity[in.Hints.Group] == nil {
		return bad("server group %s does not exist", in.Hints.Group)
	}
	if in.KeyName != "" && !slices.Contains(c.opts.Inventory.KeyPairs, in.KeyName) {
		return bad("key pair %s does not exist", in.KeyName)
	}
	return c.quotaFor(flavor, in.Root.Size, len(in.Data))
}

func (c *cloud) quotaFor(f Flavor, rootGB, data int) *refusal {
	vcpus, servers, gb := f.VCPUs, 1, rootGB
	for _, s := range c.servers {
		if !s.gone {
			vcpus, servers = vcpus+s.flavor.VCPUs, servers+1
		}
	}
	for _, v := range c.volumes {
		gb += v.size
	}
	q := c.opts.Quota
	for _, limit := range []struct {
		what        string
		have, allow int
	}{{"instances", servers, q.Servers}, {"cores", vcpus, q.VCPUs}, {"volumes", len(c.volumes) + 1 + data, q.Volumes}, {"gigabytes", gb, q.VolumeGB}} {
		if limit.allow > 0 && limit.have > limit.allow {
			return refuse(http.StatusForbidden, "Ecs.0218", "Quota exceeded for %s: %d of %d would be used", limit.what, limit.have, limit.allow)
		}
	}
	return nil
}

// makeServer is what the job does.
func (c *cloud) makeServer(id string, body *createServerBody, userData []byte) *refusal {
	in := &body.Server
	flavor, _ := c.flavor(in.FlavorRef)
	image, _ := c.image(in.ImageRef)
	zone := in.Zone
	if zone == "" {
		zone = c.zones[0].Name
	}
	if z, _ := c.zone(zone); !z.Available {
		return refuse(0, "Ecs.0003", "availability zone %s is not available", zone)
	}
	if word := flavor.Zones[zone]; len(flavor.Zones) > 0 && word != "normal" {
		return refuse(0, "Ecs.0319", "flavor %s is sold out in %s", flavor.Name, zone)
	}
	for _, t := range append([]string{in.Root.Type}, dataTypes(body)...) {
		kind, _ := c.volumeType(t)
		if len(kind.Zones) > 0 && !slices.Contains(kind.Zones, zone) || slices.Contains(kind.SoldOut, zone) {
			return refuse(0, "Ecs.0319", "volume type %s is not available in %s", t, zone)
		}
	}
	if in.Root.Size < image.MinDiskGB {
		return refuse(0, "Ecs.0005", "the root volume has %d GB, the image needs %d", in.Root.Size, image.MinDiskGB)
	}
	addresses := make([]netip.Addr, len(in.NICs))
	for i, n := range in.NICs {
		subnet, _ := c.subnet(n.SubnetID)
		if n.IPAddress == "" {
			addresses[i] = c.freeAddress(subnet)
			continue
		}
		a, err := netip.ParseAddr(n.IPAddress)
		if err != nil || !subnet.CIDR.Contains(a) || a == subnet.Gateway {
			return refuse(0, "Ecs.0031", "address %s is not one of subnet %s (%s)", n.IPAddress, subnet.Name, subnet.CIDR)
		}
		if p := c.portAt(n.SubnetID, a); p != nil {
			return refuse(0, "Ecs.0031", "IP address %s is already in use by port %s of device %s", a, p.id, p.device)
		}
		addresses[i] = a
	}
	host, refused := c.placeServer(in.Hints.Group)
	if refused != nil {
		return refused
	}
	s := &server{
		id: id, name: in.Name, status: statusShutoff, zone: zone, host: host, flavor: flavor, image: image, vpc: in.VPCID, metadata: maps.Clone(in.Metadata),
		userData: userData, groupID: in.Hints.Group, keyName: in.KeyName, created: c.opts.Now(), before: statusBuild, lag: c.opts.Lag,
	}
	for _, g := range in.SecurityGroups {
		s.security = append(s.security, g.ID)
	}
	for i, n := range in.NICs {
		s.ports = append(s.ports, c.addPort(n.SubnetID, addresses[i], id, "compute:"+zone))
	}
	c.serverDisks(s, body)
	c.servers[id] = s
	if in.PowerOn == nil || *in.PowerOn {
		s.status = statusActive
		s.markStarted()
	}
	c.checkMark(s)
	return nil
}

func dataTypes(body *createServerBody) []string {
	var out []string
	for _, d := range body.Server.Data {
		out = append(out, d.Type)
	}
	return out
}

// serverDisks makes the volumes that come with a server.
func (c *cloud) serverDisks(s *server, body *createServerBody) {
	in := &body.Server
	add := func(name, kind string, size int, root bool) {
		v := &volume{
			id: newID(), name: name, status: volumeInUse, size: size, kind: kind, zone: s.zone, metadata: map[string]string{}, created: c.opts.Now(),
			server: s, root: root,
		}
		c.volumes[v.id] = v
		s.volumes = append(s.volumes, &attachment{volume: v, own: true})
	}
	add(s.name+"-volume-0000", in.Root.Type, in.Root.Size, true)
	for i, d := range in.Data {
		add(fmt.Sprintf("%s-volume-%04d", s.name, i+1), d.Type, d.Size, false)
	}
	order := make([]int, len(s.volumes))
	for i := range order {
		order[i] = i
	}
	if c.opts.ShuffleDevices {
		slices.Reverse(order[1:])
	}
	for at, i := range order {
		s.volumes[i].device = c.device(at)
		s.volumes[i].volume.device = s.volumes[i].device
	}
}

// device name of the n-th disk of a server.
func (c *cloud) device(n int) string {
	prefix := "/dev/vd"
	if c.opts.SCSI {
		prefix = "/dev/sd"
	}
	return prefix + string(rune('a'+n))
}

// placeServer finds a physical host that the policy of a group allows.
func (c *cloud) placeServer(group string) (int, *refusal) {
	load := make([]int, c.opts.Hosts)
	taken := make([]bool, c.opts.Hosts)
	for _, s := range c.servers {
		if s.gone {
			continue
		}
		load[s.host]++
		if group != "" && s.groupID == group {
			taken[s.host] = true
		}
	}
	best := -1
	for h := range load {
		if !taken[h] && (best < 0 || load[h] < load[best]) {
			best = h
		}
	}
	if best >= 0 {
		return best, nil
	}
	if c.affinity[group].policy == "anti-affinity" {
		return 0, refuse(0, "Ecs.0319", "No valid host was found: every host has a server of group %s already", c.affinity[group].name)
	}
	return 0, nil
}

// markKey is where Berth's machines are told apart; a simulator that knows it can see what no API would show.
const markKey = "capi-hcs-machine-uid"

func (c *cloud) checkMark(s *server) {
	mark := s.metadata[markKey]
	for _, o := range c.servers {
		if mark != "" && o != s && !o.gone && o.metadata[markKey] == mark {
			c.violate(DuplicateServer, "servers %s and %s have the mark %s", o.name, s.name, mark)
		}
	}
}

// startedKey remembers in the simulator that a server was started once; it is not shown.
const startedKey = "\x00started"

func (s *server) markStarted() {
	if s.metadata == nil {
		s.metadata = map[string]string{}
	}
	s.metadata[startedKey] = "true"
}
