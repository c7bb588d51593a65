package disturb

import (
	"fmt"
	"regexp"
	"sync"

	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// rules in the order in which they were injected; the oldest that matches strikes.
type rules struct {
	mu   sync.Mutex
	list []*rule
}

type rule struct {
	vcenter.Fault
	object, client *regexp.Regexp
	seen           int
}

func (r *rules) add(f vcenter.Fault) error {
	switch f.Kind {
	case vcenter.FaultBefore, vcenter.FaultAfter, vcenter.FaultDelay, vcenter.FaultDrop, vcenter.FaultCut, Unavailable, Expired:
	default:
		return fmt.Errorf("unknown kind of fault %q", f.Kind)
	}
	if f.Count == 0 {
		f.Count = 1
	}
	f.Struck = 0
	added := &rule{Fault: f}
	var err error
	if added.object, err = regexp.Compile(f.Object); err != nil {
		return fmt.Errorf("object: %w", err)
	}
	if added.client, err = regexp.Compile(f.Client); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, added)
	return nil
}

// strike returns the rule that hits a call, if any, and counts it.
func (r *rules) strike(c Call) (vcenter.Fault, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rule := range r.list {
		if rule.Count >= 0 && rule.Struck >= rule.Count || rule.Method != "" && rule.Method != c.Method {
			continue
		}
		if !rule.client.MatchString(c.Client) || !rule.object.MatchString(c.Object) && !rule.object.MatchString(c.Name) {
			continue
		}
		if rule.seen++; rule.seen <= rule.Skip {
			continue
		}
		rule.Struck++
		return rule.Fault, true
	}
	return vcenter.Fault{}, false
}

func (r *rules) struck() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rule := range r.list {
		n += rule.Struck
	}
	return n
}
