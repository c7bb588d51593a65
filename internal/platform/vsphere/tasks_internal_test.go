package vsphere

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// VS-V1: a single host is no vCenter, and the sentence says what it is.
func TestSingleHostIsRefused(t *testing.T) {
	model := simulator.ESX()
	t.Cleanup(model.Remove)
	if err := model.Create(); err != nil {
		t.Fatal(err)
	}
	model.Service.TLS = new(tls.Config)
	server := model.Service.NewServer()
	t.Cleanup(server.Close)
	password, _ := server.URL.User.Password()
	s, err := Dial(t.Context(), Config{Server: server.URL.Host, Username: server.URL.User.Username(), Password: password})
	if err == nil {
		_ = s.Close(context.Background())
	}
	isRefused(t, err, ReasonUnreachable, server.URL.Host, "not a vCenter", "HostAgent")
}

// VS-V32, VS-V4: only "no such task" forgets a task. Any other answer to the question after it is no end.
func TestOnlyAMissingTaskIsForgotten(t *testing.T) {
	l := newLab(t)
	inject := func(faults ...vcenter.Fault) {
		t.Helper()
		if err := l.sim.Admin().Inject(t.Context(), faults...); err != nil {
			t.Fatal(err)
		}
	}
	inject(vcenter.Fault{Method: "CloneVM_Task", Kind: vcenter.FaultTaskHang, Delay: 2 * time.Second})
	op, err := l.Create(t.Context(), aSpec())
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []vcenter.FaultKind{vcenter.FaultBefore, vcenter.FaultCut} {
		inject(vcenter.Fault{Method: "RetrieveProperties", Kind: kind})
		if ok, err := l.readTask(t.Context(), op); ok || err == nil {
			t.Errorf("%s: a task that cannot be read is there %t, error %v", kind, ok, err)
		}
		l.observer.mu.Lock()
		_, known := l.observer.tasks[op.Ref]
		l.observer.mu.Unlock()
		if !known {
			t.Fatalf("%s: the task was forgotten", kind)
		}
	}
	if ok, err := l.readTask(t.Context(), op); !ok || err != nil {
		t.Errorf("the task is there %t, %v", ok, err)
	}
	if ok, err := l.readTask(t.Context(), machine.Operation{Ref: "task-gone", Kind: machine.OpFit}); ok || err != nil {
		t.Errorf("a task that vCenter has forgotten is there %t, %v", ok, err)
	}
	state, err := l.Operation(t.Context(), machine.Operation{Ref: "task-gone-too", Kind: machine.OpFit})
	if err != nil || !state.Done || !state.Unknown {
		t.Errorf("a task that vCenter has forgotten: %+v, %v", state, err)
	}
}

// VS-B21: a worker waits for a task of the adapter's own, and for its turn at a VM group, no longer than for one call.
func TestNobodyWaitsLong(t *testing.T) {
	l := newLab(t)
	cfg := l.client.cfg
	cfg.CallTimeout = 3 * time.Second
	s, err := Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	busyWith := func(err error, words string) {
		t.Helper()
		if !machine.Is(err, machine.Busy) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want Busy and %q", err, words)
		}
	}

	if err := l.sim.Admin().Inject(ctx, vcenter.Fault{Method: "CloneVM_Task", Kind: vcenter.FaultTaskHang, Delay: 30 * time.Second}); err != nil {
		t.Fatal(err)
	}
	op, err := s.Create(ctx, aSpec())
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.await(ctx, types.ManagedObjectReference{Type: "Task", Value: op.Ref}, "EditGroup", "changing VM group vms-1")
	busyWith(err, "changing VM group vms-1")

	cluster, err := l.admin.ClusterComputeResource(ctx, "cl-a")
	if err != nil {
		t.Fatal(err)
	}
	s.groups.of(cluster.Reference(), "vms-1").turn <- struct{}{}
	busyWith(s.joinVMGroup(ctx, vm{}, Shape{Datacenter: "dc-a", ComputeCluster: "cl-a", VMGroup: "vms-1"}), "VM group vms-1")
}

// VS-V36, VS-P3, pain 70: no more clones run at a time than allowed, and who waits for its turn is woken.
func TestClonesAreLimited(t *testing.T) {
	l := newLab(t)
	l.client.cfg.Clones = 1
	if err := l.sim.Admin().Inject(t.Context(), vcenter.Fault{Method: "CloneVM_Task", Kind: vcenter.FaultTaskHang, Delay: time.Second}); err != nil {
		t.Fatal(err)
	}
	first, second := aSpec(), aSpec()
	second.Name, second.Mark = "demo-2", "0c6a5f7e-52d1-4f0e-8a41-00000000000b"
	if _, err := l.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	_, err := l.Create(t.Context(), second)
	e, ok := err.(*machine.Error) //nolint:errorlint // the adapter answers with it itself
	if !ok || e.Kind != machine.Busy || e.Reason != ReasonTooManyTasks {
		t.Fatalf("a clone beyond the limit: %v", err)
	}
	late := time.After(time.Minute)
	for {
		select {
		case mark := <-l.Changes():
			if mark != second.Mark {
				continue
			}
		case <-late:
			t.Fatal("nobody woke the machine that waits for its turn")
		}
		if _, err = l.Create(t.Context(), second); err == nil {
			return
		}
		if !machine.Is(err, machine.Busy) {
			t.Fatal(err)
		}
	}
}

// VS-V35: what cannot succeed at vCenter is refused with its reason, so that it is tried ever more rarely; vCenter's words are kept
// (VS-V30, pain 72, pain 57).
func TestPlacementFaults(t *testing.T) {
	l := newLab(t)
	for fault, reason := range map[string]string{
		"NoDiskSpace": ReasonDatastoreFull, "InsufficientResourcesFault": ReasonTask, "InsufficientMemoryResourcesFault": ReasonTask,
		"NoPermission": ReasonNoPermission,
	} {
		if err := l.sim.Admin().Inject(t.Context(), vcenter.Fault{Method: "CloneVM_Task", Kind: vcenter.FaultTask, Type: fault, Message: "words of vCenter"}); err != nil {
			t.Fatal(err)
		}
		op, err := l.Create(t.Context(), aSpec())
		if err != nil {
			t.Fatal(err)
		}
		late := time.After(time.Minute)
		state, err := l.Operation(t.Context(), op)
		for err == nil && !state.Done {
			select {
			case <-l.Changes():
			case <-late:
				t.Fatalf("%s: nobody woke us", fault)
			}
			state, err = l.Operation(t.Context(), op)
		}
		if err != nil {
			t.Fatal(err)
		}
		isRefused(t, state.Err, reason, "cloning", fault)
	}
}
