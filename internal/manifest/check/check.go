// Package check judges a set of manifests as an API server with Berth's webhooks would: each object by the schema of its kind, and all of
// them by the rules of package rules, applied one after the other in an order in which each finds what it refers to.
//
// One mistake is one sentence. A value that has the wrong form is told once, and what would only follow from it is not told at all.
package check

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/manifest"
)

// Options of a check.
type Options struct {
	// Partial: what is referred to and not there is only a warning.
	Partial bool
	// Strict: every warning is an error.
	Strict bool
	// Namespace of objects that do not name one; "default" if empty.
	Namespace string
	// Server is a cluster that the set is about to be applied to. Its objects are the old ones of an update, and what the set refers to
	// may be there. Nil means that every object is new. It is only read.
	Server client.Reader
}

// Run checks the objects of some texts together. An error means that the check could not be made.
func Run(ctx context.Context, sources []manifest.Source, options Options) (Report, error) {
	if options.Namespace == "" {
		options.Namespace = "default"
	}
	s := &set{options: options, report: Report{Problems: []Problem{}}, index: map[key]*object{}, absent: map[key]bool{}}
	order := map[string]int{}
	for i, source := range sources {
		order[source.File] = i
		documents, problems := manifest.Parse(source.File, source.Text)
		for _, p := range problems {
			s.report.Problems = append(s.report.Problems, Problem{Severity: Error, File: p.File, Line: p.Line, Message: p.Message})
		}
		for _, d := range documents {
			if err := s.add(ctx, d); err != nil {
				return Report{}, err
			}
		}
		s.report.Summary.Files++
		s.report.Summary.Objects += len(documents)
	}
	if s.report.Summary.Objects == 0 && len(s.report.Problems) == 0 {
		return Report{}, fmt.Errorf("there is no object in what was read")
	}
	if err := s.judge(ctx); err != nil {
		return Report{}, err
	}
	for _, o := range s.objects {
		s.report.Problems = append(s.report.Problems, o.problems...)
	}
	if options.Strict {
		for i := range s.report.Problems {
			s.report.Problems[i].Severity = Error
		}
	}
	s.report.finish(order)
	return s.report, nil
}
