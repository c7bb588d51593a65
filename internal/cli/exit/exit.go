// Package exit gives the exit codes of berth their meaning. Scripts rely on them.
package exit

import (
	"context"
	"errors"

	"github.com/berth-dev/berth/internal/local"
)

// Codes.
const (
	OK = 0
	// Failed is any failure without a code of its own.
	Failed = 1
	// Usage means that the command line, or what it names, is wrong; nothing was done.
	Usage = 2
	// NotReady means that an environment exists but not all of it runs.
	NotReady = 3
	// NoEnvironment means that the state directory holds none.
	NoEnvironment = 4
	// WorldLost means that the simulated vCenter stopped after its world existed; only `berth down --purge` is left.
	WorldLost = 5
	// Busy means that another berth command works on the environment.
	Busy = 6
	// Interrupted means that the user stopped the command.
	Interrupted = 130
)

// Help explains the codes; it is part of the help of the whole command.
const Help = `Exit codes:
  0    done
  1    failed; validate: something is not valid
  2    wrong command line; nothing was done. validate: the check could not be made
  3    the environment is not ready (berth status)
  4    there is no environment in the state directory
  5    the world is lost: the simulated vCenter has stopped; only "berth down --purge" is left
  6    another berth command works on the environment
  130  interrupted`

// Error is an error that ends the program with a code.
type Error struct {
	Code int
	Err  error
	// Known: the command line is right, so its help would not help.
	Known bool
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// With gives an error a code.
func With(code int, err error) error { return &Error{Code: code, Err: err} }

// Unchecked is an error of a check that could not be made: no file, no server.
func Unchecked(err error) error { return &Error{Code: Usage, Err: err, Known: true} }

// Code is the exit code for an error.
func Code(err error) int {
	var coded *Error
	switch {
	case err == nil:
		return OK
	case errors.As(err, &coded):
		return coded.Code
	case errors.Is(err, local.ErrWorldLost):
		return WorldLost
	case errors.Is(err, local.ErrNoEnvironment):
		return NoEnvironment
	case errors.Is(err, local.ErrBusy):
		return Busy
	case errors.Is(err, context.Canceled):
		return Interrupted
	default:
		return Failed
	}
}
