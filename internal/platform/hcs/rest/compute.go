package rest

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Server is a virtual machine.
type Server struct {
	ID, Name string
	// Status is the platform's word: BUILD, ACTIVE, SHUTOFF, ERROR, DELETED, SOFT_DELETED and others.
	Status           string
	AvailabilityZone string
	// HostID is the same for servers on the same physical host.
	HostID   string
	FlavorID string
	ImageID  string
	Metadata map[string]string
	// Addresses are the fixed ones, as listed.
	Addresses []Address
	// Volumes attached, the root volume first where the platform says which it is.
	Volumes []ServerVolume
	// Fault is why a server is in ERROR.
	Fault string
}

// Gone reports a status that is final: the server is listed for a while after it was deleted.
func (s *Server) Gone() bool { return s.Status == "DELETED" || s.Status == "SOFT_DELETED" }

// Address of a server.
type Address struct {
	IP   netip.Addr
	MAC  string
	Port string
}

// ServerVolume is a volume of a server, as the server lists it.
type ServerVolume struct {
	ID                  string
	Device              string
	Root                bool
	DeleteOnTermination bool
}

type serverAnswer struct {
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Status   string          `json:"status"`
	HostID   word            `json:"hostId"`
	Zone     word            `json:"OS-EXT-AZ:availability_zone"`
	Metadata map[string]word `json:"metadata"`
	Flavor   struct {
		ID word `json:"id"`
	} `json:"flavor"`
	Image struct {
		ID word `json:"id"`
	} `json:"image"`
	Addresses map[string][]struct {
		Addr string `json:"addr"`
		Type word   `json:"OS-EXT-IPS:type"`
		MAC  word   `json:"OS-EXT-IPS-MAC:mac_addr"`
		Port word   `json:"OS-EXT-IPS:port_id"`
	} `json:"addresses"`
	Volumes []struct {
		ID        string `json:"id"`
		Delete    flag   `json:"delete_on_termination"`
		BootIndex word   `json:"bootIndex"`
		Device    word   `json:"device"`
	} `json:"os-extended-volumes:volumes_attached"`
	Fault *struct {
		Message word `json:"message"`
	} `json:"fault"`
}

func (a *serverAnswer) server() Server {
	s := Server{
		ID: a.ID, Name: a.Name, Status: a.Status, AvailabilityZone: string(a.Zone), HostID: string(a.HostID),
		FlavorID: string(a.Flavor.ID), ImageID: string(a.Image.ID), Metadata: map[string]string{},
	}
	for k, v := range a.Metadata {
		s.Metadata[k] = string(v)
	}
	for _, network := range a.Addresses {
		for _, n := range network {
			if n.Type != "" && n.Type != "fixed" {
				continue
			}
			if ip, err := netip.ParseAddr(n.Addr); err == nil {
				s.Addresses = append(s.Addresses, Address{IP: ip, MAC: string(n.MAC), Port: string(n.Port)})
			}
		}
	}
	for _, v := range a.Volumes {
		s.Volumes = append(s.Volumes, ServerVolume{ID: v.ID, Device: string(v.Device), Root: v.BootIndex == "0", DeleteOnTermination: bool(v.Delete)})
	}
	if a.Fault != nil {
		s.Fault = string(a.Fault.Message)
	}
	return s
}

// NewServer is a server to create.
type NewServer struct {
	Name             string
	ImageID          string
	FlavorID         string
	VPCID            string
	AvailabilityZone string
	NICs             []NIC
	Root             Disk
	Data             []Disk
	SecurityGroupID  string
	KeyName          string
	AdminPassword    string
	// UserData is sent in base64; the platform takes at most MaxUserData bytes of it before that.
	UserData []byte
	// ServerGroupID is the group that the server joins, "" for none.
	ServerGroupID string
	Metadata      map[string]string
	// PowerOn starts the server when it has been created.
	PowerOn bool
	// ImageBoot is what flavors with a local system disk ask for.
	ImageBoot bool
	// Token makes a repeated request the same creation.
	Token string
}

// MaxUserData in bytes, before base64.
const MaxUserData = 32 << 10

// NIC of a new server.
type NIC struct {
	// SubnetID is the network's ID.
	SubnetID string
	Address  string
}

// Disk of a new server, created with it and deleted with it.
type Disk struct {
	Type   string
	SizeGB int
}

