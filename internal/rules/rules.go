// Package rules says what Berth accepts and what it refuses, as pure functions: the old object, the new one and what else
// there is in the world go in, errors and warnings come out. Webhooks, controllers and the command line ask the same
// functions, so that they cannot disagree.
//
// Every error is one sentence for a person who is tired: the field, what was found, what it clashes with, and what to do
// instead. A warning is a sentence about something that is accepted but may not be what was meant.
package rules

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Verdict of the rules on one change.
type Verdict struct {
	// Errors refuse the change.
	Errors field.ErrorList
	// Warnings go with an accepted change.
	Warnings []string
}

// Refused reports whether the change must not happen.
func (v *Verdict) Refused() bool { return len(v.Errors) > 0 }

func (v *Verdict) refuse(errs ...*field.Error) { v.Errors = append(v.Errors, errs...) }

func (v *Verdict) warn(path *field.Path, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if path != nil {
		text = path.String() + ": " + text
	}
	v.Warnings = append(v.Warnings, text)
}

// add takes over errors, as warnings if they are about something that was accepted before and has not been touched.
func (v *Verdict) add(untouched bool, errs field.ErrorList) {
	if !untouched {
		v.Errors = append(v.Errors, errs...)
		return
	}
	for _, err := range errs {
		v.Warnings = append(v.Warnings, err.Error()+" (accepted because this change does not touch it)")
	}
}

// since takes over a verdict on something that was there before (existed): what was wrong with it then, and is still, does not
// stand in the way of a change that has nothing to do with it.
func (v *Verdict) since(existed bool, before func() Verdict, now Verdict) {
	v.Warnings = append(v.Warnings, now.Warnings...)
	known := map[string]bool{}
	if existed {
		for _, err := range before().Errors {
			known[err.Error()] = true
		}
	}
	for _, err := range now.Errors {
		v.add(known[err.Error()], field.ErrorList{err})
	}
}

// Merge adds another verdict.
func (v *Verdict) Merge(o Verdict) {
	v.Errors = append(v.Errors, o.Errors...)
	v.Warnings = append(v.Warnings, o.Warnings...)
}

// Cluster is what rules need of a Cluster.
type Cluster struct {
	Namespace, Name string
	// Paused: a reference to something missing is then only a warning, because a move or a restore may be under way.
	Paused bool
	// Endpoint is the host of the control plane endpoint, "" while it is unknown.
	Endpoint string
}

// WhilePaused ends a warning about a missing reference that would be an error if the Cluster were not paused.
const WhilePaused = " (accepted while the Cluster is paused)"

// reference reports a missing reference: an error, or a warning while the Cluster is paused.
func (v *Verdict) reference(paused bool, err *field.Error) {
	if paused {
		v.Warnings = append(v.Warnings, err.Error()+WhilePaused)
		return
	}
	v.refuse(err)
}
