package vcenter

import (
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

// restMethod begins the names of REST calls.
const restMethod = "REST "

// faults keeps the injected rules.
type faults struct {
	log   *slog.Logger
	mu    sync.Mutex
	rules []*rule
}

type rule struct {
	Fault
	object, client *regexp.Regexp
	seen           int
}

func newFaults(log *slog.Logger) *faults { return &faults{log: log} }

func (f *faults) add(list ...Fault) error {
	var rules []*rule
	for _, fault := range list {
		switch fault.Kind {
		case FaultBefore, FaultAfter, FaultDelay, FaultDrop, FaultCut, FaultTask, FaultTaskAfter, FaultTaskHang:
		default:
			return fmt.Errorf("unknown kind of fault %q", fault.Kind)
		}
		if fault.Count == 0 {
			fault.Count = 1
		}
		fault.Struck = 0
		r := &rule{Fault: fault}
		var err error
		if r.object, err = regexp.Compile(fault.Object); err != nil {
			return fmt.Errorf("object: %w", err)
		}
		if r.client, err = regexp.Compile(fault.Client); err != nil {
			return fmt.Errorf("client: %w", err)
		}
		if _, err := fault.build(""); err != nil {
			return err
		}
		rules = append(rules, r)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, rules...)
	return nil
}

func (f *faults) list() []Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]Fault, 0, len(f.rules))
	for _, r := range f.rules {
		out = append(out, r.Fault)
	}
	return out
}

func (f *faults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// strike returns the rule that hits a call, if any, and counts it. names are the names of the call's object, computed only
// when a rule asks for them. client is "" when unknown: a task does not know who asked for it any more.
func (f *faults) strike(task bool, method, client string, names func() []string) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var known []string
	for _, r := range f.rules {
		ofTask := r.Kind == FaultTask || r.Kind == FaultTaskAfter || r.Kind == FaultTaskHang
		if ofTask != task || r.Count >= 0 && r.Struck >= r.Count || r.Method != "" && r.Method != method {
			continue
		}
		if r.Method == "" && strings.HasPrefix(method, restMethod) {
			continue
		}
		if !task && !r.client.MatchString(client) {
			continue
		}
		if r.Object != "" {
			if known == nil {
				known = names()
			}
			if !anyMatches(r.object, known) {
				continue
			}
		}
		if r.seen++; r.seen <= r.Skip {
			continue
		}
		r.Struck++
		f.log.Info("injecting a fault", "kind", r.Kind, "method", method, "type", r.Type)
		return r.Fault, true
	}
	return Fault{}, false
}

func anyMatches(re *regexp.Regexp, names []string) bool {
	for _, name := range names {
		if re.MatchString(name) {
			return true
		}
	}
	return false
}

// build makes the vSphere fault of the rule, of the type fallback if it names none.
func (f Fault) build(fallback string) (types.BaseMethodFault, error) {
	name := f.Type
	if name == "" {
		name = fallback
	}
	if name == "" {
		name = "SystemError"
	}
	kind, ok := types.TypeFunc()(name)
	if !ok {
		return nil, fmt.Errorf("vSphere has no fault %q", name)
	}
	fault, ok := reflect.New(kind).Interface().(types.BaseMethodFault)
	if !ok {
		return nil, fmt.Errorf("vSphere's %q is not a fault", name)
	}
	message := f.message()
	fault.GetMethodFault().FaultMessage = []types.LocalizableMessage{{Key: "injected", Message: message}}
	if system, ok := fault.(*types.SystemError); ok {
		system.Reason = message
	}
	return fault, nil
}

func (f Fault) message() string {
	if f.Message != "" {
		return f.Message
	}
	return "injected fault"
}

func (f Fault) hang() time.Duration {
	if f.Delay > 0 {
		return f.Delay
	}
	return time.Hour
}