type newServer struct {
	Name       string            `json:"name"`
	ImageRef   string            `json:"imageRef"`
	FlavorRef  string            `json:"flavorRef"`
	VPCID      string            `json:"vpcid"`
	Zone       string            `json:"availability_zone,omitempty"`
	NICs       []newNIC          `json:"nics"`
	Root       newDisk           `json:"root_volume"`
	Data       []newDisk         `json:"data_volumes,omitempty"`
	Groups     []identified      `json:"security_groups,omitempty"`
	KeyName    string            `json:"key_name,omitempty"`
	AdminPass  string            `json:"adminPass,omitempty"`
	UserData   string            `json:"user_data,omitempty"`
	Hints      *hints            `json:"os:scheduler_hints,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	PowerOn    bool              `json:"power_on"`
	ExtendPara *extendParam      `json:"extendparam,omitempty"`
}

type newNIC struct {
	SubnetID  string `json:"subnet_id"`
	IPAddress string `json:"ip_address,omitempty"`
}

type newDisk struct {
	Type   string `json:"volumetype"`
	Size   int    `json:"size"`
	Delete bool   `json:"delete_on_termination,omitempty"`
}

type identified struct {
	ID string `json:"id"`
}

type hints struct {
	Group string `json:"group"`
}

type extendParam struct {
	ImageBoot bool `json:"image_boot"`
}

// CreateServer starts the creation of a server. The ID is known when the job has ended, on some versions at once.
func (c *Client) CreateServer(ctx context.Context, n NewServer) (job, serverID string, err error) {
	in := newServer{
		Name: n.Name, ImageRef: n.ImageID, FlavorRef: n.FlavorID, VPCID: n.VPCID, Zone: n.AvailabilityZone,
		Root: newDisk{Type: n.Root.Type, Size: n.Root.SizeGB}, KeyName: n.KeyName, AdminPass: n.AdminPassword,
		UserData: base64.StdEncoding.EncodeToString(n.UserData), Metadata: n.Metadata, PowerOn: n.PowerOn,
	}
	for _, nic := range n.NICs {
		in.NICs = append(in.NICs, newNIC{SubnetID: nic.SubnetID, IPAddress: nic.Address})
	}
	for _, d := range n.Data {
		in.Data = append(in.Data, newDisk{Type: d.Type, Size: d.SizeGB, Delete: true})
	}
	if n.SecurityGroupID != "" {
		in.Groups = []identified{{ID: n.SecurityGroupID}}
	}
	if n.ServerGroupID != "" {
		in.Hints = &hints{Group: n.ServerGroupID}
	}
	if n.ImageBoot {
		in.ExtendPara = &extendParam{ImageBoot: true}
	}
	var out struct {
		JobID     string   `json:"job_id"`
		ServerIDs []string `json:"serverIds"`
	}
	err = c.do(ctx, call{
		operation: "create server", service: ECS, method: http.MethodPost, path: "/v1/{project}/cloudservers", token: n.Token,
		in: map[string]any{"server": in}, out: &out,
	})
	if len(out.ServerIDs) == 1 {
		serverID = out.ServerIDs[0]
	}
	return out.JobID, serverID, err
}

// Server reads one server.
func (c *Client) Server(ctx context.Context, id string) (*Server, error) {
	var out struct {
		Server serverAnswer `json:"server"`
	}
	err := c.do(ctx, call{operation: "read server", service: ECS, method: http.MethodGet, path: "/v1/{project}/cloudservers/" + url.PathEscape(id), out: &out})
	if err != nil {
		return nil, err
	}
	s := out.Server.server()
	return &s, nil
}

// serverPage is how many servers are asked for at once.
const serverPage = 200

// Servers lists all servers of the project, or those whose name contains name: the platform's filter is not exact.
func (c *Client) Servers(ctx context.Context, name string) ([]Server, error) {
	var all []Server
	for page := 1; ; page++ { // the offset is the number of a page, from 1
		q := url.Values{"limit": {strconv.Itoa(serverPage)}, "offset": {strconv.Itoa(page)}}
		if name != "" {
			q.Set("name", name)
		}
		var out struct {
			Count   number         `json:"count"`
			Servers []serverAnswer `json:"servers"`
		}
		err := c.do(ctx, call{operation: "list servers", service: ECS, method: http.MethodGet, path: "/v1/{project}/cloudservers/detail", query: q, out: &out})
		if err != nil {
			return nil, err
		}
		for i := range out.Servers {
			all = append(all, out.Servers[i].server())
		}
		if len(out.Servers) < serverPage {
			return all, nil
		}
	}
}

// StartServer starts a server.
func (c *Client) StartServer(ctx context.Context, id string) (job string, err error) {
	return c.action(ctx, "start server", map[string]any{"os-start": map[string]any{"servers": []identified{{ID: id}}}})
}

// StopServer stops a server: softly by asking its guest, or by force.
func (c *Client) StopServer(ctx context.Context, id string, force bool) (job string, err error) {
	how := "SOFT"
	if force {
		how = "HARD"
	}
	return c.action(ctx, "stop server", map[string]any{"os-stop": map[string]any{"type": how, "servers": []identified{{ID: id}}}})
}

func (c *Client) action(ctx context.Context, operation string, in any) (string, error) {
	var out jobID
	err := c.do(ctx, call{operation: operation, service: ECS, method: http.MethodPost, path: "/v1/{project}/cloudservers/action", in: in, out: &out})
	return out.JobID, err
}

// DeleteServer deletes a server with every volume that is still attached to it.
func (c *Client) DeleteServer(ctx context.Context, id string) (job string, err error) {
	var out jobID
	err = c.do(ctx, call{
		operation: "delete server", service: ECS, method: http.MethodPost, path: "/v1/{project}/cloudservers/delete",
		in: map[string]any{"servers": []identified{{ID: id}}, "delete_publicip": false, "delete_volume": true}, out: &out,
	})
	return out.JobID, err
}

// AttachVolume attaches a volume. A server and a volume take one such job at a time.
func (c *Client) AttachVolume(ctx context.Context, server, volume, device string) (job string, err error) {
	var out jobID
	in := map[string]any{"volumeAttachment": map[string]string{"volumeId": volume, "device": device}}
	err = c.do(ctx, call{
		operation: "attach volume", service: ECS, method: http.MethodPost, path: "/v1/{project}/cloudservers/" + url.PathEscape(server) + "/attachvolume", in: in, out: &out,
	})
	return out.JobID, err
}

// DetachVolume detaches a volume, never by force.
func (c *Client) DetachVolume(ctx context.Context, server, volume string) (job string, err error) {
	var out jobID
	err = c.do(ctx, call{
		operation: "detach volume", service: ECS, method: http.MethodDelete, query: url.Values{"delete_flag": {"0"}},
		path: "/v1/{project}/cloudservers/" + url.PathEscape(server) + "/detachvolume/" + url.PathEscape(volume), out: &out,
	})
	return out.JobID, err
}

// BlockDevice is a volume as its server has it.
type BlockDevice struct {
	VolumeID string
	Device   string
	SizeGB   int32
	// Root is the system disk.
	Root bool
	Bus  string
}

// BlockDevices lists what is attached to a server, in the order of the platform.
func (c *Client) BlockDevices(ctx context.Context, server string) ([]BlockDevice, error) {
	var out struct {
		Attachments []struct {
			VolumeID  string `json:"volumeId"`
			Device    word   `json:"device"`
			Size      number `json:"size"`
			BootIndex word   `json:"bootIndex"`
			Bus       word   `json:"bus"`
		} `json:"volumeAttachments"`
	}
	err := c.do(ctx, call{
		operation: "list block devices", service: ECS, method: http.MethodGet,
		path: "/v1/{project}/cloudservers/" + url.PathEscape(server) + "/block_device", out: &out,
	})
	if err != nil {
		return nil, err
	}
	var devices []BlockDevice
	for _, a := range out.Attachments {
		devices = append(devices, BlockDevice{VolumeID: a.VolumeID, Device: string(a.Device), SizeGB: int32(a.Size), Root: a.BootIndex == "0", Bus: string(a.Bus)})
	}
	return devices, nil
}

// Flavor is a size of server.
type Flavor struct {
	ID, Name string
	VCPUs    int
	MemoryMB int
	Disabled bool
	// Sale is the platform's word for a zone: normal, abandon, sellout and others; "" where it says nothing.
	Sale map[string]string
	// LocalDisk: the system disk is on the host, and a server boots from the image.
	LocalDisk bool
}

// Flavors lists the flavors of a zone, or all.
func (c *Client) Flavors(ctx context.Context, zone string) ([]Flavor, error) {
	q := url.Values{}
	if zone != "" {
		q.Set("availability_zone", zone)
	}
	var out struct {
		Flavors []struct {
			ID       string          `json:"id"`
			Name     string          `json:"name"`
			VCPUs    number          `json:"vcpus"`
			RAM      number          `json:"ram"`
			Disabled flag            `json:"OS-FLV-DISABLED:disabled"`
			Specs    map[string]word `json:"os_extra_specs"`
		} `json:"flavors"`
	}
	if err := c.do(ctx, call{operation: "list flavors", service: ECS, method: http.MethodGet, path: "/v1/{project}/cloudservers/flavors", query: q, out: &out}); err != nil {
		return nil, err
	}
	var flavors []Flavor
	for _, f := range out.Flavors {
		flavors = append(flavors, Flavor{
			ID: f.ID, Name: f.Name, VCPUs: int(f.VCPUs), MemoryMB: int(f.RAM), Disabled: bool(f.Disabled),
			Sale: sale(string(f.Specs["cond:operation:az"])), LocalDisk: f.Specs["huawei:extBootType"] == "LocalDisk",
		})
	}
	return flavors, nil
}

// sale reads "az1(normal), az2(sellout)".
func sale(text string) map[string]string {
	out := map[string]string{}
	for _, part := range strings.Split(text, ",") {
		if zone, state, ok := strings.Cut(strings.TrimSuffix(strings.TrimSpace(part), ")"), "("); ok {
			out[zone] = state
		}
	}
	return out
}

// Zone is an availability zone.
type Zone struct {
	Name      string
	Available bool
}

// Zones lists the availability zones, in the order of the platform.
func (c *Client) Zones(ctx context.Context) ([]Zone, error) {
	var out struct {
		Info []struct {
			Name  string `json:"zoneName"`
			State struct {
				Available flag `json:"available"`
			} `json:"zoneState"`
		} `json:"availabilityZoneInfo"`
	}
	if err := c.do(ctx, call{operation: "list availability zones", service: ECS, method: http.MethodGet, path: "/v2.1/{project}/os-availability-zone", out: &out}); err != nil {
		return nil, err
	}
	var zones []Zone
	for _, z := range out.Info {
		zones = append(zones, Zone{Name: z.Name, Available: bool(z.State.Available)})
	}
	return zones, nil
}

// ServerGroup keeps servers on different physical hosts. Its policy never changes.
type ServerGroup struct {
	ID, Name string
	Policy   string
	Members  []string
}

type serverGroupAnswer struct {
	ID       string   `json:"id"`
	Name     string   `json:"name"`
	Policies []string `json:"policies"`
	Members  []string `json:"members"`
}

func (a serverGroupAnswer) group() ServerGroup {
	g := ServerGroup{ID: a.ID, Name: a.Name, Members: slices.Clone(a.Members)}
	if len(a.Policies) > 0 {
		g.Policy = a.Policies[0]
	}
	return g
}

const serverGroups = "/v1/{project}/cloudservers/os-server-groups"

// CreateServerGroup creates a group.
func (c *Client) CreateServerGroup(ctx context.Context, name, policy string) (*ServerGroup, error) {
	var out struct {
		Group serverGroupAnswer `json:"server_group"`
	}
	in := map[string]any{"server_group": map[string]any{"name": name, "policies": []string{policy}}}
	if err := c.do(ctx, call{operation: "create server group", service: ECS, method: http.MethodPost, path: serverGroups, in: in, out: &out}); err != nil {
		return nil, err
	}
	g := out.Group.group()
	return &g, nil
}

// ServerGroups lists all groups.
func (c *Client) ServerGroups(ctx context.Context) ([]ServerGroup, error) {
	var out struct {
		Groups []serverGroupAnswer `json:"server_groups"`
	}
	if err := c.do(ctx, call{operation: "list server groups", service: ECS, method: http.MethodGet, path: serverGroups, out: &out}); err != nil {
		return nil, err
	}
	var groups []ServerGroup
	for _, g := range out.Groups {
		groups = append(groups, g.group())
	}
	return groups, nil
}

// DeleteServerGroup deletes a group.
func (c *Client) DeleteServerGroup(ctx context.Context, id string) error {
	return c.do(ctx, call{operation: "delete server group", service: ECS, method: http.MethodDelete, path: serverGroups + "/" + url.PathEscape(id)})
}
