package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
)

func sized(slots, disks int) *v1beta1.VSphereMachineConfigPool {
	pool := &v1beta1.VSphereMachineConfigPool{}
	for i := range slots {
		config := v1beta1.VSphereMachineConfig{Hostname: fmt.Sprintf("worker-%04d", i)}
		for d := range disks {
			config.PersistentDisks = append(config.PersistentDisks, v1beta1.PersistentDisk{Name: fmt.Sprintf("data-%d", d), SizeGiB: 10})
		}
		pool.Spec.Configs = append(pool.Spec.Configs, config)
	}
	return pool
}

// A pool that would outgrow one object is refused with both sizes and the number of slots that fit; so many are accepted, and a pool
// that is too large already may become smaller.
func TestPoolThatOutgrowsAnObject(t *testing.T) {
	if v := poolSize(nil, sized(300, 2)); v.Refused() {
		t.Errorf("300 slots with two disks each: %v", v.Errors)
	}
	usual := sized(300, 0)
	for i := range usual.Spec.Configs {
		c := &usual.Spec.Configs[i]
		c.Network = &v1beta1.MachineConfigNetwork{Primary: v1beta1.MachineConfigNetworkDevice{NetworkName: "pg-node", IP: "127.100.10.100/16", Gateway: "127.100.1.1"}}
		c.PersistentDisks = []v1beta1.PersistentDisk{{Name: "var-cpaas", SizeGiB: 10, MountPath: "/var/cpaas", FSFormat: "ext4"}, {Name: "app-data", SizeGiB: 5}}
		c.EphemeralDisks = []v1beta1.EphemeralDisk{
			{Name: "var-lib-kubelet", SizeGiB: 5, MountPath: "/var/lib/kubelet", FSFormat: "ext4"},
			{Name: "var-lib-containerd", SizeGiB: 10, MountPath: "/var/lib/containerd", FSFormat: "ext4"},
		}
	}
	if v := poolSize(nil, usual); v.Refused() {
		t.Errorf("300 slots with two disks of each kind: %v", v.Errors)
	}
	v := poolSize(nil, sized(2000, 2))
	if !v.Refused() {
		t.Fatal("2000 slots with two disks each are accepted")
	}
	text := v.Errors[0].Error()
	var most int
	_, rest, _ := strings.Cut(text, "at most ")
	if _, err := fmt.Sscanf(rest, "%d slots", &most); err != nil || !strings.HasPrefix(text, "spec.configs: ") ||
		!strings.Contains(text, "2000 slots") || !strings.Contains(text, fmt.Sprintf("%d KiB", MaxPoolBytes>>10)) || !strings.Contains(text, "second one") {
		t.Fatalf("%v: %s", err, text)
	}
	if v := poolSize(nil, sized(most, 2)); v.Refused() {
		t.Errorf("%d were said to fit: %v", most, v.Errors)
	}
	if v := poolSize(sized(2000, 2), sized(1900, 2)); v.Refused() {
		t.Errorf("made smaller: %v", v.Errors)
	}
	if v := poolSize(sized(2000, 2), sized(2001, 2)); !v.Refused() {
		t.Error("made larger still")
	}
	if v := VSphereMachineConfigPool(nil, sized(2000, 2), VSpherePoolWorld{}); !strings.Contains(v.Errors.ToAggregate().Error(), "an object holds") {
		t.Error("the rule is not asked")
	}
}
