package hcs

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// shape of an error's body: the services differ.
type shape int

const (
	// shapeNested is {"error":{"code":...,"message":...}}.
	shapeNested shape = iota
	// shapeGateway is {"error_code":...,"error_msg":...,"request_id":...}.
	shapeGateway
	// shapeNeutron is {"NeutronError":{"type":...,"message":...,"detail":""}}.
	shapeNeutron
	// shapeNotFound is {"itemNotFound":{"code":404,"message":...}}.
	shapeNotFound
)

// refusal is why a request, or a job, is not carried out.
type refusal struct {
	status  int
	shape   shape
	code    string
	message string
	// retryAfter in seconds, for throttling.
	retryAfter int
}

func refuse(status int, code, format string, args ...any) *refusal {
	return &refusal{status: status, shape: shapeNested, code: code, message: fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) *refusal {
	return &refusal{status: http.StatusNotFound, shape: shapeNotFound, code: "404", message: fmt.Sprintf(format, args...)}
}

func neutronRefusal(status int, kind, format string, args ...any) *refusal {
	return &refusal{status: status, shape: shapeNeutron, code: kind, message: fmt.Sprintf(format, args...)}
}

func (r *refusal) body(requestID string) any {
	switch r.shape {
	case shapeGateway:
		return map[string]any{"error_code": r.code, "error_msg": r.message, "request_id": requestID}
	case shapeNeutron:
		return map[string]any{"NeutronError": map[string]any{"type": r.code, "message": r.message, "detail": ""}}
	case shapeNotFound:
		return map[string]any{"itemNotFound": map[string]any{"code": r.status, "message": r.message}}
	default:
		return map[string]any{"error": map[string]any{"code": r.code, "message": r.message}}
	}
}

func (r *refusal) write(w http.ResponseWriter, requestID string) {
	if r.retryAfter > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(r.retryAfter))
	}
	answer(w, r.status, r.body(requestID))
}

func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if value != nil {
		_ = json.NewEncoder(w).Encode(value)
	}
}
