package vsphere

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
)

// holding is who has which disk, from one read of every virtual machine of the vCenter.
type holding struct {
	files, ids map[string]string
	// blind lists virtual machines that do not show what they have.
	blind []string
	err   error
}

// scans makes one read serve all who asked before it began; who asks during a read waits for the next one.
type scans struct {
	mu      sync.Mutex
	running bool
	waiting []chan *holding
	view    types.ManagedObjectReference
}

var holderProperties = []string{"name", "config.template", "runtime.connectionState", "config.hardware.device"}

// Holders implements machine.Platform. The read covers all datacenters: a datastore may be mounted in several. A virtual
// machine that does not show its disks makes the answer Busy, because "not found" would be no proof (VS-A23).
func (s *Session) Holders(ctx context.Context, _ string, volumes []machine.Volume) (map[string]string, error) {
	if len(volumes) == 0 {
		return map[string]string{}, nil
	}
	answer := make(chan *holding, 1)
	s.scans.mu.Lock()
	s.scans.waiting = append(s.scans.waiting, answer)
	if !s.scans.running {
		s.scans.running = true
		go s.scanAll()
	}
	s.scans.mu.Unlock()
	var all *holding
	select {
	case all = <-answer:
	case <-ctx.Done():
		return nil, failed(ctx.Err(), "asking who holds disks")
	}
	if all.err != nil {
		return nil, failed(all.err, "asking who holds disks")
	}
	out := map[string]string{}
	for _, v := range volumes {
		if who, ok := all.files[normalPath(v.Volume)]; ok {
			out[v.Volume] = who
		} else if who, ok := all.ids[normalUUID(v.Identity)]; ok && v.Identity != "" {
			out[v.Volume] = who
		}
	}
	if len(all.blind) > 0 && len(out) < len(volumes) {
		return nil, busy(ReasonAttachments, 30*time.Second, "whether a disk is still attached cannot be proved: %s; it is taken "+
			"as attached until they can be read", strings.Join(all.blind, ", "))
	}
	return out, nil
}

// scanAll reads as long as somebody waits.
func (s *Session) scanAll() {
	for {
		s.scans.mu.Lock()
		waiting := s.scans.waiting
		s.scans.waiting = nil
		if len(waiting) == 0 {
			s.scans.running = false
			s.scans.mu.Unlock()
			return
		}
		s.scans.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), s.client.cfg.CallTimeout)
		result := s.scan(ctx)
		cancel()
		for _, answer := range waiting {
			answer <- result
		}
	}
}

func (s *Session) scan(ctx context.Context) *holding {
	making := s.observer.beingMade()
	content, err := s.scanView(ctx)
	if err != nil {
		return &holding{err: err}
	}
	out := &holding{files: map[string]string{}, ids: map[string]string{}}
	for _, o := range content {
		v := fromContent(o)
		state := v.unreadable()
		if v.template && len(v.missing) == 0 && len(v.devices) > 0 {
			state = "" // templates show their disks like everybody else
		}
		if making[v.name] && len(v.devices) == 0 {
			state = "" // a clone of ours that has no configuration yet; it is made with none of these disks
		}
		if state != "" {
			name := v.name
			if name == "" {
				name = o.Obj.Value
			}
			out.blind = append(out.blind, fmt.Sprintf("virtual machine %s (%s)", name, state))
		}
		for _, d := range v.attached() {
			for _, file := range d.chain {
				out.files[file] = v.name
			}
			if d.identity != "" {
				out.ids[d.identity] = v.name
			}
		}
	}
	sort.Strings(out.blind)
	const most = 10
	if len(out.blind) > most {
		out.blind = append(out.blind[:most], fmt.Sprintf("and %d more", len(out.blind)-most))
	}
	return out
}

// scanView reads all virtual machines through a view that is made once per login. The view follows the inventory; the
// properties are read now.
func (s *Session) scanView(ctx context.Context) ([]types.ObjectContent, error) {
	set := types.PropertySpec{Type: "VirtualMachine", PathSet: holderProperties}
	if s.scans.view.Value != "" {
		content, err := s.client.retrieve(ctx, through(s.scans.view, "view", set))
		if !isFault[*types.ManagedObjectNotFound](err) {
			return content, err
		}
	}
	view, err := s.client.containerView(ctx, s.client.vim.ServiceContent.RootFolder, []string{"VirtualMachine"})
	if err != nil {
		return nil, err
	}
	s.scans.view = view
	return s.client.retrieve(ctx, through(view, "view", set))
}
