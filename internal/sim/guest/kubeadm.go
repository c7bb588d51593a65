package guest

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/berth-dev/berth/internal/sim/node"
)

// kubeadm runs `kubeadm init` and `kubeadm join` from a configuration file; other subcommands have no effect here.
func kubeadm(s *shell, args []string, _ *strings.Builder) int {
	config, ignore, ok := kubeadmFlags(args)
	if !ok {
		s.g.notRun("kubeadm " + strings.Join(args, " "))
		return 0
	}
	if config == "" {
		s.g.fail("kubeadm %s without --config: this guest reads no flags and no defaults", args[0])
		return 1
	}
	documents, err := s.g.fs.read(config)
	if err != nil {
		s.g.fail("kubeadm %s: unable to read config from %q: %v", args[0], config, err)
		return 1
	}
	if !s.g.startUnit(s.ctx, "kubelet.service") {
		s.g.fail("kubeadm %s: the kubelet is not running: a unit that it requires failed", args[0])
		return 1
	}
	c := s.g.nodeConfig(s.again)
	c.IgnorePreflightErrors = append(c.IgnorePreflightErrors, ignore...)
	s.g.announce(documents)
	var n *node.Node
	if args[0] == "init" {
		n, err = node.Init(s.ctx, c, documents)
	} else {
		n, err = node.Join(s.ctx, c, documents)
	}
	if err != nil {
		s.g.d.endpoints.remove(s.g)
		if s.ctx.Err() == nil {
			s.g.fail("kubeadm %s: %v", args[0], err)
		}
		return 1
	}
	if err := s.g.nodeIsUp(n); err != nil {
		s.g.fail("kubeadm %s: %v", args[0], err)
		return 1
	}
	return 0
}

func kubeadmFlags(args []string) (config string, ignore []string, ok bool) {
	if len(args) == 0 || (args[0] != "init" && args[0] != "join") {
		return "", nil, false
	}
	for i := 1; i < len(args); i++ {
		name, value, inline := strings.Cut(args[i], "=")
		switch name {
		case "--config", "--ignore-preflight-errors":
			if !inline && i+1 < len(args) {
				i++
				value = args[i]
			}
			if name == "--config" {
				config = value
			} else {
				ignore = append(ignore, strings.Split(value, ",")...)
			}
		case "phase":
			return "", nil, false
		}
	}
	return config, ignore, true
}

// nodeConfig describes this guest to kubeadm and the kubelet.
func (g *machine) nodeConfig(again bool) node.Config {
	version := g.imageVersion()
	g.mu.Lock()
	defer g.mu.Unlock()
	c := node.Config{
		HostName:    g.status.HostName,
		Addresses:   append([]netip.Addr(nil), g.addrs...),
		ProductUUID: g.hardware.UUID,
		Hardware: node.Hardware{
			CPUs: g.hardware.CPUs, MemoryMiB: g.hardware.MemoryMiB, DiskGiB: g.hardware.Disks[0].Bytes >> 30,
		},
		KubeletVersion: version,
		Files:          g.fs,
		RunDir:         g.host(runtimeDir),
		Binaries:       g.d.options.Binaries,
		DieWithParent:  g.d.options.DieWithParent,
		Console:        g.console.logger(),
	}
	if again {
		// What the interrupted attempt left behind is no mistake of the user's.
		c.IgnorePreflightErrors = []string{"all"}
	}
	return c
}

// nodeIsUp takes note of the guest's node and puts its kube-apiserver behind the cluster's endpoint.
func (g *machine) nodeIsUp(n *node.Node) error {
	g.mu.Lock()
	g.node = n
	g.status.Node, g.status.ControlPlane = n.Name(), n.ControlPlane()
	g.mu.Unlock()
	g.console.say("kubelet", "node %s, Kubernetes %s", n.Name(), n.Version())
	g.save()
	if !n.ControlPlane() {
		return nil
	}
	kubeconfig, err := g.fs.read(adminConf)
	if err != nil {
		return err
	}
	endpoint, err := serverOf(kubeconfig)
	if err != nil {
		return err
	}
	g.d.endpoints.add(g, endpoint, n.APIServer())
	if g.d.clouds.ensure(endpoint, kubeconfig) {
		g.d.endpoints.onGone(endpoint, func() { g.d.clouds.drop(endpoint) })
	}
	return nil
}

const adminConf = "/etc/kubernetes/admin.conf"

// serverOf is host:port of a kubeconfig's cluster.
func serverOf(kubeconfig []byte) (string, error) {
	var doc struct {
		Clusters []struct {
			Cluster struct {
				Server string `yaml:"server"`
			} `yaml:"cluster"`
		} `yaml:"clusters"`
	}
	if err := yaml.Unmarshal(kubeconfig, &doc); err != nil {
		return "", err
	}
	for _, c := range doc.Clusters {
		if host, ok := strings.CutPrefix(c.Cluster.Server, "https://"); ok {
			return host, nil
		}
	}
	return "", errors.New(adminConf + " names no server")
}

// announce puts a control plane guest behind its cluster's endpoint before kubeadm runs: init itself needs the endpoint.
func (g *machine) announce(documents []byte) {
	endpoint, local := kubeadmEndpoints(documents)
	if endpoint == "" || local == nil {
		return
	}
	g.mu.Lock()
	if local.Address == "" && len(g.addrs) > 0 {
		local.Address = g.addrs[0].String()
	}
	g.mu.Unlock()
	if local.Port == 0 {
		local.Port = 6443
	}
	g.d.endpoints.add(g, endpoint, net.JoinHostPort(local.Address, strconv.Itoa(local.Port)))
}

type apiEndpoint struct {
	Address string `yaml:"advertiseAddress"`
	Port    int    `yaml:"bindPort"`
}

// kubeadmEndpoints finds the cluster's endpoint and, for a control plane, its own API server in kubeadm documents.
func kubeadmEndpoints(documents []byte) (endpoint string, local *apiEndpoint) {
	dec := yaml.NewDecoder(strings.NewReader(string(documents)))
	for {
		var doc struct {
			Kind                 string      `yaml:"kind"`
			ControlPlaneEndpoint string      `yaml:"controlPlaneEndpoint"`
			LocalAPIEndpoint     apiEndpoint `yaml:"localAPIEndpoint"`
			ControlPlane         *struct {
				LocalAPIEndpoint apiEndpoint `yaml:"localAPIEndpoint"`
			} `yaml:"controlPlane"`
			Discovery struct {
				BootstrapToken struct {
					APIServerEndpoint string `yaml:"apiServerEndpoint"`
				} `yaml:"bootstrapToken"`
			} `yaml:"discovery"`
		}
		if err := dec.Decode(&doc); err != nil {
			// The end, or a document that does not parse: that is for kubeadm to complain about.
			return endpoint, local
		}
		switch doc.Kind {
		case "ClusterConfiguration":
			endpoint = doc.ControlPlaneEndpoint
		case "InitConfiguration":
			local = &doc.LocalAPIEndpoint
		case "JoinConfiguration":
			endpoint = doc.Discovery.BootstrapToken.APIServerEndpoint
			if doc.ControlPlane != nil {
				local = &doc.ControlPlane.LocalAPIEndpoint
			}
		}
	}
}
