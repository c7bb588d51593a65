package vsphere

import (
	infrav1 "github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/machine"
)

// published maps the engine's neutral reasons to the published ones; a reason that is not here is its own word.
var published = map[string]string{
	machine.ReasonConsumerUnknown:      infrav1.ConsumerNotFoundReason,
	machine.ReasonPlaceUnknown:         infrav1.PoolNotFoundReason,
	machine.ReasonDisksProvisioning:    infrav1.WaitingForDisksReason,
	machine.ReasonDiskError:            infrav1.DiskFailedReason,
	machine.ReasonCreating:             infrav1.CloningReason,
	machine.ReasonCreateFailed:         infrav1.CloningFailedReason,
	machine.ReasonServerNotOurs:        infrav1.NameConflictReason,
	machine.ReasonServerUnreadable:     infrav1.VMNotReadableReason,
	machine.ReasonServerLost:           infrav1.NotFoundByBIOSUUIDReason,
	machine.ReasonFitting:              infrav1.ReconfiguringReason,
	machine.ReasonFitFailed:            infrav1.ReconfigurationFailedReason,
	machine.ReasonPowerOnFailed:        infrav1.PoweringOnFailedReason,
	machine.ReasonBootstrapUnavailable: infrav1.BootstrapSecretGetFailedReason,
}

// publishedEvents does the same for events.
var publishedEvents = map[string]string{
	machine.EventCreateStarted:   infrav1.EventCloneStarted,
	machine.EventCreateFailed:    infrav1.EventCloneFailed,
	machine.EventOperationFailed: infrav1.TaskFailureReason,

	infrav1.NetworkTopologyMismatchReason: infrav1.EventTopologyMismatch,
}

func publishedReason(reason string) string {
	switch word := published[reason]; {
	case word != "":
		return word
	case reason == "":
		return infrav1.NotReadyReason
	default:
		return reason
	}
}

func publishedEvent(reason string) string {
	if word := publishedEvents[reason]; word != "" {
		return word
	}
	return reason
}
