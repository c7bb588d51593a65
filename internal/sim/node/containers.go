package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/berth-dev/berth/internal/sim/node/process"
)

// programMinor is the minor version of the Kubernetes programs that stand in for every version a guest may ask for.
const programMinor = 36

// launch is a static pod made ready to run as a process of the host.
type launch struct {
	process.Spec
	// needs must be true before it is started, nil: nothing. A real container would crash and be restarted until it is.
	needs func(context.Context) bool
	// ready probes the process; nil: running is ready.
	ready func(context.Context) bool
	// inProcess runs instead of a program until its context ends.
	inProcess func(context.Context)
	// note says what of the pod is not run as written.
	note string
}

// adapt turns a static pod into a process. The guest thinks it has a loopback interface and a file system of its own: paths
// are followed through the pod's mounts onto the guest's disks, 127.0.0.1 and wildcard addresses become the guest's own
// address. A pod whose program is none of the control plane's runs as nothing at all and is ready.
func adapt(c Config, pod *corev1.Pod) (launch, bool, error) {
	ctr := pod.Spec.Containers[0]
	line := append(append([]string{}, ctr.Command...), ctr.Args...)
	if len(line) == 0 || len(c.Addresses) == 0 {
		return launch{}, false, nil
	}
	program := path.Base(line[0])
	f := parseFlags(line[1:])
	own := c.Addresses[0].String()
	l := launch{Spec: process.Spec{Name: pod.Name, Dir: c.RunDir, DieWithParent: c.DieWithParent}}
	switch program {
	case etcdName:
		l.Path = c.Binaries.Etcd
		if u, err := url.Parse(f.value("advertise-client-urls")); err == nil && u.Hostname() != "" {
			own = u.Hostname()
		}
		f.rehost("listen-client-urls", own)
		f.rehost("listen-peer-urls", own)
		f.rehost("listen-metrics-urls", own)
		// Simulated machines lose no power between write and sync; the host's disk would only be the bottleneck.
		f.set("unsafe-no-fsync", "true")
		if metrics := f.value("listen-metrics-urls"); metrics != "" {
			l.ready = probe(strings.Split(metrics, ",")[0] + "/readyz")
		}
	case apiServerName:
		l.Path = c.Binaries.APIServer
		own = orElse(f.value("advertise-address"), own)
		f.set("bind-address", own)
		f.rehost("etcd-servers", own)
		// Loopback addresses are refused as endpoints of the kubernetes service.
		f.set("endpoint-reconciler-type", "none")
		l.Env = []string{"GOGC=50"}
		if u, err := url.Parse(strings.Split(f.value("etcd-servers"), ",")[0]); err == nil {
			l.needs = func(ctx context.Context) bool { return handshakes(ctx, u.Host) }
		}
		l.ready = probe(hostPort("https", own, orElse(f.value("secure-port"), "6443")) + "/readyz")
	case controllerName:
		l.Path = c.Binaries.ControllerManager
		f.set("bind-address", own)
		// CSRs and the signature of cluster-info are the leader's work: after a leader is gone every join waits for its lease.
		f.setDefault("leader-elect-lease-duration", "6s")
		f.setDefault("leader-elect-renew-deadline", "4s")
		f.setDefault("leader-elect-retry-period", "1s")
		// It makes a service account for each of its controllers before the first of them works: seconds at the default rate.
		f.setDefault("kube-api-qps", "200")
		f.setDefault("kube-api-burst", "400")
		l.Env = []string{"GOGC=50"}
		if server := apiServerOf(c, f.value("kubeconfig")); server != "" {
			l.needs = probe(server + "/readyz")
		}
	case schedulerName:
		conf := orElse(f.value("kubeconfig"), schedulerConf)
		return launch{inProcess: func(ctx context.Context) { runScheduler(ctx, c, conf) }}, false, nil
	default:
		return launch{note: "modelled as running; the program is not run"}, false, nil
	}
	if l.Path == "" {
		return launch{}, false, fmt.Errorf("no program stands in for %s", program)
	}
	if dropped := f.dropUnknown(ctr.Image, program, l.Path); len(dropped) > 0 {
		l.note = fmt.Sprintf("flags that the program standing in for this version does not have: %s", strings.Join(dropped, " "))
	}
	for i, a := range f.list {
		if !path.IsAbs(a.Value) || a.Name == "etcd-prefix" {
			continue
		}
		host, err := containerPath(c, pod, a.Value)
		if err != nil {
			return launch{}, false, err
		}
		f.list[i].Value = host
	}
	l.Args = f.line()
	return l, true, nil
}

