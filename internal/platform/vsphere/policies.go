package vsphere

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/vmware/govmomi/pbm"
	pbmtypes "github.com/vmware/govmomi/pbm/types"
	"github.com/vmware/govmomi/vim25/types"
)

// policies remembers what storage policies allow, by datacenter and name, for Limits.PathTTL: asking takes several calls.
type policies struct {
	reads singleflight.Group

	mu    sync.Mutex
	known map[string]policyAnswer
}

type policyAnswer struct {
	id      string
	allowed []types.ManagedObjectReference
	read    time.Time
}

// compatible returns a storage policy's identifier and the datastores of a datacenter that it allows.
func (s *Session) compatible(ctx context.Context, inv *inventory, dc *node, policy string) (string, []*node, error) {
	key := dc.ref.Value + "\x00" + policy
	s.policies.mu.Lock()
	answer, ok := s.policies.known[key]
	s.policies.mu.Unlock()
	if !ok || time.Since(answer.read) >= s.client.cfg.PathTTL {
		read, err, _ := s.policies.reads.Do(key, func() (any, error) {
			return s.askPolicy(context.WithoutCancel(ctx), inv, dc, policy)
		})
		if err != nil {
			return "", nil, err
		}
		answer = read.(policyAnswer)
		s.policies.mu.Lock()
		s.policies.known[key] = answer
		s.policies.mu.Unlock()
	}
	var out []*node
	for _, ref := range answer.allowed {
		if n := inv.nodes[ref]; n != nil && inv.datacenterOf(n) == dc {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *node) int { return strings.Compare(a.name, b.name) })
	return answer.id, out, nil
}

func (s *Session) askPolicy(ctx context.Context, inv *inventory, dc *node, policy string) (policyAnswer, error) {
	none := policyAnswer{}
	ctx, cancel := context.WithTimeout(ctx, s.client.cfg.CallTimeout)
	defer cancel()
	c, err := pbm.NewClient(ctx, s.client.vim)
	if err != nil {
		return none, failed(err, "reaching the storage policy service of vCenter %s", s.client.cfg.Server)
	}
	ids, err := c.QueryProfile(ctx, pbmtypes.PbmProfileResourceType{ResourceType: string(pbmtypes.PbmProfileResourceTypeEnumSTORAGE)}, "")
	if err != nil {
		return none, failed(err, "listing storage policies")
	}
	profiles, err := c.RetrieveContent(ctx, ids)
	if err != nil {
		return none, failed(err, "reading storage policies")
	}
	id := ""
	var names []string
	for _, p := range profiles {
		profile := p.GetPbmProfile()
		names = append(names, profile.Name)
		if profile.Name == policy {
			id = profile.ProfileId.UniqueId
		}
	}
	if id == "" {
		slices.Sort(names)
		return none, refused(ReasonStoragePolicy, "storage policy %q does not exist in vCenter %s; there is %s: name one of these", policy,
			s.client.cfg.Server, listNames(names))
	}
	var hubs []pbmtypes.PbmPlacementHub
	for _, ds := range inv.all(kindDatastore, dc) {
		hubs = append(hubs, pbmtypes.PbmPlacementHub{HubType: ds.ref.Type, HubId: ds.ref.Value})
	}
	req := []pbmtypes.BasePbmPlacementRequirement{
		&pbmtypes.PbmPlacementCapabilityProfileRequirement{ProfileId: pbmtypes.PbmProfileId{UniqueId: id}},
	}
	result, err := c.CheckRequirements(ctx, hubs, nil, req)
	if err != nil {
		return none, failed(err, "asking which datastores storage policy %q allows", policy)
	}
	out := policyAnswer{id: id, read: time.Now()}
	for _, hub := range result.CompatibleDatastores() {
		out.allowed = append(out.allowed, types.ManagedObjectReference{Type: hub.HubType, Value: hub.HubId})
	}
	return out, nil
}
