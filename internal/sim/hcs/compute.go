package hcs

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Status of a server.
const (
	statusBuild   = "BUILD"
	statusActive  = "ACTIVE"
	statusShutoff = "SHUTOFF"
	statusError   = "ERROR"
	statusDeleted = "DELETED"
)

// maxUserData before base64, in bytes.
const maxUserData = 32 << 10

// maxName of a server.
const maxName = 64

func (c *cloud) computeRoutes(on func(string, string, handler)) {
	const servers = "/ecs/{version}/{project}/cloudservers"
	const groups = "/ecs/{version}/{project}/os-server-groups" // front takes them out of the servers' paths
	on("POST "+servers, "CreateServer", c.createServer)
	on("POST "+servers+"/delete", "DeleteServer", c.deleteServer)
	on("POST "+servers+"/action", "ServerAction", c.serverAction)
	on("GET "+servers+"/detail", "ListServers", c.listServers)
	on("GET "+servers+"/flavors", "ListFlavors", c.listFlavors)
	on("GET "+groups+"", "ListServerGroups", c.listGroups)
	on("POST "+groups+"", "CreateServerGroup", c.createGroup)
	on("GET "+groups+"/{id}", "ShowServerGroup", c.showGroup)
	on("DELETE "+groups+"/{id}", "DeleteServerGroup", c.deleteGroup)
	on("GET "+servers+"/{id}", "ShowServer", c.showServer)
	on("GET "+servers+"/{id}/block_device", "ListBlockDevices", c.blockDevices)
	on("GET "+servers+"/{id}/block_device/{volume}", "ShowBlockDevice", c.blockDevice)
	on("POST "+servers+"/{id}/attachvolume", "AttachVolume", c.attachVolume)
	on("DELETE "+servers+"/{id}/detachvolume/{volume}", "DetachVolume", c.detachVolume)
	on("GET /ecs/{version}/{project}/os-availability-zone", "ListZones", c.listZones)
	on("GET /ecs/{version}/{project}/os-keypairs/{name}", "ShowKeyPair", c.showKeyPair)
	on("GET /ecs/{version}/{project}/jobs/{id}", "ShowServerJob", c.showJob)
	on("GET /evs/{version}/{project}/jobs/{id}", "ShowVolumeJob", c.showJob)
}

func (c *cloud) showJob(r *request) (int, any, *refusal) {
	j := c.jobs[r.PathValue("id")]
	if j == nil {
		return 0, nil, refuse(http.StatusNotFound, "Common.0011", "job %s does not exist", r.PathValue("id"))
	}
	return http.StatusOK, j.view(), nil
}

func (c *cloud) image(id string) (Image, bool) {
	i := slices.IndexFunc(c.images, func(i Image) bool { return i.ID == id })
	if i < 0 {
		return Image{}, false
	}
	return c.images[i], true
}

func (c *cloud) flavor(id string) (Flavor, bool) {
	i := slices.IndexFunc(c.flavors, func(f Flavor) bool { return f.ID == id })
	if i < 0 {
		return Flavor{}, false
	}
	return c.flavors[i], true
}

// find a server that has not gone.
func (c *cloud) find(id string) (*server, *refusal) {
	s := c.servers[id]
	if s == nil || s.gone {
		return nil, notFound("Instance %s could not be found.", id)
	}
	return s, nil
}

func (c *cloud) serverAction(r *request) (int, any, *refusal) {
	type target struct {
		Servers []struct {
			ID string `json:"id"`
		} `json:"servers"`
		Type string `json:"type"`
	}
	var body struct {
		Start *target `json:"os-start"`
		Stop  *target `json:"os-stop"`
	}
	if refused := r.decode(&body); refused != nil {
		return 0, nil, refused
	}
	t, kind := body.Start, jobStartServer
	if body.Stop != nil {
		t, kind = body.Stop, jobStopServer
	}
	if t == nil || len(t.Servers) != 1 {
		return 0, nil, refuse(http.StatusBadRequest, "Ecs.0005", "one server and one of os-start, os-stop are needed")
	}
	s, refused := c.find(t.Servers[0].ID)
	if refused != nil {
		return 0, nil, refused
	}
	if kind == jobStartServer && s.status == statusActive || kind == jobStopServer && s.status == statusShutoff {
		return 0, nil, refuse(http.StatusConflict, "Ecs.0014", "Cannot '%s' instance %s while it is in vm_state %s", kind, s.id, strings.ToLower(s.status))
	}
	return accepted(c.start(serviceECS, kind, func(j *job) { j.serverID = s.id }, func() *refusal { return c.power(s, kind == jobStartServer) }))
}

