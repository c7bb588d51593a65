package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	judge "github.com/berth-dev/berth/internal/admission"
)

// blind is an API server that answers nothing.
type blind struct{}

var errBlind = errors.New("the server is away")

func (blind) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errBlind
}

func (blind) List(context.Context, client.ObjectList, ...client.ListOption) error { return errBlind }

// TestWhatCannotBeSeenIsRefused: VS-W9: when the other objects cannot be read, the answer is no, because what must not happen might; a
// mere warning lets through.
func TestWhatCannotBeSeenIsRefused(t *testing.T) {
	g := NewWithT(t)
	w := judge.World{Reader: blind{}}
	v := validator[*v1beta1.VSphereMachineConfigPool]{judge: w.VSphereMachineConfigPool}
	_, err := v.ValidateCreate(t.Context(), &v1beta1.VSphereMachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "workers"}})
	g.Expect(err).To(MatchError(ContainSubstring("cannot check ns/workers against what is there, try again")))

	request := func(operation admissionv1.Operation, object, old string) admission.Request {
		return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: operation, Object: runtime.RawExtension{Raw: []byte(object)}, OldObject: runtime.RawExtension{Raw: []byte(old)}}}
	}
	const md = `{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"MachineDeployment","metadata":{"namespace":"ns","name":"md"},
		"spec":{"template":{"spec":{"infrastructureRef":{"apiGroup":"infrastructure.cluster.x-k8s.io","kind":"VSphereMachineTemplate","name":"v1"}}}}}`
	g.Expect((&consumers{world: w}).Handle(t.Context(), request(admissionv1.Create, md, "")).Allowed).To(BeFalse())

	m := &v1beta1.VSphereMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", OwnerReferences: []metav1.OwnerReference{{Kind: "Machine", Name: "m"}}}}
	raw, err := json.Marshal(m)
	g.Expect(err).NotTo(HaveOccurred())
	response := (&machineDeleted{world: w}).Handle(t.Context(), request(admissionv1.Delete, "", string(raw)))
	g.Expect(response.Allowed).To(BeTrue())
	g.Expect(response.Warnings).To(ConsistOf(ContainSubstring(errBlind.Error())))
}
