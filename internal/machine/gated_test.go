package machine_test

import (
	"context"
	"time"

	"github.com/berth-dev/berth/internal/machine"
)

// gated lets every call to the platform pass the gate.
type gated struct {
	cloud machine.Platform
	gate  *gate
}

var _ machine.Platform = gated{}

func through[T any](do func(string, func() error) error, what string, call func() (T, error)) (out T, err error) {
	err = do(what, func() error {
		out, err = call()
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return out, nil
}

func (g gated) Lookup(ctx context.Context, id machine.Identity) (*machine.Server, error) {
	return through(g.gate.read, "Lookup", func() (*machine.Server, error) { return g.cloud.Lookup(ctx, id) })
}

func (g gated) LookupLive(ctx context.Context, id machine.Identity) (*machine.Server, error) {
	return through(g.gate.read, "LookupLive", func() (*machine.Server, error) { return g.cloud.LookupLive(ctx, id) })
}

func (g gated) Create(ctx context.Context, spec machine.ServerSpec) (machine.Operation, error) {
	return through(g.gate.do, "Create", func() (machine.Operation, error) { return g.cloud.Create(ctx, spec) })
}

func (g gated) Fit(ctx context.Context, s *machine.Server, fit machine.Fit) (machine.Operation, error) {
	return through(g.gate.do, "Fit", func() (machine.Operation, error) { return g.cloud.Fit(ctx, s, fit) })
}

func (g gated) PowerOn(ctx context.Context, s *machine.Server) (machine.Operation, error) {
	return through(g.gate.do, "PowerOn", func() (machine.Operation, error) { return g.cloud.PowerOn(ctx, s) })
}

func (g gated) PowerOff(ctx context.Context, s *machine.Server, mode machine.PowerOffMode, since time.Time) (machine.Operation, error) {
	return through(g.gate.do, "PowerOff", func() (machine.Operation, error) { return g.cloud.PowerOff(ctx, s, mode, since) })
}

func (g gated) Detach(ctx context.Context, s *machine.Server, v []machine.AttachedVolume) (machine.Operation, error) {
	return through(g.gate.do, "Detach", func() (machine.Operation, error) { return g.cloud.Detach(ctx, s, v) })
}

func (g gated) Destroy(ctx context.Context, s *machine.Server) (machine.Operation, error) {
	return through(g.gate.do, "Destroy", func() (machine.Operation, error) { return g.cloud.Destroy(ctx, s) })
}

func (g gated) Operation(ctx context.Context, op machine.Operation) (machine.OperationState, error) {
	return through(g.gate.read, "Operation", func() (machine.OperationState, error) { return g.cloud.Operation(ctx, op) })
}

func (g gated) PlanVolume(ctx context.Context, spec machine.VolumeSpec) (string, error) {
	return through(g.gate.read, "PlanVolume", func() (string, error) { return g.cloud.PlanVolume(ctx, spec) })
}

func (g gated) LookupVolume(ctx context.Context, spec machine.VolumeSpec) (*machine.Volume, error) {
	return through(g.gate.read, "LookupVolume", func() (*machine.Volume, error) { return g.cloud.LookupVolume(ctx, spec) })
}

func (g gated) CreateVolume(ctx context.Context, spec machine.VolumeSpec) (machine.Operation, error) {
	return through(g.gate.do, "CreateVolume", func() (machine.Operation, error) { return g.cloud.CreateVolume(ctx, spec) })
}

func (g gated) DeleteVolume(ctx context.Context, spec machine.VolumeSpec, v machine.Volume) (machine.Operation, error) {
	return through(g.gate.do, "DeleteVolume", func() (machine.Operation, error) { return g.cloud.DeleteVolume(ctx, spec, v) })
}

func (g gated) Forget(ctx context.Context, spec machine.VolumeSpec) error {
	return g.gate.do("Forget", func() error { return g.cloud.Forget(ctx, spec) })
}

func (g gated) Holders(ctx context.Context, location string, v []machine.Volume) (map[string]string, error) {
	return through(g.gate.read, "Holders", func() (map[string]string, error) { return g.cloud.Holders(ctx, location, v) })
}

func (g gated) Changes() <-chan machine.Mark { return g.cloud.Changes() }
