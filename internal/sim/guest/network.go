package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// network knows which guest has which address. Guests add nothing to the host's interfaces: all of 127.0.0.0/8 is there.
type network struct {
	mu      sync.Mutex
	holders map[netip.Addr]*machine
	// freed is closed and replaced whenever an address becomes free.
	freed chan struct{}
}

func newNetwork() *network {
	return &network{holders: map[netip.Addr]*machine{}, freed: make(chan struct{})}
}

// claim takes an address for a guest. Somebody else's is waited for; complain is called once the wait is longer than a
// guest's departure takes, and then again and again.
func (n *network) claim(ctx context.Context, a netip.Addr, g *machine, complain func(holder string)) error {
	for {
		n.mu.Lock()
		holder := n.holders[a]
		if holder == nil || holder == g {
			n.holders[a] = g
			n.mu.Unlock()
			return nil
		}
		freed := n.freed
		n.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-freed:
		case <-time.After(conflictPatience):
			complain(holder.label())
		}
	}
}

// conflictPatience is how long a guest that is being switched off may hold on to its addresses.
const conflictPatience = 3 * time.Second

// release frees all addresses of a guest.
func (n *network) release(g *machine) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for a, holder := range n.holders {
		if holder == g {
			delete(n.holders, a)
		}
	}
	close(n.freed)
	n.freed = make(chan struct{})
}

// toolsReport is what VMware Tools in the guest tell the hypervisor.
type toolsReport struct {
	HostName     string    `json:"hostName"`
	ToolsRunning bool      `json:"toolsRunning"`
	NICs         []nicData `json:"nics"`
}

type nicData struct {
	MAC       string   `json:"mac"`
	Network   string   `json:"network,omitempty"`
	Addresses []string `json:"addresses"`
}

// adminClient keeps enough connections for many guests that boot at once.
var adminClient = &http.Client{
	Timeout:   10 * time.Second,
	Transport: &http.Transport{MaxIdleConnsPerHost: 16, MaxConnsPerHost: 16, IdleConnTimeout: 30 * time.Second},
}

// report sends a report, again until it arrives, the simulator refuses it for good or the context ends.
func (d *daemon) report(ctx context.Context, ref string, r toolsReport) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	for {
		status, text, err := put(ctx, strings.TrimSuffix(d.options.Admin, "/")+"/guest/"+ref, body)
		if err == nil && status < http.StatusMultipleChoices {
			return nil
		}
		if err == nil && status < http.StatusInternalServerError {
			return fmt.Errorf("the hypervisor takes no report: %s", text)
		}
		if !wait(ctx, 300*time.Millisecond) {
			return ctx.Err()
		}
	}
}

func put(ctx context.Context, url string, body []byte) (status int, text string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := adminClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	msg, err := io.ReadAll(io.LimitReader(res.Body, 4096))
	return res.StatusCode, strings.TrimSpace(string(msg)), err
}
