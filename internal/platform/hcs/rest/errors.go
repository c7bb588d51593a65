package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Kind of an error: what the caller can do about it.
type Kind string

const (
	// NotFound: there is no such object.
	NotFound Kind = "NotFound"
	// Conflict: the object is in a state that does not allow it now, or something else works on it.
	Conflict Kind = "Conflict"
	// Quota: the resource space may not have more.
	Quota Kind = "Quota"
	// Capacity: the platform has no room for it.
	Capacity Kind = "Capacity"
	// Throttled: too many calls.
	Throttled Kind = "Throttled"
	// Unauthenticated: the signature was refused.
	Unauthenticated Kind = "Unauthenticated"
	// Denied: the credentials may not do this.
	Denied Kind = "Denied"
	// Invalid: the request makes no sense to the platform.
	Invalid Kind = "Invalid"
	// Unavailable: no answer, or none that means anything.
	Unavailable Kind = "Unavailable"
)

// Error is a refusal or a failure, in a form that a person can take to the platform's operator.
type Error struct {
	Kind Kind
	// Operation that was tried, such as "create server".
	Operation string
	// Status is the HTTP status, 0 without an answer.
	Status int
	// Code and Text are the platform's.
	Code, Text string
	// RequestID by which the platform's operator finds the call.
	RequestID string
	// RetryAfter is how long not to try again, 0 if the platform does not say.
	RetryAfter time.Duration
	// Err is the transport's error without an answer.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Operation + ": ")
	switch {
	case e.Err != nil:
		b.WriteString(e.Err.Error())
	case e.Text != "":
		b.WriteString(e.Text)
	default:
		b.WriteString("no reason given")
	}
	var details []string
	if e.Status != 0 {
		details = append(details, "HTTP "+strconv.Itoa(e.Status))
	}
	if e.Code != "" {
		details = append(details, "code "+e.Code)
	}
	if e.RequestID != "" {
		details = append(details, "request "+e.RequestID)
	}
	if len(details) > 0 {
		b.WriteString(" (" + strings.Join(details, ", ") + ")")
	}
	return b.String()
}

// Unwrap gives the transport's error.
func (e *Error) Unwrap() error { return e.Err }

// KindOf an error, "" for nil, Unavailable for one that is not ours.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Unavailable
}

// Is reports whether an error is of a kind.
func Is(err error, k Kind) bool { return KindOf(err) == k }

// maxText bounds what is repeated of an answer that is no error we can read.
const maxText = 300

// answered makes an error of an answer. The HTTP status is looked at first: bodies come in several shapes, some without a code.
func answered(operation string, res *http.Response, body []byte) *Error {
	e := &Error{Operation: operation, Status: res.StatusCode, RequestID: res.Header.Get("X-Request-Id")}
	e.Code, e.Text = parse(body)
	if id := requestID(body); e.RequestID == "" {
		e.RequestID = id
	}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s >= 0 {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	e.Kind = classify(e.Status, e.Code, e.Text)
	return e
}

// Failed makes an error of a job that failed.
func Failed(operation, code, reason string) *Error {
	return &Error{Kind: classify(0, code, reason), Operation: operation, Code: code, Text: reason}
}

func classify(status int, code, text string) Kind {
	lower := strings.ToLower(text)
	switch {
	case status == http.StatusTooManyRequests || strings.HasSuffix(code, ".0308"):
		return Throttled
	case strings.Contains(lower, "quota"):
		return Quota
	case status == http.StatusUnauthorized:
		return Unauthenticated
	case status == http.StatusForbidden:
		return Denied
	case status == http.StatusNotFound, status == http.StatusBadRequest && strings.Contains(text, "itemNotFound"):
		return NotFound
	case status == http.StatusConflict:
		return Conflict
	case hasAny(lower, "no valid host", "no available host", "sold out", "soldout", "insufficient", "not enough", "capacity"):
		return Capacity
	case status == http.StatusBadRequest, status == http.StatusUnprocessableEntity, status == 0:
		return Invalid
	default:
		return Unavailable
	}
}

func hasAny(text string, words ...string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// parse finds code and message in the shapes that the services use: at the top, or under one key that may be called anything.
func parse(body []byte) (code, text string) {
	var top map[string]json.RawMessage
	if json.Unmarshal(body, &top) != nil {
		return "", bounded(string(body))
	}
	if code, text = codeAndText(top); text != "" {
		return code, text
	}
	for name, raw := range top {
		var inner map[string]json.RawMessage
		if json.Unmarshal(raw, &inner) != nil {
			continue
		}
		if code, text = codeAndText(inner); text != "" {
			if name != "error" {
				text = name + ": " + text // OpenStack's shape: the name of the fault is the key
			}
			return code, text
		}
	}
	return "", bounded(string(body))
}

func codeAndText(m map[string]json.RawMessage) (code, text string) {
	word := func(names ...string) string {
		for _, name := range names {
			var v any
			if json.Unmarshal(m[name], &v) == nil && v != nil {
				if s := fmt.Sprint(v); s != "" {
					return s
				}
			}
		}
		return ""
	}
	return word("error_code", "code", "type"), word("error_msg", "message", "detail")
}

func requestID(body []byte) string {
	var top struct {
		RequestID string `json:"request_id"`
	}
	_ = json.Unmarshal(body, &top)
	return top.RequestID
}

func bounded(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "..."
	}
	return s
}
