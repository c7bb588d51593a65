package vsphere

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/machine"
)

// hostLabel says on the Machine, and by Cluster API on its Node, which host the virtual machine runs on: schedulers spread by it.
const hostLabel = "node.cluster.x-k8s.io/esxi-host"

// labelHost writes the label when the host has changed: at the first start, and after every vMotion.
func (r *machineReconciler) labelHost(ctx context.Context, s *scope, server *machine.Server) error {
	if s.owner == nil || server == nil || server.Host == "" || server.Power != machine.PowerOn || !s.owner.DeletionTimestamp.IsZero() {
		return nil
	}
	value := labelValue(server.Host)
	if s.owner.Labels[hostLabel] == value {
		return nil
	}
	next := s.owner.DeepCopy()
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	next.Labels[hostLabel] = value
	if err := r.client.Patch(ctx, next, client.MergeFrom(s.owner)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("labelling Machine %s with its host: %w", client.ObjectKeyFromObject(next), err)
	}
	r.latest.wrote(next) // the next pass may begin before the cache shows the label, and would write it again
	s.owner = next
	return nil
}

// maxLabel is the longest value of a label.
const maxLabel = 63

// labelValue makes a host's name or address fit to be a label's value: the colons of IPv6 and everything else that a label cannot
// hold become dashes, and of a name that is too long whole parts of the domain go first.
func labelValue(host string) string {
	value := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		default:
			return '-'
		}
	}, host)
	for len(value) > maxLabel {
		dot := strings.LastIndexByte(value, '.')
		if dot <= 0 {
			value = value[:maxLabel]
			break
		}
		value = value[:dot]
	}
	return strings.Trim(value, "-_.")
}
