package hcs

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Status of a volume.
const (
	volumeCreating  = "creating"
	volumeAvailable = "available"
	volumeAttaching = "attaching"
	volumeInUse     = "in-use"
	volumeDetaching = "detaching"
	volumeDeleting  = "deleting"
)

// maxAttached is how many disks a server takes.
const maxAttached = 24

func (c *cloud) volumeRoutes(on func(string, string, handler)) {
	for _, word := range []string{"volumes", "cloudvolumes"} { // both dialects are spoken
		path := "/evs/{version}/{project}/" + word
		on("POST "+path, "CreateVolume", c.createVolume)
		on("GET "+path+"/detail", "ListVolumes", c.listVolumes)
		on("GET "+path+"/{id}", "ShowVolume", c.showVolume)
		on("PUT "+path+"/{id}", "UpdateVolume", c.updateVolume)
		on("DELETE "+path+"/{id}", "DeleteVolume", c.deleteVolume)
	}
	on("GET /evs/{version}/{project}/types", "ListVolumeTypes", c.listTypes)
}

// free takes a volume off whatever has it.
func (v *volume) free() {
	v.status, v.server, v.device = volumeAvailable, nil, ""
}

// change lets readers see what was before for a while.
func (c *cloud) change(v *volume, act func()) {
	before := v.look()
	act()
	if v.lag = c.opts.Lag; v.lag > 0 {
		v.before = &before
	}
}

func (v *volume) look() volumeView {
	view := volumeView{status: v.status, device: v.device}
	if v.server != nil {
		view.server = v.server.id
	}
	return view
}

func (c *cloud) findVolume(id string) (*volume, *refusal) {
	v := c.volumes[id]
	if v == nil {
		return nil, &refusal{status: http.StatusNotFound, code: "EVS.2008", message: fmt.Sprintf("volume %s could not be found", id)}
	}
	return v, nil
}

func (c *cloud) createVolume(r *request) (int, any, *refusal) {
	var body struct {
		Volume struct {
			Name     string            `json:"name"`
			Size     int               `json:"size"`
			Type     string            `json:"volume_type"`
			Zone     string            `json:"availability_zone"`
			Metadata map[string]string `json:"metadata"`
		} `json:"volume"`
	}
	if refused := r.decode(&body); refused != nil {
		return 0, nil, refused
	}
	in := &body.Volume
	kind, ok := c.volumeType(in.Type)
	switch zone, known := c.zone(in.Zone); {
	case in.Size < 10 || in.Size > 32768:
		return 0, nil, refuse(http.StatusBadRequest, "EVS.2021", "the size of a volume is 10 to 32768 GB, not %d", in.Size)
	case !ok:
		return 0, nil, refuse(http.StatusBadRequest, "EVS.2014", "volume type %s does not exist", in.Type)
	case !known || !zone.Available:
		return 0, nil, refuse(http.StatusBadRequest, "EVS.2015", "availability zone %s is not available", in.Zone)
	case len(kind.Zones) > 0 && !slices.Contains(kind.Zones, in.Zone):
		return 0, nil, refuse(http.StatusBadRequest, "EVS.2014", "volume type %s is not available in %s", in.Type, in.Zone)
	}
	if q := c.opts.Quota; q.Volumes > 0 && len(c.volumes)+1 > q.Volumes {
		return 0, nil, refuse(http.StatusForbidden, "EVS.1053", "Quota exceeded for volumes: %d of %d would be used", len(c.volumes)+1, q.Volumes)
	}
	v := &volume{
		id: newID(), name: in.Name, status: volumeCreating, size: in.Size, kind: in.Type, zone: in.Zone, metadata: maps.Clone(in.Metadata), created: c.opts.Now(),
	}
	c.volumes[v.id] = v
	j := c.start(serviceEVS, jobCreateVolume, func(j *job) { j.volumeID = v.id }, func() *refusal {
		if slices.Contains(kind.SoldOut, v.zone) {
			v.status = "error"
			return refuse(0, "EVS.2024", "volume type %s is sold out in %s", v.kind, v.zone)
		}
		c.change(v, func() { v.status = volumeAvailable })
		return nil
	})
	return http.StatusAccepted, map[string]any{"job_id": j.id, "volume_ids": []string{v.id}}, nil
}

func (c *cloud) showVolume(r *request) (int, any, *refusal) {
	v, refused := c.findVolume(r.PathValue("id"))
	if refused != nil {
		return 0, nil, refused
	}
	return http.StatusOK, map[string]any{"volume": c.volumeView(v)}, nil
}

func (c *cloud) listVolumes(r *request) (int, any, *refusal) {
	name, views := r.URL.Query().Get("name"), []any{}
	var all []*volume
	for _, v := range c.volumesInOrder() {
		if strings.Contains(v.name, name) {
			all = append(all, v)
		}
	}
	for _, v := range page(r, all, false, func(v *volume) string { return v.id }) {
		views = append(views, c.volumeView(v))
	}
	return http.StatusOK, map[string]any{"count": len(all), "volumes": views}, nil
}