func (c *cloud) power(s *server, on bool) *refusal {
	if s.gone {
		return refuse(0, "Ecs.0114", "server %s does not exist", s.id)
	}
	s.before, s.lag = s.status, c.opts.Lag
	if !on {
		s.status = statusShutoff
		return nil
	}
	if s.metadata[startedKey] != "" {
		c.violate(StartedTwice, "server %s (%s) was started before", s.name, s.id)
	}
	s.status = statusActive
	s.markStarted()
	return nil
}

func (c *cloud) deleteServer(r *request) (int, any, *refusal) {
	var body struct {
		Servers []struct {
			ID string `json:"id"`
		} `json:"servers"`
		DeleteVolume bool `json:"delete_volume"`
	}
	if refused := r.decode(&body); refused != nil {
		return 0, nil, refused
	}
	if len(body.Servers) != 1 {
		return 0, nil, refuse(http.StatusBadRequest, "Ecs.0005", "one server is needed")
	}
	s, refused := c.find(body.Servers[0].ID)
	if refused != nil {
		return 0, nil, refused
	}
	return accepted(c.start(serviceECS, jobDeleteServer, func(j *job) { j.serverID = s.id }, func() *refusal {
		if s.gone {
			return nil
		}
		c.destroy(s, body.DeleteVolume)
		return nil
	}))
}

// destroy a server: the root volume always goes, the others as asked.
func (c *cloud) destroy(s *server, withVolumes bool) {
	if s.status == statusActive {
		c.violate(RunningDeleted, "server %s (%s) was deleted while it ran", s.name, s.id)
	}
	for _, a := range s.volumes {
		if !a.volume.root && !withVolumes {
			a.volume.free()
			continue
		}
		if !a.own {
			c.violate(VolumeDestroyed, "volume %s (%s) was deleted with server %s, to which it had been attached", a.volume.name, a.volume.id, s.name)
		}
		c.dropVolume(a.volume)
	}
	for _, p := range s.ports {
		delete(c.ports, p.id)
	}
	s.volumes, s.ports = nil, nil
	s.gone, s.status, s.before, s.lag = true, statusDeleted, statusDeleted, c.opts.Lag
	if s.lag == 0 {
		delete(c.servers, s.id)
	}
}

// shown is a server's status to a reader, and whether it is shown at all.
func (c *cloud) shown(s *server) (status string, ok bool) {
	if s.lag > 0 {
		s.lag--
		return s.before, true
	}
	if s.gone {
		delete(c.servers, s.id)
		return "", false
	}
	return s.status, true
}

func (c *cloud) showServer(r *request) (int, any, *refusal) {
	s := c.servers[r.PathValue("id")]
	if s == nil {
		return 0, nil, notFound("Instance %s could not be found.", r.PathValue("id"))
	}
	view, ok := c.serverView(s)
	if !ok {
		return 0, nil, notFound("Instance %s could not be found.", s.id)
	}
	return http.StatusOK, map[string]any{"server": view}, nil
}

// listServers filters by a part of the name, as the platform does; its offset is the number of a page.
func (c *cloud) listServers(r *request) (int, any, *refusal) {
	q := r.URL.Query()
	var all []*server
	for _, s := range c.serversInOrder() {
		if (q.Get("name") == "" || strings.Contains(s.name, q.Get("name"))) && (q.Get("server_id") == "" || s.id == q.Get("server_id")) {
			all = append(all, s)
		}
	}
	views := []any{}
	for _, s := range page(r, all, true, func(s *server) string { return s.id }) {
		if v, ok := c.serverView(s); ok {
			views = append(views, v)
		}
	}
	return http.StatusOK, map[string]any{"count": len(all), "servers": views}, nil
}

