package local

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

var testComponent = component{
	provider: "test", prefix: "test-", namespace: "test-system", contract: map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta2"},
	aggregate: "test/aggregate", webhooks: "https://127.64.0.1:9441", caBundle: []byte("bundle"),
}

func install(g *WithT, text string) *unstructured.Unstructured {
	objects, err := parse([]byte(text))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects).To(HaveLen(1))
	objects, err = testComponent.install(objects)
	g.Expect(err).NotTo(HaveOccurred())
	return objects[0]
}

func TestDefinitionsGetContractAndConversion(t *testing.T) {
	g := NewWithT(t)
	two := install(g, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.test}
spec: {versions: [{name: v1}, {name: v2}]}
`)
	g.Expect(two.GetLabels()).To(And(HaveKeyWithValue("cluster.x-k8s.io/v1beta2", "v1beta2"), HaveKeyWithValue(providerLabel, "test")))
	url, _, _ := unstructured.NestedString(two.Object, "spec", "conversion", "webhook", "clientConfig", "url")
	g.Expect(url).To(Equal("https://127.64.0.1:9441/convert"))

	one := install(g, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: others.test, labels: {cluster.x-k8s.io/v1beta2: v1beta1}}
spec: {versions: [{name: v1}]}
`)
	g.Expect(one.GetLabels()).To(HaveKeyWithValue("cluster.x-k8s.io/v1beta2", "v1beta1"), "a definition knows its own contract best")
	g.Expect(one.Object["spec"]).NotTo(HaveKey("conversion"))
}

func TestWebhooksAreReachedByAddress(t *testing.T) {
	g := NewWithT(t)
	object := install(g, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: validating-webhook-configuration}
webhooks:
- name: one.test
  clientConfig: {service: {name: webhook-service, namespace: system, path: /validate}}
`)
	g.Expect(object.GetName()).To(Equal("test-validating-webhook-configuration"))
	text, err := yaml.Marshal(object.Object["webhooks"])
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(text).To(MatchYAML("[{name: one.test, clientConfig: {url: https://127.64.0.1:9441/validate, caBundle: YnVuZGxl}}]"))
}

func TestRightsAreThoseOfTheComponentsAccount(t *testing.T) {
	g := NewWithT(t)
	role := install(g, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: manager-role}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]
`)
	g.Expect(role.GetName()).To(Equal("test-manager-role"))
	g.Expect(role.GetLabels()).To(HaveKeyWithValue("test/aggregate", "true"))

	binding := install(g, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: manager-rolebinding}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: manager-role}
subjects: [{kind: ServiceAccount, name: manager, namespace: system}]
`)
	text, err := yaml.Marshal(map[string]any{"roleRef": binding.Object["roleRef"], "subjects": binding.Object["subjects"]})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(text).To(MatchYAML(`
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-aggregated-manager-role}
subjects: [{kind: ServiceAccount, name: test-manager, namespace: test-system}]
`))
	g.Expect(testComponent.account()).To(Equal("system:serviceaccount:test-system:test-manager"))
}

func TestAnUnknownKindIsNotLeftOutSilently(t *testing.T) {
	g := NewWithT(t)
	objects, err := parse([]byte("{apiVersion: v1, kind: Service, metadata: {name: x}}"))
	g.Expect(err).NotTo(HaveOccurred())
	_, err = testComponent.install(objects)
	g.Expect(err).To(MatchError(ContainSubstring("Service")))
}