func (c *cloud) volumeView(v *volume) map[string]any {
	see := v.look()
	if v.lag > 0 && v.before != nil {
		v.lag--
		see = *v.before
	}
	attachments := []any{}
	if see.server != "" {
		attachments = append(attachments, map[string]any{
			"id": v.id, "attachment_id": v.id, "server_id": see.server, "volume_id": v.id, "device": see.device, "host_name": nil,
			"attached_at": v.created.UTC().Format(time.RFC3339),
		})
	}
	metadata := maps.Clone(v.metadata)
	if metadata == nil {
		metadata = map[string]string{}
	}
	return map[string]any{
		"id": v.id, "name": v.name, "status": see.status, "size": v.size, "volume_type": v.kind, "availability_zone": v.zone, "attachments": attachments,
		"metadata": metadata, "tags": map[string]any{}, "bootable": fmt.Sprint(v.root), "multiattach": false, "shareable": "false",
		"wwn": "6888603" + strings.ReplaceAll(v.id, "-", "")[:25], "service_type": "EVS", "created_at": v.created.UTC().Format("2006-01-02T15:04:05.000000"),
	}
}

func (c *cloud) updateVolume(r *request) (int, any, *refusal) {
	var body struct {
		Volume struct {
			Name     *string           `json:"name"`
			Metadata map[string]string `json:"metadata"`
		} `json:"volume"`
	}
	v, refused := c.findVolume(r.PathValue("id"))
	if refused == nil {
		refused = r.decode(&body)
	}
	if refused != nil {
		return 0, nil, refused
	}
	if body.Volume.Name != nil {
		v.name = *body.Volume.Name
	}
	if body.Volume.Metadata != nil {
		v.metadata = maps.Clone(body.Volume.Metadata)
	}
	c.touch()
	return http.StatusOK, c.volumeView(v), nil
}

func (c *cloud) deleteVolume(r *request) (int, any, *refusal) {
	v, refused := c.findVolume(r.PathValue("id"))
	if refused != nil {
		return 0, nil, refused
	}
	if v.server != nil || v.busy != "" || v.status != volumeAvailable && v.status != "error" {
		return 0, nil, refuse(http.StatusBadRequest, "EVS.2010", "volume %s is %s; only one that is available or in error can be deleted", v.id, v.status)
	}
	v.status, v.busy = volumeDeleting, jobDeleteVolume
	return accepted(c.start(serviceEVS, jobDeleteVolume, func(j *job) { j.volumeID = v.id }, func() *refusal {
		c.dropVolume(v)
		return nil
	}))
}

func (c *cloud) listTypes(*request) (int, any, *refusal) {
	list := []any{}
	for _, t := range c.types {
		specs := map[string]any{"volume_backend_name": t.Name}
		if len(t.Zones) > 0 {
			specs["RESKEY:availability_zones"] = strings.Join(t.Zones, ",")
		}
		if len(t.SoldOut) > 0 {
			specs["os-vendor-extended:sold_out_availability_zones"] = strings.Join(t.SoldOut, ",")
		}
		list = append(list, map[string]any{"id": t.ID, "name": t.Name, "is_public": true, "extra_specs": specs})
	}
	return http.StatusOK, map[string]any{"volume_types": list}, nil
}

func (c *cloud) attachVolume(r *request) (int, any, *refusal) {
	var body struct {
		Attachment struct {
			VolumeID string `json:"volumeId"`
			Device   string `json:"device"`
		} `json:"volumeAttachment"`
	}
	s, refused := c.find(r.PathValue("id"))
	if refused == nil {
		refused = r.decode(&body)
	}
	if refused != nil {
		return 0, nil, refused
	}
	v, refused := c.findVolume(body.Attachment.VolumeID)
	switch {
	case refused != nil:
		return 0, nil, refused
	case v.zone != s.zone:
		return 0, nil, refuse(http.StatusBadRequest, "Ecs.0205", "volume %s is in zone %s, server %s in %s", v.id, v.zone, s.id, s.zone)
	case s.busy != "":
		return 0, nil, refuse(http.StatusConflict, "Ecs.0212", "server %s has a volume job under way", s.id)
	case v.busy != "" || v.status != volumeAvailable:
		return 0, nil, refuse(http.StatusBadRequest, "Ecs.0204", "volume %s is %s; it must be available", v.id, v.status)
	case len(s.volumes) >= maxAttached:
		return 0, nil, refuse(http.StatusBadRequest, "Ecs.0207", "server %s has %d disks already", s.id, len(s.volumes))
	case slices.ContainsFunc(s.volumes, func(a *attachment) bool { return a.device == body.Attachment.Device }) && !c.opts.SCSI && !c.opts.ShuffleDevices:
		return 0, nil, refuse(http.StatusBadRequest, "Ecs.0206", "device %s of server %s is taken", body.Attachment.Device, s.id)
	}
	if s.status == statusActive {
		c.violate(HotAttach, "volume %s (%s) is attached to server %s while it runs", v.name, v.id, s.name)
	}
	s.busy, v.busy, v.status = jobAttach, jobAttach, volumeAttaching
	return accepted(c.start(serviceECS, jobAttach, func(j *job) { j.serverID, j.volumeID = s.id, v.id }, func() *refusal {
		s.busy, v.busy = "", ""
		if s.gone {
			v.status = volumeAvailable
			return refuse(0, "Ecs.0114", "server %s does not exist", s.id)
		}
		device := body.Attachment.Device
		if device == "" || c.opts.SCSI || c.opts.ShuffleDevices {
			device = c.device(len(s.volumes))
		}
		c.change(v, func() { v.status, v.server, v.device = volumeInUse, s, device })
		s.volumes = append(s.volumes, &attachment{volume: v, device: device})
		return nil
	}))
}

