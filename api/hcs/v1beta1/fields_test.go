package v1beta1_test

import (
	"testing"

	"github.com/berth-dev/berth/api/published"
)

// crdDir holds the generated CustomResourceDefinitions.
const crdDir = "../../../config/crd/hcs"

// fieldTable is what users of the published CRDs rely on.
const fieldTable = "testdata/fields.tsv"

// addressForm is Cluster API's own type.
const addressForm = "machine addresses have the form of Cluster API"

var deviations = append(published.ConditionForm(), []published.Deviation{
	{Kinds: []string{"HCSMachine"}, Path: "status.addresses[].address", Differs: []string{"minLength", "maxLength"}, Why: addressForm},
	{Kinds: []string{"HCSMachine"}, Path: "status.addresses[].type", Differs: []string{"enum"}, Why: addressForm},
}...)

// TestPublishedFields holds every published field to its name, its type and what it accepts; decision D13 names the other form
// of conditions.
func TestPublishedFields(t *testing.T) {
	published.Fields(t, published.Load(t, crdDir, "HCS"), fieldTable, deviations)
}

// TestPublishedResources holds scope, plural, short names, subresources and printer columns of every kind.
func TestPublishedResources(t *testing.T) {
	published.Resources(t, published.Load(t, crdDir, "HCS"), fieldTable)
}

// TestContract holds what Cluster API itself asks of the CRDs.
func TestContract(t *testing.T) {
	published.Contract(t, published.Load(t, crdDir, "HCS"), map[string][]string{
		"HCSCluster":         {"spec.controlPlaneEndpoint.host", "spec.controlPlaneEndpoint.port", "status.initialization.provisioned", "status.failureDomains[].name"},
		"HCSMachine":         {"spec.providerID", "status.initialization.provisioned", "status.addresses[].type", "status.failureDomain"},
		"HCSMachineTemplate": {"spec.template.metadata", "spec.template.spec"},
	})
}
