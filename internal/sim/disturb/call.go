package disturb

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"strings"
)

// Call is one request of a client.
type Call struct {
	// Client is its User-Agent.
	Client string
	// Method is the SOAP method ("CloneVM_Task"); of a file "GET /folder", "PUT /folder"; of REST its verb and path.
	Method string
	// N counts the calls of this method, of all clients, from 1.
	N int
	// Object is the managed object's value ("vm-42"), the file's path, or "".
	Object string
	// Name is the name that the call gives or looks for, or "".
	Name string
}

// Task says whether the method starts a task.
func (c Call) Task() bool { return strings.HasSuffix(c.Method, "_Task") }

// callOf reads what a request asks for.
func callOf(r *http.Request, body []byte) Call {
	c := Call{Client: r.UserAgent()}
	switch {
	case strings.Contains(r.Header.Get("Content-Type"), "xml"):
		c.Method, c.Object, c.Name = soapCall(body)
	case strings.HasPrefix(r.URL.Path, "/folder/"):
		c.Method = r.Method + " /folder"
		c.Object = strings.TrimPrefix(r.URL.Path, "/folder/")
	default:
		c.Method = r.Method + " " + r.URL.Path
	}
	return c
}

// soapCall reads no further than the arguments in front of the specification: bodies carry whole cloud-init documents.
func soapCall(body []byte) (method, this, name string) {
	decoder := xml.NewDecoder(bytes.NewReader(body))
	for depth := 0; ; {
		token, err := decoder.Token()
		if err != nil {
			return method, this, name
		}
		start, opens := token.(xml.StartElement)
		if _, closes := token.(xml.EndElement); closes {
			depth--
		}
		if !opens {
			continue
		}
		depth++
		switch {
		case depth == 2 && start.Name.Local != "Body":
			if decoder.Skip() != nil {
				return method, this, name
			}
			depth--
		case depth == 3:
			method = start.Name.Local
		case depth == 4:
			var text string
			switch start.Name.Local {
			case "_this", "name", "sourceName":
				if decoder.DecodeElement(&text, &start) != nil {
					return method, this, name
				}
			case "folder", "datacenter":
				if decoder.Skip() != nil {
					return method, this, name
				}
			default:
				return method, this, name
			}
			depth--
			if start.Name.Local == "_this" {
				this = text
			} else if text != "" {
				name = text
			}
		}
	}
}
