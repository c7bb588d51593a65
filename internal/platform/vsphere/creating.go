package vsphere

import (
	"context"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
)

var _ machine.Unfinished = (*Session)(nil)

// Creating implements machine.Unfinished. A clone task names its source and not what it makes, so every clone that is queued or
// runs could be ours: waiting for a stranger's costs time, not waiting for ours would leave a virtual machine behind.
func (s *Session) Creating(ctx context.Context, id machine.Identity) (bool, error) {
	content, err := s.client.retrieve(ctx, types.PropertyFilterSpec{
		PropSet: []types.PropertySpec{{Type: "Task", PathSet: []string{"info.descriptionId", "info.state"}}},
		ObjectSet: []types.ObjectSpec{{
			Obj: *s.client.vim.ServiceContent.TaskManager, Skip: types.NewBool(true),
			SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{Type: "TaskManager", Path: "recentTask"}},
		}},
	})
	if isFault[*types.ManagedObjectNotFound](err) {
		return true, nil // a task was forgotten while the list was read; the next look tells
	}
	if err != nil {
		return false, failed(err, "reading the recent tasks, for a clone of %s", id.Name)
	}
	for _, task := range content {
		var clone, open bool
		for _, property := range task.PropSet {
			switch value := property.Val.(type) {
			case string:
				clone = strings.EqualFold(value, "VirtualMachine.clone")
			case types.TaskInfoState:
				open = value == types.TaskInfoStateQueued || value == types.TaskInfoStateRunning
			}
		}
		if clone && open {
			return true, nil
		}
	}
	return false, nil
}
