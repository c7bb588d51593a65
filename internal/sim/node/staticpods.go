package node

import (
	"context"
	"crypto/md5" //nolint:gosec // the kubelet's pod hash, not a secret
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/internal/sim/node/process"
)

const (
	firstBackOff = 10 * time.Second
	maxBackOff   = 5 * time.Minute
	// A container that ran this long starts its back-off anew.
	backOffReset = 10 * time.Minute
)

// staticPods runs the manifests of /etc/kubernetes/manifests.
type staticPods struct {
	c    Config
	disk guestDisk
	say  func(string, ...any)

	mu       sync.Mutex
	workers  map[string]*podWorker
	listener func(name string)
}

// listen has f called, without locks held, when the state of a pod changes.
func (s *staticPods) listen(f func(name string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener = f
}

func (s *staticPods) changed(name string) {
	s.mu.Lock()
	f := s.listener
	s.mu.Unlock()
	if f != nil {
		f(name)
	}
}

// podWorker keeps one static pod running.
type podWorker struct {
	pod    *corev1.Pod
	hash   string
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	proc  *process.Process
	state podState
	// bounced: the running process is being replaced on purpose; it did not die.
	bounced bool
}

// podState is what the mirror pod's status shows.
type podState struct {
	running  bool
	ready    bool
	started  time.Time
	restarts int32
	lastExit string
	ended    time.Time
}

// sync reads the manifest directory and starts, replaces and stops pods accordingly.
func (s *staticPods) sync(ctx context.Context) error {
	names, err := s.disk.list(manifestsDir)
	if err != nil {
		return err
	}
	wanted := map[string]*corev1.Pod{}
	hashes := map[string]string{}
	for _, file := range names {
		if strings.HasPrefix(file, ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(file)) {
			continue
		}
		data, err := s.disk.read(path.Join(manifestsDir, file))
		if err != nil {
			return err
		}
		pod := &corev1.Pod{}
		if err := yaml.Unmarshal(data, pod); err != nil || pod.Name == "" || len(pod.Spec.Containers) == 0 {
			s.say("kubelet: could not process manifest file %s: not a pod", file)
			continue
		}
		if pod.Namespace == "" {
			pod.Namespace = metav1.NamespaceDefault
		}
		sum := md5.Sum(data) //nolint:gosec // as above
		wanted[pod.Name], hashes[pod.Name] = pod, hex.EncodeToString(sum[:])
	}
	s.mu.Lock()
	var old []*podWorker
	for name, w := range s.workers {
		if wanted[name] == nil || hashes[name] != w.hash {
			old = append(old, w)
			delete(s.workers, name)
		}
	}
	s.mu.Unlock()
	for _, w := range old {
		w.stop(30 * time.Second)
		s.changed(w.pod.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, pod := range wanted {
		if s.workers[name] == nil {
			wctx, cancel := context.WithCancel(ctx)
			w := &podWorker{pod: pod, hash: hashes[name], cancel: cancel, done: make(chan struct{})}
			s.workers[name] = w
			go s.run(wctx, w)
		}
	}
	return nil
}

// run keeps one pod's process alive: a container that ends is started again, at once the first time, then with the
// kubelet's growing pause.
func (s *staticPods) run(ctx context.Context, w *podWorker) {
	defer close(w.done)
	l, isProcess, err := adapt(s.c, w.pod)
	if err != nil {
		s.say("kubelet: starting %s: %v", w.pod.Name, err)
		return
	}
	if l.note != "" {
		s.say("kubelet: static pod %s: %s", w.pod.Name, l.note)
	}
	if !isProcess {
		s.update(w, func(st *podState) { st.running, st.ready, st.started = true, true, time.Now() })
		if l.inProcess != nil {
			l.inProcess(ctx)
		}
		return
	}
	pause := time.Duration(0)
	for first := true; ; first = false {
		if !s.await(ctx, l.needs) {
			return
		}
		p, adopted, err := process.Adopt(l.Spec)
		if err == nil && !adopted {
			p, err = process.Start(l.Spec)
		}
		if err != nil {
			s.say("kubelet: starting %s: %v", w.pod.Name, err)
			s.update(w, func(st *podState) { st.lastExit, st.ended = err.Error(), time.Now() })
		} else {
			began := time.Now()
			s.update(w, func(st *podState) {
				w.proc = p
				st.running, st.started = true, began
				if !first {
					st.restarts++
				}
			})
			s.watch(ctx, w, p, l.ready)
			if ctx.Err() != nil {
				return
			}
			if time.Since(began) > backOffReset {
				pause = 0
			}
			bounced := false
			s.update(w, func(st *podState) {
				bounced, w.bounced, w.proc = w.bounced, false, nil
				st.running, st.ready = false, false
				if bounced {
					st.restarts--
					return
				}
				st.lastExit, st.ended = p.Exit(), time.Now()
			})
			if bounced {
				continue
			}
			s.say("kubelet: container %s died: %s", w.pod.Name, p.Exit())
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(max(2*pause, firstBackOff), maxBackOff)
	}
}

// watch returns when the process or the context ends; meanwhile it keeps the readiness current.
func (s *staticPods) watch(ctx context.Context, w *podWorker, p *process.Process, ready func(context.Context) bool) {
	if ready == nil {
		s.update(w, func(st *podState) { st.ready = true })
		select {
		case <-ctx.Done():
		case <-p.Done():
		}
		return
	}
	const soon, settled = 200 * time.Millisecond, 3 * time.Second
	failures, isReady := 0, false
	t := time.NewTimer(soon)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.Done():
			return
		case <-t.C:
		}
		ok := ready(ctx)
		next := soon
		switch {
		case ok:
			failures, next = 0, settled
			if !isReady {
				isReady = true
				s.update(w, func(st *podState) { st.ready = true })
			}
		case isReady:
			if failures++; failures >= 3 {
				isReady = false
				s.update(w, func(st *podState) { st.ready = false })
			}
		case time.Since(w.snapshot().started) > time.Minute:
			next = settled
		}
		t.Reset(next)
	}
}

// await waits for a condition; the wait is what a crash loop would come to.
func (s *staticPods) await(ctx context.Context, condition func(context.Context) bool) bool {
	for condition != nil && !condition(ctx) {
		if !pause(ctx, 100*time.Millisecond) {
			return false
		}
	}
	return ctx.Err() == nil
}

// bounce replaces a container's process at once, as if it had taken longer to start.
func (s *staticPods) bounce(name string) {
	w := s.named(name)
	if w == nil {
		return
	}
	w.mu.Lock()
	p := w.proc
	w.bounced = p != nil
	w.mu.Unlock()
	if p != nil {
		p.Kill()
	}
}

func (s *staticPods) update(w *podWorker, change func(*podState)) {
	w.mu.Lock()
	change(&w.state)
	w.mu.Unlock()
	s.changed(w.pod.Name)
}

func (w *podWorker) snapshot() podState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// stop ends the worker and its process.
func (w *podWorker) stop(grace time.Duration) {
	if p := w.leave(); p != nil {
		if grace <= 0 {
			p.Kill()
		} else {
			p.Stop(grace)
		}
	}
}

// leave ends the worker and hands over its process, nil if none runs.
func (w *podWorker) leave() *process.Process {
	w.cancel()
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.proc
	w.proc = nil
	return p
}

func (s *staticPods) list() []*podWorker {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*podWorker, 0, len(s.workers))
	for _, w := range s.workers {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b *podWorker) int { return strings.Compare(a.pod.Name, b.pod.Name) })
	return all
}

