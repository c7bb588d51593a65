package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	judge "github.com/berth-dev/berth/internal/admission"
	"github.com/berth-dev/berth/internal/rules"
)

// pathMachineDeleted warns about VSphereMachines that are deleted without their Machine. It is apart from the validating webhook of
// that kind because it refuses nothing, so that no deletion waits for it.
const pathMachineDeleted = "/warn-vspheremachine-deleted"

// machineDeleted warns, and never refuses.
type machineDeleted struct{ world judge.World }

// Handle implements admission.Handler.
func (h *machineDeleted) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Delete {
		return admission.Allowed("")
	}
	m := &v1beta1.VSphereMachine{}
	if err := json.Unmarshal(req.OldObject.Raw, m); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("reading a VSphereMachine: %w", err))
	}
	owner, err := h.world.LivingMachine(ctx, m)
	if err != nil {
		return admission.Allowed("").WithWarnings(err.Error())
	}
	verdict := rules.VSphereMachineDelete(m, owner)
	return admission.Allowed("").WithWarnings(verdict.Warnings...)
}