// containerPath follows a path inside the container to the host: through the longest mount that holds it, or else into the
// container's own layer, which is empty and gone with the next boot.
func containerPath(c Config, pod *corev1.Pod, p string) (string, error) {
	p = path.Clean(p)
	best, onGuest := "", ""
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		mount := path.Clean(m.MountPath)
		if len(mount) <= len(best) || (p != mount && !strings.HasPrefix(p, strings.TrimSuffix(mount, "/")+"/")) {
			continue
		}
		for _, v := range pod.Spec.Volumes {
			if v.Name == m.Name && v.HostPath != nil {
				best, onGuest = mount, path.Join(v.HostPath.Path, strings.TrimPrefix(p, mount))
			}
		}
	}
	if best == "" {
		layer := filepath.Join(c.RunDir, pod.Name+".layer", filepath.FromSlash(p))
		return layer, os.MkdirAll(filepath.Dir(layer), 0o700)
	}
	return c.Files.Path(onGuest)
}

type flagList struct{ list []arg }

func parseFlags(line []string) *flagList {
	f := &flagList{}
	for _, s := range line {
		name, value, has := strings.Cut(strings.TrimLeft(s, "-"), "=")
		if !has && !strings.HasPrefix(s, "-") && len(f.list) > 0 {
			f.list[len(f.list)-1].Value = s // "--flag value"
			continue
		}
		if !has {
			value = "true"
		}
		f.list = append(f.list, arg{name, value})
	}
	return f
}

func (f *flagList) value(name string) string {
	v, _ := args{list: f.list}.get(name)
	return v
}

func (f *flagList) set(name, value string) {
	kept := f.list[:0]
	for _, a := range f.list {
		if a.Name != name {
			kept = append(kept, a)
		}
	}
	f.list = append(kept, arg{name, value})
}

func (f *flagList) setDefault(name, value string) {
	if f.value(name) == "" {
		f.set(name, value)
	}
}

// rehost moves URLs on loopback's first address or on all addresses to the guest's own, each once.
func (f *flagList) rehost(name, own string) {
	old := f.value(name)
	if old == "" {
		return
	}
	var out []string
	seen := map[string]bool{}
	for s := range strings.SplitSeq(old, ",") {
		if u, err := url.Parse(s); err == nil {
			a, err := netip.ParseAddr(u.Hostname())
			if u.Hostname() == "localhost" || err == nil && (a.IsUnspecified() || a == netip.MustParseAddr("127.0.0.1") || a == netip.IPv6Loopback()) {
				u.Host = net.JoinHostPort(own, u.Port())
				s = u.String()
			}
		}
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	f.set(name, strings.Join(out, ","))
}

func (f *flagList) line() []string {
	line := make([]string, len(f.list))
	for i, a := range f.list {
		line[i] = "--" + a.Name + "=" + a.Value
	}
	return line
}

var helpFlag = regexp.MustCompile(`(?m)^\s+(?:-\w, )?--([a-z0-9-]+)`)

var knownFlags sync.Map // program path -> map[string]bool

// dropUnknown removes the flags that an older or newer Kubernetes has and the program at hand has not. For the program's own
// version nothing is dropped: there an unknown flag is the user's mistake and the program says so.
func (f *flagList) dropUnknown(image, program, programPath string) []string {
	if program == etcdName {
		return nil
	}
	_, tag, _ := strings.Cut(path.Base(image), ":")
	v, err := version.ParseSemantic(tag)
	if err != nil || v.Minor() == programMinor {
		return nil
	}
	known, ok := knownFlags.Load(programPath)
	if !ok {
		help, err := exec.CommandContext(context.Background(), programPath, "--help").Output()
		if err != nil {
			return nil
		}
		set := map[string]bool{}
		for _, m := range helpFlag.FindAllSubmatch(help, -1) {
			set[string(m[1])] = true
		}
		known, _ = knownFlags.LoadOrStore(programPath, set)
	}
	var dropped []string
	kept := f.list[:0]
	for _, a := range f.list {
		if known.(map[string]bool)[a.Name] {
			kept = append(kept, a)
		} else {
			dropped = append(dropped, "--"+a.Name)
		}
	}
	f.list = kept
	return dropped
}

// apiServerOf is the server that a kubeconfig of the guest names.
func apiServerOf(c Config, kubeconfigPath string) string {
	rc, err := guestDisk{c.Files}.restConfig(kubeconfigPath)
	if err != nil {
		return ""
	}
	return rc.Host
}

// prober asks once per connection: a probe must not keep a dying server's socket alive.
var prober = &http.Client{
	Timeout: 3 * time.Second,
	Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // a kubelet's HTTPS probe verifies nothing either
		DisableKeepAlives: true,
	},
}

func probe(url string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false
		}
		resp, err := prober.Do(req)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
}

// handshakes: a server speaks TLS at the address. Accepting a connection says nothing: the kernel does that for a process that
// has only opened its socket.
func handshakes(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func hostPort(scheme, host, port string) string { return scheme + "://" + net.JoinHostPort(host, port) }

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
