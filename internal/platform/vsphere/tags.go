package vsphere

import (
	"context"
	"net/url"
	"strings"

	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/types"
)

// ReasonTags is the published reason for tags that could not be attached.
const ReasonTags = "TagsAttachmentFailed"

// attachTags attaches tags to a VM; attaching one twice is no error. The tag service has sessions of its own: this one lives
// as long as the call, so that none is ever left behind.
func (s *Session) attachTags(ctx context.Context, v vm, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.client.cfg.CallTimeout)
	defer cancel()
	c := rest.NewClient(s.client.vim)
	if err := c.Login(ctx, url.UserPassword(s.client.cfg.Username, s.client.cfg.Password)); err != nil {
		return failed(err, "reaching the tag service of vCenter %s", s.client.cfg.Server)
	}
	defer func() { _ = c.Logout(context.WithoutCancel(ctx)) }()
	ref := types.ManagedObjectReference{Type: v.ref.Type, Value: v.ref.Value}
	if err := tags.NewManager(c).AttachMultipleTagsToObject(ctx, ids, ref); err != nil {
		return refused(ReasonTags, "spec.tagIDs %s cannot be attached to virtual machine %s: %v", strings.Join(ids, ", "), v.name, err)
	}
	return nil
}
