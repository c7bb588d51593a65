package machine

import (
	"errors"
	"fmt"
	"time"
)

// Kind says what the caller of a platform must do about an error.
type Kind string

const (
	// NotFound: the thing does not exist. Only a look-up may say so, and once is not proof of absence.
	NotFound Kind = "NotFound"
	// Conflict: something exists under this name or mark that is not ours. A human must decide.
	Conflict Kind = "Conflict"
	// Busy: throttled, locked or still working; try again after RetryAfter.
	Busy Kind = "Busy"
	// Refused: the platform said no (quota, capacity, permission, bad value). Message is for the user.
	Refused Kind = "Refused"
	// Broken: anything else; retry with back-off.
	Broken Kind = "Broken"
)

// Error is how a platform answers no. Reason is a condition reason, Message one sentence for a person that names the
// object, the value found and the way out.
type Error struct {
	Kind       Kind
	Reason     string
	Message    string
	RetryAfter time.Duration
	Err        error
	// Nowhere, with Refused: the location or the storage that was named does not exist on the platform, or none was named and there
	// are several, and nothing of what was asked for was found anywhere else. Nothing of ours can lie there.
	Nowhere bool
}

// Error implements error.
func (e *Error) Error() string {
	switch {
	case e.Err == nil:
		return e.Message
	case e.Message == "":
		return e.Err.Error()
	default:
		return fmt.Sprintf("%s: %v", e.Message, e.Err)
	}
}

// Unwrap gives access to the platform's own error.
func (e *Error) Unwrap() error { return e.Err }

// KindOf classifies err; an error that is not an *Error is Broken, nil is "".
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Broken
}

// IsNowhere reports whether err says that the place named does not exist on the platform.
func IsNowhere(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == Refused && e.Nowhere
}

// Is reports whether err is of kind k.
func Is(err error, k Kind) bool { return KindOf(err) == k }
