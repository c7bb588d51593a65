package rest

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// VolumeInfo is a volume.
type VolumeInfo struct {
	ID, Name string
	// Status is the platform's word: creating, available, attaching, in-use, detaching, deleting, error and others.
	Status           string
	SizeGB           int32
	Type             string
	AvailabilityZone string
	// Servers that it is attached to.
	Servers  []string
	Metadata map[string]string
	WWN      string
}

type volumeAnswer struct {
	ID          string `json:"id"`
	Name        word   `json:"name"`
	Status      string `json:"status"`
	Size        number `json:"size"`
	Type        word   `json:"volume_type"`
	Zone        word   `json:"availability_zone"`
	WWN         word   `json:"wwn"`
	Attachments []struct {
		ServerID word `json:"server_id"`
	} `json:"attachments"`
	Metadata map[string]word `json:"metadata"`
}

func (a *volumeAnswer) volume() VolumeInfo {
	v := VolumeInfo{
		ID: a.ID, Name: string(a.Name), Status: a.Status, SizeGB: int32(a.Size), Type: string(a.Type), AvailabilityZone: string(a.Zone),
		WWN: string(a.WWN), Metadata: map[string]string{},
	}
	for _, at := range a.Attachments {
		if at.ServerID != "" {
			v.Servers = append(v.Servers, string(at.ServerID))
		}
	}
	for key, value := range a.Metadata {
		v.Metadata[key] = string(value)
	}
	return v
}

// NewVolume is a volume to create.
type NewVolume struct {
	Name             string
	SizeGB           int32
	Type             string
	AvailabilityZone string
	Metadata         map[string]string
}

func (c *Client) volumes(version string) string {
	return "/" + version + "/{project}/" + string(c.cfg.EVS)
}

// CreateVolume starts the creation of a volume, whose ID is known at once.
func (c *Client) CreateVolume(ctx context.Context, n NewVolume) (job, id string, err error) {
	in := map[string]any{"volume": map[string]any{
		"availability_zone": n.AvailabilityZone, "size": n.SizeGB, "volume_type": n.Type, "name": n.Name, "metadata": n.Metadata, "multiattach": false,
	}}
	var out struct {
		JobID string   `json:"job_id"`
		IDs   []string `json:"volume_ids"`
	}
	err = c.do(ctx, call{operation: "create volume", service: EVS, method: http.MethodPost, path: c.volumes("v2.1"), in: in, out: &out})
	if len(out.IDs) == 1 {
		id = out.IDs[0]
	}
	return out.JobID, id, err
}

// Volume reads one volume.
func (c *Client) Volume(ctx context.Context, id string) (*VolumeInfo, error) {
	var out struct {
		Volume volumeAnswer `json:"volume"`
	}
	err := c.do(ctx, call{operation: "read volume", service: EVS, method: http.MethodGet, path: c.volumes("v2") + "/" + url.PathEscape(id), out: &out})
	if err != nil {
		return nil, err
	}
	v := out.Volume.volume()
	return &v, nil
}

// volumePage is how many volumes are asked for at once.
const volumePage = 500

// VolumeList lists all volumes of the project, or those whose name contains name: the platform's filter is not exact.
func (c *Client) VolumeList(ctx context.Context, name string) ([]VolumeInfo, error) {
	var all []VolumeInfo
	for offset := 0; ; offset += volumePage {
		q := url.Values{"limit": {strconv.Itoa(volumePage)}, "offset": {strconv.Itoa(offset)}}
		if name != "" {
			q.Set("name", name)
		}
		var out struct {
			Volumes []volumeAnswer `json:"volumes"`
		}
		if err := c.do(ctx, call{operation: "list volumes", service: EVS, method: http.MethodGet, path: c.volumes("v2") + "/detail", query: q, out: &out}); err != nil {
			return nil, err
		}
		for i := range out.Volumes {
			all = append(all, out.Volumes[i].volume())
		}
		if len(out.Volumes) < volumePage {
			return all, nil
		}
	}
}

// DeleteVolume starts the deletion of a volume.
func (c *Client) DeleteVolume(ctx context.Context, id string) (job string, err error) {
	var out jobID
	err = c.do(ctx, call{operation: "delete volume", service: EVS, method: http.MethodDelete, path: c.volumes("v2") + "/" + url.PathEscape(id), out: &out})
	return out.JobID, err
}

// VolumeType is a kind of storage.
type VolumeType struct {
	ID, Name string
	// Zones that it can be used in, nil where the platform does not say.
	Zones []string
	// SoldOut zones.
	SoldOut []string
}

// VolumeTypes lists the volume types.
func (c *Client) VolumeTypes(ctx context.Context) ([]VolumeType, error) {
	var out struct {
		Types []struct {
			ID    string          `json:"id"`
			Name  string          `json:"name"`
			Specs map[string]word `json:"extra_specs"`
		} `json:"volume_types"`
	}
	if err := c.do(ctx, call{operation: "list volume types", service: EVS, method: http.MethodGet, path: "/v2/{project}/types", out: &out}); err != nil {
		return nil, err
	}
	var types []VolumeType
	for _, t := range out.Types {
		types = append(types, VolumeType{
			ID: t.ID, Name: t.Name, Zones: list(string(t.Specs["RESKEY:availability_zones"])),
			SoldOut: list(string(t.Specs["os-vendor-extended:sold_out_availability_zones"])),
		})
	}
	return types, nil
}

// list splits "a,b" and drops what is empty.
func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}
