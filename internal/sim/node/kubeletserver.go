package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/cri-streaming/pkg/streaming/portforward"

	"github.com/berth-dev/berth/internal/sim/node/process"
)

// kubeletServer is port 10250 of the node.
type kubeletServer struct {
	k      *kubelet
	http   *http.Server
	ctx    context.Context
	cancel context.CancelFunc
}

// serve opens the port. The serving certificate is the one the configuration names or, as kubeadm leaves it, self-signed.
// Clients must show a certificate of the cluster's CA.
func (k *kubelet) serve() (*kubeletServer, error) {
	if len(k.c.Addresses) == 0 {
		return nil, errors.New("failed to run Kubelet: the guest has no address")
	}
	serving, err := k.servingCertificate()
	if err != nil {
		return nil, fmt.Errorf("failed to initialize TLS: %w", err)
	}
	caFile := orElse(k.conf.Authentication.X509.ClientCAFile, "/etc/kubernetes/pki/ca.crt")
	caPEM, err := k.disk.read(caFile)
	if err != nil {
		return nil, fmt.Errorf("unable to load client CA file %s: %w", caFile, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(caPEM) {
		return nil, fmt.Errorf("unable to load client CA file %s: no certificate in it", caFile)
	}
	address := net.JoinHostPort(k.c.Addresses[0].String(), strconv.Itoa(k.conf.Port))
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("failed to listen and serve: %w", err)
	}
	s := &kubeletServer{k: k}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /pods", s.listPods)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.containerLogs)
	mux.HandleFunc("/portForward/{namespace}/{pod}", s.portForward)
	mux.HandleFunc("/portForward/{namespace}/{pod}/{uid}", s.portForward)
	for _, p := range []string{"/exec/", "/attach/", "/run/"} {
		mux.HandleFunc(p, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "containers of a simulated node run no commands", http.StatusNotImplemented)
		})
	}
	s.http = &http.Server{
		Handler:           s.authorized(mux),
		ReadHeaderTimeout: 30 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return s.ctx },
		ErrorLog:          log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{serving}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12,
			NextProtos: []string{"http/1.1"}, // port forwarding upgrades the connection
		},
	}
	go func() { _ = s.http.ServeTLS(listener, "", "") }()
	return s, nil
}

func (s *kubeletServer) close() {
	s.cancel()
	_ = s.http.Close()
}

func (k *kubelet) servingCertificate() (tls.Certificate, error) {
	certFile, keyFile := k.conf.TLSCertFile, k.conf.TLSPrivateKeyFile
	if certFile == "" || keyFile == "" {
		certFile, keyFile = kubeletServingCert, kubeletServingKey
		if !k.disk.exists(certFile) || !k.disk.exists(keyFile) {
			ips := make([]net.IP, len(k.c.Addresses))
			for i, a := range k.c.Addresses {
				ips[i] = a.AsSlice()
			}
			certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(k.name, ips, nil)
			if err != nil {
				return tls.Certificate{}, err
			}
			if err := errors.Join(k.disk.write(certFile, certPEM, 0o644), k.disk.write(keyFile, keyPEM, 0o600)); err != nil {
				return tls.Certificate{}, err
			}
		}
	}
	certPEM, err := k.disk.read(certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	keyPEM, err := k.disk.read(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certPEM, keyPEM)
}

// authorized lets in whom the kubeadm setup lets in: the API server's kubelet client and administrators.
func (s *kubeletServer) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		who := r.TLS.PeerCertificates[0].Subject
		if who.CommonName != "kube-apiserver-kubelet-client" && !slices.Contains(who.Organization, groupMasters) &&
			!slices.Contains(who.Organization, groupClusterAdmins) {
			http.Error(w, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource=proxy)", who.CommonName, strings.ToLower(r.Method)), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *kubeletServer) portForward(w http.ResponseWriter, r *http.Request) {
	opts, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, forwarder{s}, r.PathValue("pod"), r.PathValue("uid"), opts, 4*time.Hour, 30*time.Second, portforward.SupportedProtocols)
}

// forwarder connects a forwarded port with the pod's: pods on the host's network listen on the guest's address.
type forwarder struct{ s *kubeletServer }

// PortForward implements portforward.PortForwarder.
func (f forwarder) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.s.ctx, cancel)()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(f.s.k.c.Addresses[0].String(), strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("failed to connect to port %d of the pod: %w", port, err)
	}
	defer func() { _ = conn.Close() }()
	done := make(chan struct{}, 2)
	go func() {
		_, _ = io.Copy(conn, stream)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
		done <- struct{}{}
	}()
	go func() {
		_, _ = io.Copy(stream, conn)
		done <- struct{}{}
		cancel()
	}()
	<-ctx.Done()
	return nil
}

func (s *kubeletServer) listPods(w http.ResponseWriter, _ *http.Request) {
	list := corev1.PodList{}
	list.APIVersion, list.Kind = "v1", "PodList"
	if a := s.k.agent(); a != nil {
		for _, obj := range a.pods.List() {
			list.Items = append(list.Items, *obj.(*corev1.Pod))
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

// containerLogs shows the log of a process behind a static pod. Other containers have none.
func (s *kubeletServer) containerLogs(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimSuffix(r.PathValue("pod"), "-"+s.k.name)
	worker := s.k.static.named(name)
	if worker == nil {
		_, _ = io.WriteString(w, "(a simulated container: it runs nothing and logs nothing)\n")
		return
	}
	f, err := os.Open(process.LogPath(s.k.c.RunDir, name))
	if err != nil {
		_, _ = io.WriteString(w, "(no log)\n")
		return
	}
	defer func() { _ = f.Close() }()
	if tail, err := strconv.Atoi(r.URL.Query().Get("tailLines")); err == nil {
		seekToLastLines(f, tail)
	}
	_, _ = io.Copy(w, f)
	if follow, _ := strconv.ParseBool(r.URL.Query().Get("follow")); !follow {
		return
	}
	flush := http.NewResponseController(w)
	for pause(r.Context(), 500*time.Millisecond) {
		if n, err := io.Copy(w, f); err != nil {
			return
		} else if n > 0 {
			_ = flush.Flush()
		}
	}
}

// seekToLastLines moves to the start of the last n lines, looking back at most 1 MiB.
func seekToLastLines(f *os.File, n int) {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return
	}
	start := max(end-1<<20, 0)
	buf := make([]byte, end-start)
	if _, err := f.ReadAt(buf, start); err != nil && !errors.Is(err, io.EOF) {
		return
	}
	at := len(buf)
	for lines := 0; at > 0; at-- {
		if buf[at-1] == '\n' && at != len(buf) {
			if lines++; lines >= n {
				break
			}
		}
	}
	if n <= 0 {
		at = len(buf)
	}
	_, _ = f.Seek(start+int64(at), io.SeekStart)
}
