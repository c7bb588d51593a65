package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	judge "github.com/berth-dev/berth/internal/admission"
	"github.com/berth-dev/berth/internal/rules"
)

// Paths of the webhooks on the subresource scale. What kubectl scale and autoscalers write is not the owner of the machines but
// a Scale, which carries no more than the number; so the owner is read here.
//
// They differ in what happens while nobody answers. A control plane that would fall below the minimum waits, whoever provides
// its machines, since the API server cannot see that in a Scale; every other number goes through, and only a warning is lost.
const (
	pathScaleBelowMinimum = "/validate-kubeadmcontrolplane-scale-below-minimum"
	pathScale             = "/warn-scale"
)

// scales judges numbers of replicas that come through the subresource scale.
type scales struct{ world judge.World }

// Handle implements admission.Handler.
func (h *scales) Handle(ctx context.Context, req admission.Request) admission.Response {
	var gvk schema.GroupVersionKind
	switch req.Resource.Resource {
	case "kubeadmcontrolplanes":
		gvk = judge.KubeadmControlPlanes
	case "machinedeployments":
		gvk = judge.MachineDeployments
	default:
		return admission.Allowed("")
	}
	var scale autoscalingv1.Scale
	if err := json.Unmarshal(req.Object.Raw, &scale); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("reading a Scale: %w", err))
	}
	obj, consumer, err := h.world.Scaled(ctx, gvk, client.ObjectKey{Namespace: req.Namespace, Name: req.Name}, scale.Spec.Replicas)
	if err != nil {
		return unjudged(req, gvk, err)
	}
	if consumer == nil || !rules.UsesVSphere(consumer) {
		return admission.Allowed("")
	}
	seen, err := h.world.Places(ctx, consumer)
	if err != nil {
		return unjudged(req, gvk, err)
	}
	warnings, err := answer(obj, rules.VSphereScale(consumer, seen), nil)
	response := admission.Allowed("")
	if err != nil {
		response = refusal(req, err)
	}
	return response.WithWarnings(warnings...)
}

// unjudged is the answer when the world could not be looked at: no for a control plane, whose quorum is at stake, and yes for
// others, which nothing but a warning waits for.
func unjudged(req admission.Request, gvk schema.GroupVersionKind, err error) admission.Response {
	err = fmt.Errorf("cannot check the replicas of %s %s/%s against what is there: %w", gvk.Kind, req.Namespace, req.Name, err)
	if gvk.Kind == rules.KindKubeadmControlPlane {
		return refusal(req, apierrors.NewInternalError(err))
	}
	return admission.Allowed("").WithWarnings(err.Error())
}
