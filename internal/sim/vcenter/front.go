package vcenter

import (
	"bytes"
	"context"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vim25/xml"
)

// call is what the front needs to know about a SOAP request.
type call struct {
	Method string
	This   types.ManagedObjectReference
	// Name is the argument "name", if the method has one in front of its specification.
	Name string
}

// front stands between the clients and vcsim: it counts, delays and breaks calls.
func (s *Server) front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !pause(r.Context(), s.opts.RoundTrip) {
			return
		}
		client := r.UserAgent()
		if !strings.Contains(r.Header.Get("Content-Type"), "xml") {
			method := restMethod + r.Method + " " + r.URL.Path
			s.counters.call(r.Context(), client, method)
			served := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.rest.serve(w, r, next) })
			if fault, struck := s.faults.strike(false, method, client, func() []string { return nil }); struck {
				s.broken(w, r, served, fault)
				return
			}
			served.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		c := peek(body)
		s.counters.call(r.Context(), client, c.Method)
		fault, struck := s.faults.strike(false, c.Method, client, func() []string { return s.names(c) })
		if !struck {
			next.ServeHTTP(w, r)
			return
		}
		s.broken(w, r, next, fault)
	})
}

// broken serves a call that a fault rule struck.
func (s *Server) broken(w http.ResponseWriter, r *http.Request, next http.Handler, rule Fault) {
	switch rule.Kind {
	case FaultDelay:
		if pause(r.Context(), rule.Delay) {
			next.ServeHTTP(w, r)
		}
		return
	case FaultCut:
		panic(http.ErrAbortHandler)
	case FaultAfter:
		next.ServeHTTP(httptest.NewRecorder(), r)
	case FaultDrop:
		next.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case FaultBefore, FaultTask, FaultTaskAfter, FaultTaskHang:
	}
	if strings.HasPrefix(rule.Method, restMethod) {
		status := http.StatusServiceUnavailable
		if rule.Type == "NotAuthenticated" {
			status = http.StatusUnauthorized
		}
		http.Error(w, rule.message(), status)
		return
	}
	rule.Answer(w)
}

// Answer writes the rule's vSphere fault as the answer to a SOAP call, for whoever stands in a vCenter's place.
func (f Fault) Answer(w http.ResponseWriter) {
	fault, err := f.build("SystemError")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeFault(w, f.message(), fault)
}

// writeFault answers as vcsim does, for faults that are not vcsim's.
func writeFault(w http.ResponseWriter, message string, fault types.BaseMethodFault) {
	kind := reflect.TypeOf(fault).Elem().Name()
	var out bytes.Buffer
	out.WriteString(xml.Header + `<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" ` +
		`xmlns:xsd="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">` +
		`<soapenv:Body><soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>`)
	_ = xml.EscapeText(&out, []byte(message))
	out.WriteString(`</faultstring><detail>`)
	start := xml.StartElement{Name: xml.Name{Local: kind + "Fault"}, Attr: []xml.Attr{
		{Name: xml.Name{Local: "xmlns"}, Value: "urn:" + vim25.Namespace},
		{Name: xml.Name{Local: "xsi:type"}, Value: kind},
	}}
	encoder := xml.NewEncoder(&out)
	if err := encoder.EncodeElement(fault, start); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = encoder.Flush()
	out.WriteString(`</detail></soapenv:Fault></soapenv:Body></soapenv:Envelope>`)
	w.Header().Set("Content-Type", "text/xml; charset=utf-8")
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = w.Write(out.Bytes())
}

// peek reads no further than it must: request bodies carry whole cloud-init documents.
func peek(body []byte) call {
	var c call
	decoder := xml.NewDecoder(bytes.NewReader(body))
	depth := 0
	for {
		token, err := decoder.Token()
		if err != nil {
			return c
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		depth++
		switch {
		case depth == 2 && start.Name.Local != "Body":
			if decoder.Skip() != nil {
				return c
			}
			depth--
		case depth == 3:
			c.Method = start.Name.Local
		case depth == 4:
			if !c.argument(decoder, start) {
				return c
			}
			depth--
		}
	}
}

// argument reads one argument of the method; false means that nothing of interest follows.
func (c *call) argument(decoder *xml.Decoder, start xml.StartElement) bool {
	var text string
	switch start.Name.Local {
	case "_this":
		for _, attr := range start.Attr {
			if attr.Name.Local == "type" {
				c.This.Type = attr.Value
			}
		}
		if decoder.DecodeElement(&text, &start) != nil {
			return false
		}
		c.This.Value = text
	case "name", "sourceName":
		if decoder.DecodeElement(&text, &start) != nil {
			return false
		}
		c.Name = text
	case "folder", "datacenter":
		return decoder.Skip() == nil
	default:
		return false
	}
	return true
}

// names are the names by which a fault rule may mean the object of a call.
func (s *Server) names(c call) []string {
	names := []string{c.This.Value}
	if c.Name != "" {
		names = append(names, c.Name)
	}
	return append(names, s.nameOf(c.This))
}

// nameOf returns the name of an inventory object, "" if it has none.
func (s *Server) nameOf(ref types.ManagedObjectReference) string {
	entity, ok := s.registry.Get(ref).(mo.Entity)
	if !ok {
		return ""
	}
	var name string
	ctx := s.internalContext()
	ctx.WithLock(ref, func() { name = entity.Entity().Name })
	return name
}

// pause waits; false means that the client has left.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// quiet sends net/http's complaints about clients (a refused certificate, a cut connection) to the log as debug lines.
func quiet(logger *slog.Logger) *log.Logger {
	return slog.NewLogLogger(logger.Handler(), slog.LevelDebug)
}
