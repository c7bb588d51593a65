package guest

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// metadata is the instance metadata as cloud-init's VMware datasource understands it.
type metadata struct {
	InstanceID string
	HostName   string
	Ethernets  []ethernet
	// raw is the whole document, for templates.
	raw map[string]any
}

// ethernet is an entry of the network configuration.
type ethernet struct {
	Name      string
	MAC       string
	Addresses []netip.Prefix
	DHCP      bool
}

type ethernetDoc struct {
	Match struct {
		MAC string `yaml:"macaddress"`
	} `yaml:"match"`
	SetName   string `yaml:"set-name"`
	DHCP4     bool   `yaml:"dhcp4"`
	DHCP6     bool   `yaml:"dhcp6"`
	Addresses []any  `yaml:"addresses"`
}

type networkDoc struct {
	Version   int                    `yaml:"version"`
	Ethernets map[string]ethernetDoc `yaml:"ethernets"`
}

// parseMetadata reads the metadata document. The network may be given inline or encoded, as the datasource allows.
func parseMetadata(text string) (metadata, error) {
	m := metadata{raw: map[string]any{}}
	if strings.TrimSpace(text) == "" {
		return m, errors.New("it is empty")
	}
	if err := yaml.Unmarshal([]byte(text), &m.raw); err != nil {
		return m, fmt.Errorf("it is not a YAML mapping: %w", err)
	}
	m.InstanceID = textOf(m.raw["instance-id"])
	m.HostName = textOf(m.raw["local-hostname"])
	if m.InstanceID == "" {
		return m, errors.New("it has no instance-id")
	}
	network, err := networkOf(m.raw)
	if err != nil {
		return m, err
	}
	names := make([]string, 0, len(network.Ethernets))
	for name := range network.Ethernets {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		doc := network.Ethernets[name]
		e := ethernet{Name: name, MAC: strings.ToLower(doc.Match.MAC), DHCP: doc.DHCP4 || doc.DHCP6}
		if doc.SetName != "" {
			e.Name = doc.SetName
		}
		for _, a := range doc.Addresses {
			prefix, err := netip.ParsePrefix(fmt.Sprint(a))
			if err != nil {
				return m, fmt.Errorf("network: %s: address %q is not in CIDR form", name, fmt.Sprint(a))
			}
			e.Addresses = append(e.Addresses, prefix)
		}
		m.Ethernets = append(m.Ethernets, e)
	}
	return m, nil
}

func networkOf(raw map[string]any) (networkDoc, error) {
	var doc networkDoc
	var data []byte
	switch n := raw["network"].(type) {
	case nil:
		return doc, nil
	case string:
		data = []byte(n)
		if encoding := textOf(raw["network.encoding"]); encoding == "base64" || encoding == "b64" {
			plain, err := base64.StdEncoding.DecodeString(n)
			if err != nil {
				return doc, fmt.Errorf("network: not base64: %w", err)
			}
			data = plain
		}
	default:
		var err error
		if data, err = yaml.Marshal(n); err != nil {
			return doc, fmt.Errorf("network: %w", err)
		}
	}
	// The document may have another "network" at its top.
	var outer struct {
		Network *networkDoc `yaml:"network"`
	}
	if err := yaml.Unmarshal(data, &outer); err == nil && outer.Network != nil {
		return checked(*outer.Network)
	}
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return doc, fmt.Errorf("network: %w", err)
	}
	return checked(doc)
}

func checked(doc networkDoc) (networkDoc, error) {
	if doc.Version != 2 {
		return doc, fmt.Errorf("network: version %d is not understood here, 2 is", doc.Version)
	}
	return doc, nil
}

func textOf(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

func (m metadata) byMAC(mac string) (ethernet, bool) {
	for _, e := range m.Ethernets {
		if e.MAC == mac && mac != "" {
			return e, true
		}
	}
	return ethernet{}, false
}

// templateData is what jinja templates in the user data may refer to: ds.meta_data, v1 and the short names, hyphens also as
// underscores.
func (m metadata) templateData(hostName string, addresses []netip.Addr) map[string]any {
	meta := withUnderscores(m.raw).(map[string]any)
	for _, key := range []string{"hostname", "local-hostname", "local_hostname"} {
		if textOf(meta[key]) == "" {
			meta[key] = hostName
		}
	}
	for _, a := range addresses {
		family := "ipv6"
		if a.Unmap().Is4() {
			family = "ipv4"
		}
		if _, ok := meta["local_"+family]; !ok {
			meta["local_"+family], meta["local-"+family] = a.String(), a.String()
		}
	}
	v1 := map[string]any{
		"local_hostname": hostName, "instance_id": m.InstanceID, "cloud_name": "vmware", "platform": "vmware",
		"subplatform": "guestinfo", "cloud_id": "vmware", "distro": "linux", "machine": "x86_64",
		"system_platform": "Linux", "region": "None", "availability_zone": "None",
	}
	data := map[string]any{"ds": map[string]any{"meta_data": meta}, "v1": v1, "local-hostname": hostName, "instance-id": m.InstanceID}
	for k, v := range v1 {
		data[k] = v
	}
	return data
}

func withUnderscores(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			e = withUnderscores(e)
			out[k] = e
			out[strings.NewReplacer("-", "_", ".", "_").Replace(k)] = e
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = withUnderscores(e)
		}
		return out
	default:
		return v
	}
}
