package v1beta1_test

import (
	"testing"

	"github.com/berth-dev/berth/api/published"
)

// crdDir holds the generated CustomResourceDefinitions.
const crdDir = "../../../config/crd/bases"

// fieldTable is what users of the published CRDs rely on.
const fieldTable = "testdata/fields.tsv"

var pool = []string{"VSphereMachineConfigPool"}

// stricterPool is the reason for everything about the spec of a pool.
const stricterPool = "the later form of the pool is stricter here (V1)"

var deviations = append(published.ConditionForm(), []published.Deviation{
	{Kinds: []string{"VSphereCluster"}, Path: "status.failureDomains", Differs: []string{"type", "mapKeys", "listType"}, Why: "failure domains are a list in the v1beta2 contract"},
	{Kinds: []string{"VSphereCluster"}, Path: "status.failureDomains{}", Differs: []string{"missing"}, Why: "the list's elements replace it"},
	{Kinds: []string{"VSphereCluster"}, Path: "status.failureDomains{}.attributes", Differs: []string{"missing"}, Why: "the list's elements have it"},
	{Kinds: []string{"VSphereCluster"}, Path: "status.failureDomains{}.attributes{}", Differs: []string{"missing"}, Why: "the list's elements have it"},
	{Kinds: []string{"VSphereCluster"}, Path: "status.failureDomains{}.controlPlane", Differs: []string{"missing"}, Why: "the list's elements have it"},

	{Kinds: pool, Path: "spec.configs", Differs: []string{"minItems"}, Why: stricterPool},
	{Kinds: pool, Path: "spec.configs[].network", Differs: []string{"required"}, Why: stricterPool},
	{Kinds: pool, Path: "spec.configs[].persistentDisks", Differs: []string{"maxItems"}, Why: stricterPool},
	{Kinds: pool, Path: "spec.configs[].persistentDisks[].fsFormat", Differs: []string{"enum"}, Why: stricterPool},
	{Kinds: pool, Path: "spec.configs[].persistentDisks[].name", Differs: []string{"minLength", "maxLength", "pattern"}, Why: "the name becomes a file name and a link in the guest"},
	{Kinds: pool, Path: "spec.configs[].persistentDisks[].sizeGiB", Differs: []string{"minimum"}, Why: stricterPool},
	{Kinds: pool, Path: "spec.configs[].persistentDisks[].unitNumber", Differs: []string{"enum"}, Why: stricterPool},
	{Kinds: pool, Path: "spec.releaseDelayHours", Differs: []string{"minimum"}, Why: "a negative grace period means nothing"},
	{Kinds: pool, Path: "status.configStatuses", Differs: []string{"mapKeys", "listType"}, Why: "one entry for each host name"},
}...)

// TestPublishedFields holds every published field to its name, its type and what it accepts; decision V1 names the stricter
// pool, decision D13 the other form of conditions and failure domains, decision D15 the leftovers.
func TestPublishedFields(t *testing.T) {
	published.Fields(t, published.Load(t, crdDir, "VSphere"), fieldTable, deviations)
}

// TestPublishedResources holds scope, plural, subresources and printer columns of every kind.
func TestPublishedResources(t *testing.T) {
	published.Resources(t, published.Load(t, crdDir, "VSphere"), fieldTable)
}

// TestContract holds what Cluster API itself asks of the CRDs.
func TestContract(t *testing.T) {
	published.Contract(t, published.Load(t, crdDir, "VSphere"), map[string][]string{
		"VSphereCluster":         {"spec.controlPlaneEndpoint.host", "spec.controlPlaneEndpoint.port", "status.initialization.provisioned", "status.failureDomains[].name"},
		"VSphereMachine":         {"spec.providerID", "status.initialization.provisioned", "status.addresses[].type", "status.failureDomain"},
		"VSphereMachineTemplate": {"spec.template.metadata", "spec.template.spec"},
	})
}

// TestPoolShape holds the fields of a pool that are younger than the field table.
func TestPoolShape(t *testing.T) {
	fields := published.Load(t, crdDir, "VSphere")["VSphereMachineConfigPool"].Fields
	for path, typ := range map[string]string{
		"spec.configs[].ephemeralDisks[].name":           "string",
		"spec.configs[].ephemeralDisks[].sizeGiB":        "integer:int32",
		"spec.configs[].ephemeralDisks[].datastore":      "string",
		"spec.configs[].ephemeralDisks[].storagePolicy":  "string",
		"spec.configs[].ephemeralDisks[].mountPath":      "string",
		"spec.configs[].ephemeralDisks[].mountOptions[]": "string",
		"spec.configs[].ephemeralDisks[].fsFormat":       "string",
		"status.total":     "integer:int32",
		"status.available": "integer:int32",
		"status.allocated": "integer:int32",
		"status.persistentDiskStatuses[].hostname":           "string",
		"status.persistentDiskStatuses[].name":               "string",
		"status.persistentDiskStatuses[].volumePath":         "string",
		"status.persistentDiskStatuses[].diskUUID":           "string",
		"status.persistentDiskStatuses[].unitNumber":         "integer:int32",
		"status.persistentDiskStatuses[].phase":              "string",
		"status.persistentDiskStatuses[].ownerMachineUID":    "string",
		"status.persistentDiskStatuses[].ownerMachineName":   "string",
		"status.persistentDiskStatuses[].taskRef":            "string",
		"status.persistentDiskStatuses[].retryAfter":         "string:date-time",
		"status.persistentDiskStatuses[].lastError":          "string",
		"status.persistentDiskStatuses[].lastTransitionTime": "string:date-time",
		"status.ephemeralDiskStatuses[].hostname":            "string",
		"status.ephemeralDiskStatuses[].name":                "string",
		"status.ephemeralDiskStatuses[].unitNumber":          "integer:int32",
		"status.v1beta2.conditions":                          "array",
	} {
		if got, ok := fields[path]; !ok {
			t.Errorf("%s is missing", path)
		} else if got.Type != typ {
			t.Errorf("%s is %s, want %s", path, got.Type, typ)
		}
	}
	for _, absent := range []string{"wipeFilesystem", "volumePath", "diskUUID", "unitNumber"} {
		if _, ok := fields["spec.configs[].ephemeralDisks[]."+absent]; ok {
			t.Errorf("an ephemeral disk has no %s", absent)
		}
	}
}
