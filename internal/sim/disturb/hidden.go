package disturb

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// hidden are the objects that answers do not show, with the moment when they show again.
type hidden struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func (h *hidden) add(until time.Time, objects ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.until == nil {
		h.until = map[string]time.Time{}
	}
	for _, object := range objects {
		h.until[object] = until
	}
}

// now lists what is hidden at the moment.
func (h *hidden) now() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for object, until := range h.until {
		if time.Now().Before(until) {
			out = append(out, object)
		} else {
			delete(h.until, object)
		}
	}
	return out
}

func isFile(object string) bool { return strings.Contains(object, "/") }

// instead answers a read of something hidden as a vCenter does that does not have it. What changes something is let through:
// the object is there, and whoever acts on it blindly must meet it.
func (h *hidden) instead(c Call, body []byte) (answer, bool) {
	for _, object := range h.now() {
		switch {
		case isFile(object) && c.Method == http.MethodGet+" /folder" && strings.HasSuffix(c.Object, object):
			return answer{status: http.StatusNotFound, header: http.Header{}, body: []byte("404 page not found\n")}, true
		case isFile(object) && strings.HasPrefix(c.Method, "Query") && bytes.Contains(body, []byte(object)):
			return fault("FileNotFound"), true
		case !isFile(object) && strings.HasPrefix(c.Method, "Retrieve") && bytes.Contains(body, []byte(">"+object+"<")):
			return fault("ManagedObjectNotFound"), true
		}
	}
	return answer{}, false
}

func fault(kind string) answer {
	recorder := httptest.NewRecorder()
	vcenter.Fault{Type: kind}.Answer(recorder)
	return answer{status: recorder.Code, header: recorder.Header(), body: recorder.Body.Bytes()}
}

// mentioned says whether an answer reports something of a hidden object.
func (h *hidden) mentioned(body []byte) bool {
	for _, object := range h.now() {
		if !isFile(object) && bytes.Contains(body, []byte(">"+object+"</obj>")) {
			return true
		}
	}
	return false
}

// without takes out of a SOAP answer every element that is a hidden object or describes one.
func (h *hidden) without(body []byte) []byte {
	objects := h.now()
	if len(objects) == 0 {
		return body
	}
	isHidden := func(text string) bool {
		for _, object := range objects {
			if !isFile(object) && text == object {
				return true
			}
		}
		return false
	}
	type element struct {
		name  string
		start int64
		text  []byte
		drop  bool
	}
	type span struct{ from, to int64 }
	var (
		open []element
		cut  []span
	)
	decoder := xml.NewDecoder(bytes.NewReader(body))
	for {
		at := decoder.InputOffset()
		token, err := decoder.Token()
		if err != nil {
			break
		}
		switch t := token.(type) {
		case xml.StartElement:
			open = append(open, element{name: t.Name.Local, start: at})
		case xml.CharData:
			if len(open) > 0 {
				open[len(open)-1].text = append(open[len(open)-1].text, t...)
			}
		case xml.EndElement:
			e := open[len(open)-1]
			open = open[:len(open)-1]
			itself := isHidden(strings.TrimSpace(string(e.text)))
			if itself && e.name == "obj" && len(open) > 0 {
				open[len(open)-1].drop = true // what describes it goes with it
			}
			if itself || e.drop {
				cut = append(cut, span{e.start, decoder.InputOffset()})
			}
		}
	}
	var out []byte
	var from int64
	// An element ends after everything in it: outer spans come later and swallow inner ones.
	var outer []span
	for _, s := range cut {
		for len(outer) > 0 && outer[len(outer)-1].from >= s.from {
			outer = outer[:len(outer)-1]
		}
		outer = append(outer, s)
	}
	for _, s := range outer {
		out = append(out, body[from:s.from]...)
		from = s.to
	}
	return append(out, body[from:]...)
}
