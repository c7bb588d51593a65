package chaos

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// gate is what stands between one manager and the API server: its writes are counted and broken, what it watches comes late, and
// when it is dead nothing passes any more.
type gate struct {
	w    *world
	life *life
	next http.RoundTripper
}

var (
	errDead  = errors.New("the manager is dead")
	errLost  = errors.New("the answer was lost")
	resource = regexp.MustCompile(`^/apis/([^/]+)/([^/]+)/namespaces/([^/]+)/([^/]+)(?:/([^/]+))?(/status)?$`)
)

func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if g.life.dead.Load() {
		return nil, errDead
	}
	if r.Method == http.MethodGet {
		response, err := g.next.RoundTrip(r)
		if late := g.w.late(); err == nil && late > 0 && r.URL.Query().Get("watch") != "" {
			response.Body = &lateBody{ReadCloser: response.Body, late: late}
		}
		return response, err
	}
	m := resource.FindStringSubmatch(r.URL.Path)
	if m == nil || strings.Contains(r.URL.Path, "events.k8s.io") {
		return g.next.RoundTrip(r)
	}
	e, p := g.w.write(r.Method + " " + m[4] + m[6])
	hit := p != nil && p.what == e.what && p.n == e.n
	if hit {
		switch p.kind {
		case killBefore:
			g.w.strike()
			g.w.die(g.life)
			return nil, errDead
		case fails:
			g.w.strike()
			return refusal(r), nil
		case contested:
			g.w.strike()
			g.w.touch(m)
		}
	}
	response, err := g.next.RoundTrip(r)
	if hit && err == nil {
		switch p.kind {
		case killAfter, staleKill:
			g.w.strike()
			g.w.die(g.life)
		case dropped:
			g.w.strike()
			response.Body.Close()
			return nil, errLost
		}
	}
	if g.life.dead.Load() {
		if err == nil {
			response.Body.Close()
		}
		return nil, errDead
	}
	return response, err
}

// refusal is an API server in trouble.
func refusal(r *http.Request) *http.Response {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","message":"injected","code":500}`
	return &http.Response{
		Status: "500 Internal Server Error", StatusCode: http.StatusInternalServerError, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": []string{"application/json"}}, Body: io.NopCloser(bytes.NewReader([]byte(status))), Request: r,
	}
}

// touch changes an object as anybody might, so that a write based on its former version meets a conflict.
func (w *world) touch(m []string) {
	if m[5] == "" {
		return
	}
	kinds := map[string]string{
		"vspheremachines": "VSphereMachine", "vspherevms": "VSphereVM", "vspheremachineconfigpools": "VSphereMachineConfigPool",
		"vsphereclusters": "VSphereCluster", "machines": "Machine", "clusters": "Cluster",
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: m[1], Version: m[2], Kind: kinds[m[4]]})
	obj.SetNamespace(m[3])
	obj.SetName(m[5])
	_ = k8s.Patch(ctx, obj, client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"chaos/contested":"`+metav1.Now().Format(time.RFC3339Nano)+`"}}}`)))
}

// lateBody is a watch whose events arrive late.
type lateBody struct {
	io.ReadCloser
	late time.Duration
}

func (b *lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	<-time.After(b.late)
	return n, err
}