func (s *staticPods) named(name string) *podWorker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.workers[name]
}

// shutdown ends all pods. With a grace it goes the only order that works: a kube-apiserver that loses its etcd first hangs
// for many seconds before it ends.
func (s *staticPods) shutdown(ctx context.Context, graceful bool) {
	workers := s.list()
	if !graceful {
		var all sync.WaitGroup
		for _, w := range workers {
			all.Go(func() { w.stop(0) })
		}
		all.Wait()
		return
	}
	order := []string{apiServerName, controllerName, etcdName}
	slices.SortStableFunc(workers, func(a, b *podWorker) int {
		return slices.Index(order, a.pod.Name) - slices.Index(order, b.pod.Name)
	})
	for _, w := range workers {
		grace := 10 * time.Second
		if deadline, ok := ctx.Deadline(); ok {
			grace = max(min(grace, time.Until(deadline)), 0)
		}
		w.stop(grace)
	}
}

// release lets go of all pods without ending their processes.
func (s *staticPods) release() {
	for _, w := range s.list() {
		_ = w.leave()
	}
}

// mirror is the API object that stands for a static pod.
func (w *podWorker) mirror(node *corev1.Node) *corev1.Pod {
	controller := true
	m := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: w.pod.Name + "-" + node.Name, Namespace: w.pod.Namespace,
		Labels: w.pod.Labels, Annotations: map[string]string{},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &controller}},
	}}
	for k, v := range w.pod.Annotations {
		m.Annotations[k] = v
	}
	m.Annotations["kubernetes.io/config.hash"] = w.hash
	m.Annotations["kubernetes.io/config.mirror"] = w.hash
	m.Annotations["kubernetes.io/config.source"] = "file"
	m.Spec = *w.pod.Spec.DeepCopy()
	m.Spec.NodeName = node.Name
	if len(m.Spec.Tolerations) == 0 {
		m.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
	}
	return m
}

// containerStatus is the status of the pod's first container for the state it is in.
func (st podState) containerStatus(ctr corev1.Container, podUID types.UID) corev1.ContainerStatus {
	started := st.running
	cs := corev1.ContainerStatus{
		Name: ctr.Name, Image: ctr.Image, ImageID: ctr.Image, Ready: st.ready, RestartCount: st.restarts, Started: &started,
		ContainerID: fmt.Sprintf("simulated://%s/%s/%d", podUID, ctr.Name, st.restarts),
	}
	switch {
	case st.running:
		cs.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(st.started)}
	case st.lastExit != "":
		cs.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: st.lastExit}
	default:
		cs.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	}
	if st.lastExit != "" {
		cs.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: st.lastExit, FinishedAt: metav1.NewTime(st.ended)}
	}
	return cs
}