func (c *cloud) serverView(s *server) (map[string]any, bool) {
	status, ok := c.shown(s)
	if !ok {
		return nil, false
	}
	var addresses []any
	for _, p := range s.ports {
		addresses = append(addresses, map[string]any{
			"version": "4", "addr": p.address.String(), "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": p.mac, "OS-EXT-IPS:port_id": p.id,
		})
	}
	volumes, security := []any{}, []any{}
	for _, a := range s.volumes {
		var boot any
		if a.volume.root {
			boot = "0"
		}
		volumes = append(volumes, map[string]any{"id": a.volume.id, "delete_on_termination": fmt.Sprint(a.own), "bootIndex": boot, "device": a.device})
	}
	for _, id := range s.security {
		security = append(security, map[string]any{"id": id})
	}
	metadata := maps.Clone(s.metadata)
	delete(metadata, startedKey)
	if metadata == nil {
		metadata = map[string]string{}
	}
	hints := map[string]any{}
	if s.groupID != "" {
		hints["group"] = []string{s.groupID}
	}
	power := 4
	if status == statusActive {
		power = 1
	}
	view := map[string]any{
		"id": s.id, "name": s.name, "status": status, "created": s.created.UTC().Format(time.RFC3339), "updated": c.opts.Now().UTC().Format(time.RFC3339),
		"hostId": fmt.Sprintf("%056x", s.host+1), "tenant_id": c.opts.ProjectID, "key_name": s.keyName, "addresses": map[string]any{s.vpc: addresses},
		"flavor": map[string]any{
			"id": s.flavor.ID, "name": s.flavor.Name, "vcpus": fmt.Sprint(s.flavor.VCPUs), "ram": fmt.Sprint(s.flavor.MemoryMB), "disk": "0",
		},
		"image": map[string]any{"id": s.image.ID}, "metadata": metadata, "security_groups": security, "OS-EXT-AZ:availability_zone": s.zone,
		"OS-EXT-STS:task_state": nil, "OS-EXT-STS:vm_state": strings.ToLower(cmp.Or(map[string]string{statusShutoff: "stopped"}[status], status)),
		"OS-EXT-STS:power_state": power, "OS-EXT-SRV-ATTR:hostname": s.name, "OS-EXT-SRV-ATTR:root_device_name": c.device(0),
		"os:scheduler_hints": hints, "os-extended-volumes:volumes_attached": volumes, "tags": []string{},
	}
	if s.fault != "" {
		view["fault"] = map[string]any{"code": 500, "message": s.fault, "created": s.created.UTC().Format(time.RFC3339), "details": ""}
	}
	return view, true
}

func (c *cloud) listFlavors(r *request) (int, any, *refusal) {
	zone := r.URL.Query().Get("availability_zone")
	list := []any{}
	for _, f := range c.flavors {
		if _, offered := f.Zones[zone]; zone != "" && len(f.Zones) > 0 && !offered {
			continue
		}
		var words []string
		for _, z := range c.zones {
			word := "normal"
			if len(f.Zones) > 0 {
				word = cmp.Or(f.Zones[z.Name], "abandon")
			}
			words = append(words, z.Name+"("+word+")")
		}
		list = append(list, map[string]any{
			"id": f.ID, "name": f.Name, "vcpus": fmt.Sprint(f.VCPUs), "ram": f.MemoryMB, "disk": "0", "OS-FLV-DISABLED:disabled": f.Disabled,
			"os_extra_specs": map[string]any{"cond:operation:az": strings.Join(words, ","), "cond:operation:status": "normal"},
		})
	}
	return http.StatusOK, map[string]any{"flavors": list}, nil
}

func (c *cloud) listZones(*request) (int, any, *refusal) {
	list := []any{}
	for _, z := range c.zones {
		list = append(list, map[string]any{"zoneName": z.Name, "zoneState": map[string]any{"available": z.Available}, "hosts": nil})
	}
	return http.StatusOK, map[string]any{"availabilityZoneInfo": list}, nil
}

func (c *cloud) showKeyPair(r *request) (int, any, *refusal) {
	name := r.PathValue("name")
	if !slices.Contains(c.opts.Inventory.KeyPairs, name) {
		return 0, nil, notFound("Keypair %s not found", name)
	}
	return http.StatusOK, map[string]any{"keypair": map[string]any{"name": name}}, nil
}
