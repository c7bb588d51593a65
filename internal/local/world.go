package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/berth-dev/berth/config"
	"github.com/berth-dev/berth/internal/sim/guest"
)

// Names of the programs that are built with berth and lie beside it.
const (
	managerProgram   = "berth-manager"
	simulatorProgram = "berth-sim"
)

// worldRecord is the content of <dir>/world.json: which process holds the world. It is written once the simulated vCenter
// has answered for the first time and never changes.
type worldRecord struct {
	VCenter identity `json:"vcenter"`
}

func (e *Environment) worldPath() string { return e.path("world.json") }

// WorldLost says whether the simulated vCenter has stopped after its world existed.
func (e *Environment) WorldLost() (bool, error) {
	text, err := os.ReadFile(e.worldPath())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var world worldRecord
	if err := json.Unmarshal(text, &world); err != nil {
		return false, fmt.Errorf("reading %s: %w", e.worldPath(), err)
	}
	return !world.VCenter.alive(), nil
}

// lost is the refusal, with the way out.
func (e *Environment) lost() error {
	return fmt.Errorf("%w; %s", ErrWorldLost, e.wayOut())
}

func (e *Environment) wayOut() string {
	return fmt.Sprintf("`%s` removes what is left of it, then `%s` makes a new one", e.Command("down --purge"), e.Command("up"))
}

// Command is what to type to do something with this environment.
func (e *Environment) Command(verb string) string {
	command := "berth " + verb
	if dir, err := DefaultDir(); err != nil || dir != e.Dir {
		command += " --state-dir " + e.Dir
	}
	return command
}

// own is a program of this project.
func (e *Environment) own(name string) (string, error) {
	path, err := exec.LookPath(filepath.Join(e.Bin, name))
	if err != nil {
		return "", fmt.Errorf("program %s is not in %s; `make build` in a clone of Berth puts all programs side by side: %w", name, e.Bin, err)
	}
	return path, nil
}

// besideThis is the directory of the running program.
func besideThis() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding the directory of this program: %w", err)
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", err
	}
	return filepath.Dir(self), nil
}

// webhookPort of berth-manager; 100 and 200 above it are health and metrics, as with Cluster API's managers.
const managerWebhookPort = 9444

// berthComponent is how Berth itself is installed in the management cluster.
func (e *Environment) berthComponent() component {
	return component{
		provider: "infrastructure-berth-" + e.Provider, prefix: "berth-", namespace: "berth-system",
		contract: map[string]string{"cluster.x-k8s.io/v1beta1": "v1beta1", "cluster.x-k8s.io/v1beta2": "v1beta1"},
	}
}

// berthObjects are all manifests of Berth, adapted to this machine.
func (e *Environment) berthObjects() ([]*unstructured.Unstructured, error) {
	c, err := e.withWebhooks(e.berthComponent(), managerWebhookPort)
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, part := range []struct {
		files fs.FS
		dir   string
	}{{config.CRDs, "crd/bases"}, {config.RBAC, "rbac"}, {config.Webhooks, "webhook"}} {
		objects, err := parseDir(part.files, part.dir)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return c.install(all)
}

func (e *Environment) manager() (program, error) {
	path, err := e.own(managerProgram)
	if err != nil {
		return program{}, err
	}
	address := e.Range.Management()
	return program{
		name: ManagerProcess, title: "Berth's controllers and webhooks", path: path,
		args: []string{
			"--kubeconfig=" + e.kubeconfigOf(ManagerProcess), "--providers=" + e.Provider,
			"--webhook-host=" + address, fmt.Sprintf("--webhook-port=%d", managerWebhookPort),
			"--webhook-cert-dir=" + e.pki().file(pairWebhooks),
			"--health-addr=" + hostPort(address, managerWebhookPort+100),
			"--diagnostics-address=" + hostPort(address, managerWebhookPort+200), "--insecure-diagnostics",
		},
		env:   []string{"POD_NAMESPACE=" + e.berthComponent().namespace},
		ready: answers("http://"+hostPort(address, managerWebhookPort+100)+"/readyz", nil),
	}, nil
}

// ManagerMetrics is the URL of berth-manager's metrics.
func (e *Environment) ManagerMetrics() string {
	return "http://" + hostPort(e.Range.Management(), managerWebhookPort+200) + "/metrics"
}

// VCenterServer is the address of the simulated vCenter as a VSphereCluster names it.
func (e *Environment) VCenterServer() string { return hostPort(e.Range.VCenter(), portVCenter) }

// VCenterAdmin is the URL of the simulated vCenter's side channel: faults, violations, counters, the whole world.
func (e *Environment) VCenterAdmin() string {
	return "http://" + hostPort(e.Range.VCenter(), portVCenterAdmin)
}

// The only account of the simulated vCenter, as the Secret of the examples names it.
const (
	vcenterUser     = "capv@vsphere.local"
	vcenterPassword = "berth-simulated" //nolint:gosec // of a simulator that listens on loopback only
)

func (e *Environment) vcenter() (program, error) {
	path, err := e.own(simulatorProgram)
	if err != nil {
		return program{}, err
	}
	return program{
		name: VCenterProcess, title: "simulated vCenter", path: path, irreplaceable: true,
		args: []string{
			"vcenter", "--listen=" + e.VCenterServer(), "--admin=" + hostPort(e.Range.VCenter(), portVCenterAdmin),
			"--state-dir=" + e.path("vcenter"), "--disks-dir=" + e.path("disks"),
			"--username=" + vcenterUser, "--password=" + vcenterPassword,
		},
		ready: answers(e.VCenterAdmin()+"/healthz", nil),
	}, nil
}

// ensureWorld starts the simulated vCenter, unless a world existed and is gone.
func (e *Environment) ensureWorld(ctx context.Context, p program, say func(string)) error {
	if lost, err := e.WorldLost(); err != nil || lost {
		return errors.Join(err, e.lost())
	}
	if err := e.ensure(ctx, p, say); err != nil {
		return err
	}
	if exists(e.worldPath()) {
		return nil
	}
	record, err := e.readProcess(p.name)
	if err != nil {
		return err
	}
	return writeJSON(e.worldPath(), worldRecord{VCenter: record.identity})
}

func (e *Environment) guests() (program, error) {
	path, err := e.own(simulatorProgram)
	if err != nil {
		return program{}, err
	}
	return program{
		name: GuestsProcess, title: "simulated guests, their endpoints and cloud provider", path: path,
		// Asked to end, it would cut its guests' power; killed, it leaves them running for its successor.
		abrupt: true,
		args: []string{
			"guests", "--vcenter=https://" + e.VCenterServer() + "/sdk", "--admin=" + e.VCenterAdmin(),
			"--username=" + vcenterUser, "--password=" + vcenterPassword, "--state-dir=" + e.Dir,
			"--health-addr=" + hostPort(e.Range.VCenter(), portGuests),
		},
		ready: answers("http://"+hostPort(e.Range.VCenter(), portGuests)+"/healthz", nil),
	}, nil
}

// Guests gives access to the file systems and consoles of the simulated guests.
func (e *Environment) Guests() (*guest.Files, error) { return guest.Open(e.Dir) }
