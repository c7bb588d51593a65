package vcenter

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/vapi/rest"
)

// restSessions follows the sessions of the REST endpoints, which vcsim shows to nobody: clients leak them as well.
type restSessions struct {
	mu   sync.Mutex
	open map[string]Session
	// modules is held for every call about cluster modules, which vcsim keeps without a lock.
	modules sync.Mutex
}

// serve passes a request on, and looks at those that open or end a session.
func (s *restSessions) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !strings.HasSuffix(r.URL.Path, "/cis/session") && r.URL.Path != "/api/session" {
		s.used(r)
		if strings.Contains(r.URL.Path, "/vcenter/cluster/modules") {
			s.modules.Lock()
			defer s.modules.Unlock()
		}
		if tagRules(w, r, next) {
			return
		}
		next.ServeHTTP(w, r)
		return
	}
	user, _, login := r.BasicAuth()
	recorder := httptest.NewRecorder()
	next.ServeHTTP(recorder, r)
	if recorder.Code == http.StatusOK {
		switch {
		case r.Method == http.MethodPost && login:
			s.opened(sessionID(recorder.Body.Bytes()), user, r.UserAgent())
		case r.Method == http.MethodDelete:
			s.ended(sessionKey(r))
		}
	}
	maps.Copy(w.Header(), recorder.Header())
	w.WriteHeader(recorder.Code)
	_, _ = w.Write(recorder.Body.Bytes())
}

// sessionID is the answer to a login: the key, or an object with the key as its value.
func sessionID(body []byte) string {
	var id string
	if json.Unmarshal(bytes.TrimSpace(body), &id) == nil {
		return id
	}
	var wrapped struct {
		Value string `json:"value"`
	}
	_ = json.Unmarshal(body, &wrapped)
	return wrapped.Value
}

const restSessionKey = "vmware-api-session-id"

func sessionKey(r *http.Request) string {
	if key := r.Header.Get(restSessionKey); key != "" {
		return key
	}
	if cookie, err := r.Cookie(restSessionKey); err == nil && strings.HasPrefix(r.URL.Path, rest.Path) {
		return cookie.Value
	}
	return ""
}

func (s *restSessions) opened(key, user, agent string) {
	if key == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[string]Session{}
	}
	now := time.Now()
	s.open[key] = Session{Key: key, REST: true, User: user, UserAgent: agent, Login: now, LastActive: now}
}

func (s *restSessions) used(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session, ok := s.open[sessionKey(r)]; ok {
		session.LastActive = time.Now()
		s.open[session.Key] = session
	}
}

func (s *restSessions) ended(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, key)
}

// list returns the open sessions; vcsim ends those that were idle too long.
func (s *restSessions) list(idle time.Duration) []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Session
	for _, key := range sortedKeys(s.open) {
		session := s.open[key]
		if idle > 0 && time.Since(session.LastActive) > idle {
			delete(s.open, key)
			continue
		}
		list = append(list, session)
	}
	return list
}
