package hcs

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"iter"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The services, as the first element of a path or the first label of a host.
const (
	serviceIAM = "iam"
	serviceECS = "ecs"
	serviceEVS = "evs"
	serviceVPC = "vpc"
	serviceELB = "elb"
	serviceIMS = "ims"
)

// maxBody of a request.
const maxBody = 4 << 20

// request is one authenticated request, its body decoded on demand.
type request struct {
	*http.Request
	body []byte
}

// decode reads the body. Unknown fields are ignored, as the platform does.
func (r *request) decode(into any) *refusal {
	if err := json.Unmarshal(r.body, into); err != nil {
		return refuse(http.StatusBadRequest, "Ecs.0001", "the request body is not valid: %v", err)
	}
	return nil
}

// handler of one operation. It runs with the world locked and answers with a status and a body, or refuses.
type handler func(r *request) (status int, value any, refused *refusal)

// routes of all services. The names of the operations are what faults and counters go by.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	on := func(pattern, operation string, h handler) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" "+path, func(w http.ResponseWriter, r *http.Request) { s.operate(w, r, operation, h) })
	}
	c := s.cloud
	c.computeRoutes(on)
	c.volumeRoutes(on)
	c.networkRoutes(on)
	c.balancerRoutes(on)
	on("GET /iam/v3/projects", "ListProjects", func(r *request) (int, any, *refusal) {
		return http.StatusOK, map[string]any{"projects": []any{map[string]any{"id": s.opts.ProjectID, "name": s.opts.Region, "enabled": true}}}, nil
	})
	return mux
}

// front names the service where the host does, and keeps unsigned requests out.
func (s *Server) front(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pause(r.Context(), s.opts.RoundTrip)
		requestID := newID()
		w.Header().Set("X-Request-Id", requestID)
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			refuse(http.StatusRequestEntityTooLarge, "APIGW.0201", "the request is too large").write(w, requestID)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if refused := s.authenticate(r, body); refused != nil {
			s.counters.count("unauthenticated")
			refused.write(w, requestID)
			return
		}
		label, _, _ := strings.Cut(r.Host, ".")
		switch label {
		case serviceECS, serviceEVS, serviceVPC, serviceELB, serviceIMS:
			r.URL.Path = "/" + label + r.URL.Path
		case "iam-apigateway-proxy":
			r.URL.Path = "/" + serviceIAM + r.URL.Path
		}
		r.URL.Path = strings.Replace(r.URL.Path, "/cloudservers/os-server-groups", "/os-server-groups", 1)
		// Load balancers are served by the network service's host.
		if rest, ok := strings.CutPrefix(r.URL.Path, "/vpc/v2.0/lbaas"); ok {
			r.URL.Path = "/elb/v2.0/lbaas" + rest
		} else if strings.HasPrefix(r.URL.Path, "/vpc/v3/") && strings.Contains(r.URL.Path, "/elb/") {
			r.URL.Path = "/elb" + strings.TrimPrefix(r.URL.Path, "/vpc")
		}
		r.URL.RawPath = ""
		mux.ServeHTTP(w, r)
	})
}

// operate runs one operation under the world's lock, with the faults that are asked for around it.
func (s *Server) operate(w http.ResponseWriter, r *http.Request, operation string, h handler) {
	requestID := w.Header().Get("X-Request-Id")
	s.counters.count(operation)
	body, _ := io.ReadAll(r.Body)
	if p := r.PathValue("project"); p != "" && p != s.opts.ProjectID {
		(&refusal{status: http.StatusForbidden, shape: shapeGateway, code: "APIGW.0302", message: "no such project " + p}).write(w, requestID)
		return
	}
	fault, struck := s.faults.strike(operation, r.URL.Path+"?"+r.URL.RawQuery+" "+string(body))
	if struck {
		pause(r.Context(), fault.Delay)
		switch fault.Kind {
		case FaultBefore:
			fault.refusal().write(w, requestID)
			return
		case FaultCut:
			panic(http.ErrAbortHandler)
		}
	}
	c := s.cloud
	c.mu.Lock()
	c.advance()
	known := maps.Clone(c.jobs)
	status, value, refused := h(&request{Request: r, body: body})
	if struck {
		for id, j := range c.jobs {
			if known[id] == nil {
				fault.mark(j)
			}
		}
	}
	c.advance()
	c.mu.Unlock()
	switch {
	case struck && fault.Kind == FaultAfter:
		fault.refusal().write(w, requestID)
	case struck && fault.Kind == FaultDrop:
		panic(http.ErrAbortHandler)
	case refused != nil:
		s.opts.Log.Debug("refused", "operation", operation, "code", refused.code, "message", refused.message)
		refused.write(w, requestID)
	default:
		answer(w, status, value)
	}
}

// pause for a while, or until the client has gone.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func accepted(j *job) (int, any, *refusal) {
	return http.StatusOK, map[string]any{"job_id": j.id}, nil
}

// page cuts a list: limit and either offset or, for the network service, marker.
func page[T any](r *request, all []T, pageNumbers bool, id func(T) string) []T {
	q := r.URL.Query()
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit <= 0 {
		limit = 1000
	}
	start := 0
	if offset, err := strconv.Atoi(q.Get("offset")); err == nil {
		start = offset
		if pageNumbers {
			start = (max(offset, 1) - 1) * limit
		}
	}
	if marker := q.Get("marker"); marker != "" {
		for i, v := range all {
			if id(v) == marker {
				start = i + 1
			}
		}
	}
	start = min(max(start, 0), len(all))
	return all[start:min(start+limit, len(all))]
}

func keys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }
