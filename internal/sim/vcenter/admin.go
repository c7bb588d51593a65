package vcenter

import (
	"encoding/json"
	"errors"
	"net/http"
)

func (s *Server) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /world", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.World()) })
	mux.HandleFunc("GET /violations", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.Violations()) })
	mux.HandleFunc("GET /counters", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.counters.snapshot()) })
	mux.HandleFunc("POST /counters/reset", func(w http.ResponseWriter, _ *http.Request) {
		s.counters.reset()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.faults.list()) })
	mux.HandleFunc("DELETE /faults", func(w http.ResponseWriter, _ *http.Request) {
		s.faults.clear()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /faults", s.postFaults)
	mux.HandleFunc("PUT /guest/{vm}", s.putGuest)
	return mux
}

// postFaults takes one rule or a list of them.
func (s *Server) postFaults(w http.ResponseWriter, r *http.Request) {
	var raw json.RawMessage
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&raw); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var list []Fault
	if err := json.Unmarshal(raw, &list); err != nil {
		list = make([]Fault, 1)
		if err := json.Unmarshal(raw, &list[0]); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	if err := s.faults.add(list...); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) putGuest(w http.ResponseWriter, r *http.Request) {
	var guest Guest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&guest); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch err := s.ReportGuest(r.PathValue("vm"), guest); {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, errNoVM):
		http.Error(w, err.Error(), http.StatusNotFound)
	default:
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

func reply(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}