func (c *cloud) detachVolume(r *request) (int, any, *refusal) {
	s, refused := c.find(r.PathValue("id"))
	if refused != nil {
		return 0, nil, refused
	}
	v, refused := c.findVolume(r.PathValue("volume"))
	switch {
	case refused != nil:
		return 0, nil, refused
	case v.server != s:
		return 0, nil, refuse(http.StatusBadRequest, "Ecs.1000", `{"itemNotFound": {"message": "volume %s is not attached to server %s", "code": 404}}`, v.id, s.id)
	case s.busy != "":
		return 0, nil, refuse(http.StatusConflict, "Ecs.0212", "server %s has a volume job under way", s.id)
	case v.busy != "":
		return 0, nil, refuse(http.StatusConflict, "Ecs.0204", "volume %s has a job under way", v.id)
	case v.root:
		return 0, nil, refuse(http.StatusBadRequest, "Ecs.0209", "volume %s is the root volume", v.id)
	}
	if s.status == statusActive {
		c.violate(HotDetach, "volume %s (%s) is detached from server %s while it runs", v.name, v.id, s.name)
	}
	s.busy, v.busy, v.status = jobDetach, jobDetach, volumeDetaching
	return accepted(c.start(serviceECS, jobDetach, func(j *job) { j.serverID, j.volumeID = s.id, v.id }, func() *refusal {
		s.busy, v.busy = "", ""
		s.volumes = slices.DeleteFunc(s.volumes, func(a *attachment) bool { return a.volume == v })
		c.change(v, v.free)
		return nil
	}))
}

func (c *cloud) blockDevices(r *request) (int, any, *refusal) {
	s, refused := c.find(r.PathValue("id"))
	if refused != nil {
		return 0, nil, refused
	}
	list := []any{}
	for _, a := range s.volumes {
		list = append(list, c.deviceView(s, a))
	}
	return http.StatusOK, map[string]any{
		"attachableQuantity": map[string]any{"free_scsi": maxAttached - len(s.volumes), "free_blk": maxAttached - len(s.volumes), "free_disk": maxAttached - len(s.volumes)},
		"volumeAttachments":  list,
	}, nil
}

func (c *cloud) deviceView(s *server, a *attachment) map[string]any {
	boot, bus := -1, "virtio"
	if a.volume.root {
		boot = 0
	}
	if c.opts.SCSI {
		bus = "scsi"
	}
	return map[string]any{
		"id": a.volume.id, "volumeId": a.volume.id, "serverId": s.id, "device": a.device, "size": a.volume.size, "bootIndex": boot, "bus": bus, "pciAddress": "",
	}
}

func (c *cloud) blockDevice(r *request) (int, any, *refusal) {
	s, refused := c.find(r.PathValue("id"))
	if refused != nil {
		return 0, nil, refused
	}
	for _, a := range s.volumes {
		if a.volume.id == r.PathValue("volume") {
			return http.StatusOK, map[string]any{"volumeAttachment": c.deviceView(s, a)}, nil
		}
	}
	return 0, nil, refuse(http.StatusBadRequest, "Ecs.1000", `{"itemNotFound": {"message": "volume_id not found: %s", "code": 404}}`, r.PathValue("volume"))
}

// eraseServer is what an operator does on the hardware: the server and all its volumes are gone.
func (c *cloud) eraseServer(id string) error {
	s := c.servers[id]
	if s == nil {
		return errNoSuchThing
	}
	for _, a := range s.volumes {
		c.dropVolume(a.volume)
	}
	for _, p := range s.ports {
		delete(c.ports, p.id)
	}
	delete(c.servers, id)
	return nil
}

// eraseVolume removes a volume from wherever it is.
func (c *cloud) eraseVolume(id string) error {
	v := c.volumes[id]
	if v == nil {
		return errNoSuchThing
	}
	if v.server != nil {
		v.server.volumes = slices.DeleteFunc(v.server.volumes, func(a *attachment) bool { return a.volume == v })
	}
	c.dropVolume(v)
	return nil
}

// stopBehind is a server that stops by itself.
func (c *cloud) stopBehind(id string) error {
	s := c.servers[id]
	if s == nil || s.gone {
		return errNoSuchThing
	}
	s.status = statusShutoff
	return nil
}
