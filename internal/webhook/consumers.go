package webhook

import (
	"context"
	"errors"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	judge "github.com/berth-dev/berth/internal/admission"
	"github.com/berth-dev/berth/internal/rules"
)

// Paths of the webhooks on kinds of Cluster API. They name a version because they always did; both versions are served.
const (
	pathMachineDeployment   = "/validate-cluster-x-k8s-io-v1beta1-machinedeployment-capv"
	pathKubeadmControlPlane = "/validate-controlplane-cluster-x-k8s-io-v1beta1-kubeadmcontrolplane-capv"
)

func setupConsumers(mgr ctrl.Manager, w judge.World) error {
	for _, path := range []string{pathMachineDeployment, pathKubeadmControlPlane} {
		mgr.GetWebhookServer().Register(path, &admission.Webhook{Handler: &consumers{world: w}})
	}
	for _, path := range []string{pathScaleBelowMinimum, pathScale} {
		mgr.GetWebhookServer().Register(path, &admission.Webhook{Handler: &scales{world: w}})
	}
	return nil
}

// consumers judges KubeadmControlPlanes and MachineDeployments in whatever version they come.
type consumers struct{ world judge.World }

// Handle implements admission.Handler.
func (h *consumers) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return admission.Allowed("")
	}
	obj, consumer, err := decodeConsumer(req.Object.Raw)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	var old *rules.Consumer
	if req.Operation == admissionv1.Update {
		if _, old, err = decodeConsumer(req.OldObject.Raw); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
	}
	if consumer.Deleting || consumer.SameSpec(old) || !rules.UsesVSphere(consumer) {
		return admission.Allowed("")
	}
	verdict, err := h.world.Consumer(ctx, old, consumer)
	warnings, err := answer(obj, verdict, err)
	response := admission.Allowed("")
	if err != nil {
		response = refusal(req, err)
	}
	return response.WithWarnings(warnings...)
}

func decodeConsumer(raw []byte) (*unstructured.Unstructured, *rules.Consumer, error) {
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(raw); err != nil {
		return nil, nil, err
	}
	consumer, err := rules.ConsumerOf(obj)
	return obj, consumer, err
}

// refusal carries the whole status of an API error, so that kubectl shows it as it shows any other.
func refusal(req admission.Request, err error) admission.Response {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		s := status.Status()
		return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &s}}
	}
	return admission.Denied(schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}.String() + ": " + err.Error())
}
