package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const etcdRetry = 300 * time.Millisecond

// etcdCluster is the etcd of the cluster that a control plane joins.
type etcdCluster struct {
	client *clientv3.Client
	limit  time.Duration // of each step, kubeadm's etcdAPICall
	say    func(string, ...any)
}

// dialEtcd finds the members through the etcd pods' annotations, as kubeadm does, and asks the first that answers for the rest:
// a mirror pod can outlive its member.
func dialEtcd(ctx context.Context, client kubernetes.Interface, p pki, limit time.Duration, say func(string, ...any)) (*etcdCluster, error) {
	var endpoints []string
	err := retry(ctx, limit, func(ctx context.Context) error {
		endpoints = nil
		pods, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "component=etcd,tier=control-plane"})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if u := pod.Annotations[annotationEtcdURLs]; u != "" {
				endpoints = append(endpoints, u)
			}
		}
		if len(endpoints) == 0 {
			return errors.New("no etcd pods with client URLs were found")
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("could not retrieve the list of etcd endpoints: %w", err)
	}
	certPEM, err := p.disk.read(path.Join(p.dir, "etcd/healthcheck-client.crt"))
	if err != nil {
		return nil, err
	}
	keyPEM, err := p.disk.read(path.Join(p.dir, "etcd/healthcheck-client.key"))
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	caPEM, err := p.disk.read(path.Join(p.dir, "etcd/ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(caPEM)
	c, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		TLS: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS12},
	})
	if err != nil {
		return nil, err
	}
	e := &etcdCluster{client: c, limit: limit, say: say}
	if err := retry(ctx, limit, c.Sync); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("error syncing endpoints with etcd: %w", err)
	}
	return e, nil
}

func (e *etcdCluster) close() { _ = e.client.Close() }

// healthy fails when any member does not answer: kubeadm adds no member to an ailing cluster.
func (e *etcdCluster) healthy(ctx context.Context) error {
	for _, endpoint := range e.client.Endpoints() {
		err := retry(ctx, e.limit, func(ctx context.Context) error {
			_, err := e.client.Status(ctx, endpoint)
			return err
		})
		if err != nil {
			return fmt.Errorf("etcd cluster is not healthy: member at %s: %w", endpoint, err)
		}
	}
	return nil
}

// addLearner announces the new member and returns the initial cluster for it. One that is there already, from an attempt cut
// short, is used.
func (e *etcdCluster) addLearner(ctx context.Context, name, peer string) (id uint64, initial []member, err error) {
	var members []memberInfo
	err = retry(ctx, e.limit, func(ctx context.Context) error {
		var err error
		if members, err = e.members(ctx); err != nil {
			return err
		}
		if slices.ContainsFunc(members, func(m memberInfo) bool { return m.peer == peer }) {
			return nil
		}
		if _, err := e.client.MemberAddAsLearner(ctx, []string{peer}); err != nil && !errors.Is(err, rpctypes.ErrPeerURLExist) {
			return err
		}
		members, err = e.members(ctx)
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("failed to add etcd member: %w", err)
	}
	for _, m := range members {
		switch {
		case m.peer == peer:
			id = m.id
			initial = append(initial, member{name, peer})
		case m.name == "":
			// Not started yet: any name does, and every node of the list must have one.
			initial = append(initial, member{strconv.FormatUint(m.id, 16), m.peer})
		default:
			initial = append(initial, member{m.name, m.peer})
		}
	}
	if id == 0 {
		return 0, nil, fmt.Errorf("etcd does not list the member with peer URL %s that was just added", peer)
	}
	return id, initial, nil
}

// awaitServing waits until the started learner serves clients. A member whose announcement reaches the leader before the leader's
// snapshot reaches the member never sees its own announcement applied, and only tries again after seven seconds; restarting it,
// harmless while it has no vote, makes it announce itself at once. Not serving in the end is no error: promotion tells.
func (e *etcdCluster) awaitServing(ctx context.Context, id uint64, endpoint string, restart func()) error {
	err := retry(ctx, e.limit, func(ctx context.Context) error {
		members, err := e.members(ctx)
		if err != nil {
			return err
		}
		for _, m := range members {
			if m.id == id && m.name != "" {
				return nil
			}
		}
		return fmt.Errorf("the etcd member %x is not started", id)
	})
	if err != nil {
		return err
	}
	serving := func(limit time.Duration) bool {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		_, err := e.client.Status(ctx, endpoint)
		return err == nil
	}
	if !serving(time.Second) {
		restart()
		serving(5 * time.Second)
	}
	return nil
}

// promote makes the started learner a voting member.
func (e *etcdCluster) promote(ctx context.Context, id uint64) error {
	return retry(ctx, e.limit, func(ctx context.Context) error {
		members, err := e.members(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(members, func(m memberInfo) bool { return m.id == id })
		switch {
		case i < 0:
			return fmt.Errorf("the etcd member %x is gone", id)
		case !members[i].learner:
			return nil
		case members[i].name == "":
			return fmt.Errorf("the etcd member %x is not started", id)
		}
		_, err = e.client.MemberPromote(ctx, id)
		// Compared as values: the text of "not in sync" contains that of "not a learner".
		if errors.Is(err, rpctypes.ErrMemberNotLearner) {
			return nil
		}
		return err
	})
}

type memberInfo struct {
	id         uint64
	name, peer string
	learner    bool
}

func (e *etcdCluster) members(ctx context.Context) ([]memberInfo, error) {
	resp, err := e.client.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]memberInfo, 0, len(resp.Members))
	for _, m := range resp.Members {
		info := memberInfo{id: m.ID, name: m.Name, learner: m.IsLearner}
		if len(m.PeerURLs) > 0 {
			info.peer = m.PeerURLs[0]
		}
		all = append(all, info)
	}
	return all, nil
}

// retry calls f until it succeeds or the limit has passed; each call gets a few seconds.
func retry(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		call, done := context.WithTimeout(ctx, 5*time.Second)
		err := f(call)
		done()
		if err == nil {
			return nil
		}
		if !pause(ctx, etcdRetry) {
			return err
		}
	}
}

// readyStatic waits for a static pod to become ready.
func readyStatic(ctx context.Context, k *kubelet, name string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		w := k.static.named(name)
		if w != nil && w.snapshot().ready {
			return nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			st := podState{}
			if w != nil {
				st = w.snapshot()
			}
			return fmt.Errorf("%s is not healthy after %v (%d restarts; last exit: %s)", name, limit, st.restarts, orElse(st.lastExit, "none"))
		}
	}
}
