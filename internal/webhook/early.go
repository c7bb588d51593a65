package webhook

import (
	"context"
	"encoding/json"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	judge "github.com/berth-dev/berth/internal/admission"
	"github.com/berth-dev/berth/internal/rules"
)

// pathPoolEarly is asked before the API server holds a pool against its schema, as only mutating webhooks are. The schema says no in
// regular expressions; the rules say the same in sentences, if they are asked first. Nothing is changed here.
const pathPoolEarly = "/refuse-vspheremachineconfigpool-early"

// earlyPool refuses what the rules refuse about a pool on its own, and stays silent otherwise: everything is judged again, with
// warnings, after the schema.
type earlyPool struct{ world judge.World }

// Handle implements admission.Handler.
func (h *earlyPool) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	pool, ok := poolFrom(req.Object.Raw)
	if !ok {
		return admission.Allowed("") // a number where a text should be: the schema says that well
	}
	var old *v1beta1.VSphereMachineConfigPool
	if req.Operation == admissionv1.Update {
		if old, ok = poolFrom(req.OldObject.Raw); !ok {
			return admission.Allowed("")
		}
	}
	if pool.Namespace == "" {
		pool.Namespace = req.Namespace
	}
	verdict := rules.VSphereMachineConfigPool(old, pool, rules.VSpherePoolWorld{})
	if !verdict.Refused() {
		return admission.Allowed("")
	}
	// It is refused: then everything that is wrong is said at once, if it can be known.
	if full, err := h.world.VSphereMachineConfigPool(ctx, old, pool); err == nil {
		verdict = full
	}
	warnings, err := answer(pool, verdict, nil)
	return refusal(req, err).WithWarnings(warnings...)
}

func poolFrom(raw []byte) (*v1beta1.VSphereMachineConfigPool, bool) {
	pool := &v1beta1.VSphereMachineConfigPool{}
	return pool, json.Unmarshal(raw, pool) == nil
}
