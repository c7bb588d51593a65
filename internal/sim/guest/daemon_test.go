package guest_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/berth-dev/berth/internal/sim/guest"
	"github.com/berth-dev/berth/internal/sim/node"
)

// daemonOptions makes the test binary a daemon, which can be killed without killing the test.
const daemonOptions = "BERTH_TEST_GUESTS_DAEMON"

func TestMain(m *testing.M) {
	text := os.Getenv(daemonOptions)
	if text == "" {
		SetDefaultEventuallyTimeout(30 * time.Second)
		os.Exit(m.Run())
	}
	var o guest.Options
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	if err := guest.Run(context.Background(), o); !errors.Is(err, context.Canceled) {
		panic(err)
	}
}

// daemonProcess runs the guests in a process of its own.
func (w *world) daemonProcess() *os.Process {
	w.t.Helper()
	o := w.options
	o.DieWithParent = false
	text, err := json.Marshal(o)
	w.must(err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), daemonOptions+"="+string(text))
	w.must(cmd.Start())
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		w.must(node.KillRecorded(filepath.Join(w.options.StateDir, "guests")))
	})
	return cmd.Process
}

// A killed daemon leaves a control plane's processes running; its successor takes them over, and ends those of guests that
// were switched off meanwhile.
func TestAKilledDaemonIsReplaced(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, withBinaries(t))
	w.stop()
	first := w.daemonProcess()
	cp := w.clone("vm-cp")
	cp.boot("demo-cp", address(14), initData(address(13)+":6443"))
	cp.reachesWithin(guest.PhaseRunning, time.Minute)
	client := w.cluster("demo-cp")
	pids := w.records("vm-cp")
	g.Expect(pids).NotTo(BeEmpty())

	g.Expect(first.Kill()).To(Succeed())
	w.daemonProcess()
	g.Eventually(nodes(w.ctx, client)).WithTimeout(30 * time.Second).Should(HaveKeyWithValue("demo-cp", HaveSuffix(" ready")))
	g.Expect(cp.console()).To(ContainSubstring("goes on after a restart of the simulator"))
	g.Expect(w.records("vm-cp")).To(Equal(pids), "the processes were started again")

	cp.powerOff()
	cp.reaches(guest.PhaseOff)
	g.Expect(w.records("vm-cp")).To(BeEmpty())
}

// records are the contents of a guest's process records.
func (w *world) records(vm string) map[string]string {
	w.t.Helper()
	found := map[string]string{}
	root := filepath.Join(w.options.StateDir, "guests", vm, "runtime")
	w.must(filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) == ".log" {
			return err
		}
		data, err := os.ReadFile(path)
		found[filepath.Base(path)] = string(data)
		return err
	}))
	return found
}
