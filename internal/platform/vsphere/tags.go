package vsphere

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
)

// ReasonTags is the published reason for tags that could not be attached.
const ReasonTags = "TagsAttachmentFailed"

// enroll makes a new virtual machine a member of all that its specification asks for besides disks and data: its VM group, its
// cluster module, its tags, its custom fields. Doing it twice changes nothing.
func (s *Session) enroll(ctx context.Context, v vm, shape Shape) error {
	if shape.VMGroup != "" {
		if err := s.joinVMGroup(ctx, v, shape); err != nil {
			return err
		}
	}
	if shape.Module != "" {
		if err := s.joinModule(ctx, v, shape.Module); err != nil {
			return err
		}
	}
	if err := s.attachTags(ctx, v, shape.TagIDs); err != nil {
		return err
	}
	return s.setFields(ctx, v, shape.Fields)
}

// attachTags attaches tags to a VM; attaching one twice is no error.
func (s *Session) attachTags(ctx context.Context, v vm, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return s.rest(ctx, "attaching tags to virtual machine "+v.name, func(ctx context.Context, c *rest.Client) error {
		err := tags.NewManager(c).AttachMultipleTagsToObject(ctx, ids, v.ref)
		if aboutTags(err, ids) {
			return refused(ReasonTags, "spec.tagIDs %s cannot be attached to virtual machine %s: %v", strings.Join(ids, ", "), v.name, err)
		}
		return err
	})
}

// aboutTags tells what is wrong with tags from a login that has ended, a vCenter that is busy and a network that is broken.
func aboutTags(err error, ids []string) bool {
	var each tags.BatchErrors
	return err != nil && (errors.As(err, &each) || rest.IsStatusError(err, http.StatusBadRequest) || rest.IsStatusError(err, http.StatusNotFound) ||
		slices.ContainsFunc(ids, func(id string) bool { return !strings.HasPrefix(id, "urn:") }))
}
