package vcenter

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Admin is a client of the side channel.
type Admin struct {
	// URL of the side channel, "http://127.64.0.2:8444".
	URL string
	// HTTP is the client to use. Default http.DefaultClient.
	HTTP *http.Client
}

// Healthy returns nil when the simulated vCenter serves.
func (a *Admin) Healthy(ctx context.Context) error {
	return a.do(ctx, http.MethodGet, "/healthz", nil, nil)
}

// World returns what exists.
func (a *Admin) World(ctx context.Context) (*World, error) {
	world := &World{}
	return world, a.do(ctx, http.MethodGet, "/world", nil, world)
}

// Violations returns what was recorded since the start, in order.
func (a *Admin) Violations(ctx context.Context) ([]Violation, error) {
	var list []Violation
	return list, a.do(ctx, http.MethodGet, "/violations", nil, &list)
}

// Counters returns the call counters.
func (a *Admin) Counters(ctx context.Context) (*Counters, error) {
	counters := &Counters{}
	return counters, a.do(ctx, http.MethodGet, "/counters", nil, counters)
}

// ResetCounters sets all counters to zero.
func (a *Admin) ResetCounters(ctx context.Context) error {
	return a.do(ctx, http.MethodPost, "/counters/reset", nil, nil)
}

// Inject adds fault rules. Of several that match a call, the oldest strikes.
func (a *Admin) Inject(ctx context.Context, faults ...Fault) error {
	return a.do(ctx, http.MethodPost, "/faults", faults, nil)
}

// Faults returns the rules with their counts.
func (a *Admin) Faults(ctx context.Context) ([]Fault, error) {
	var faults []Fault
	return faults, a.do(ctx, http.MethodGet, "/faults", nil, &faults)
}

// ClearFaults removes all fault rules.
func (a *Admin) ClearFaults(ctx context.Context) error {
	return a.do(ctx, http.MethodDelete, "/faults", nil, nil)
}

// ReportGuest does what VMware Tools in the guest of the VM would. An error that IsGone means the VM does not exist any
// more; reports about a VM that is not powered on are refused.
func (a *Admin) ReportGuest(ctx context.Context, vm string, guest Guest) error {
	return a.do(ctx, http.MethodPut, "/guest/"+vm, guest, nil)
}

// AdminError is an answer other than success.
type AdminError struct {
	Status  int
	Message string
}

func (e *AdminError) Error() string { return e.Message }

func (a *Admin) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(a.URL, "/")+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	client := a.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode >= http.StatusMultipleChoices {
		msg, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
		return &AdminError{Status: res.StatusCode, Message: fmt.Sprintf("%s %s: %s: %s", method, path, res.Status, strings.TrimSpace(string(msg)))}
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(res.Body).Decode(out)
}

// IsGone says that what was asked about does not exist.
func (e *AdminError) IsGone() bool { return e.Status == http.StatusNotFound }
