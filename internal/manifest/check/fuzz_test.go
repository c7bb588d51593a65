package check_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/manifest"
	"github.com/berth-dev/berth/internal/manifest/check"
)

// FuzzRun: whatever is in the files, a check ends with a report or an error, and every problem has a place and a sentence.
func FuzzRun(f *testing.F) {
	for _, pattern := range []string{"testdata/base/*.yaml", "testdata/cases/*.txt"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatal(pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			// What stands in front of the first file of a case is no YAML.
			if _, after, ok := strings.Cut(string(text), " --\n"); ok {
				text = []byte(after)
			}
			f.Add(text)
		}
	}
	for _, seed := range []string{
		"apiVersion: v1\nkind: Secret\nmetadata: {name: [a]}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: null\n",
		"apiVersion: cluster.x-k8s.io/v1beta1\nkind: MachineDeployment\nmetadata: {name: a, labels: {b: null}}\nspec: []\n",
		"apiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineDeployment\nmetadata: {name: a}\nspec: {rollout: {strategy: {rollingUpdate: {maxSurge: [1]}}}, selector: 1}\n",
		"apiVersion: controlplane.cluster.x-k8s.io/v1beta1\nkind: KubeadmControlPlane\nmetadata: {name: a}\nspec: {machineTemplate: {infrastructureRef: {kind: VSphereMachineTemplate, apiVersion: a/b/c}}}\n",
		"apiVersion: infrastructure.cluster.x-k8s.io/v1beta1\nkind: VSphereMachineConfigPool\nmetadata: {name: a}\nspec: {configs: [null, {}, 1, {network: {}}, {network: {additional: [null]}}]}\n",
		"apiVersion: infrastructure.cluster.x-k8s.io/v1beta1\nkind: VSphereMachineConfigPool\nmetadata: {name: a, finalizers: {}}\nspec: {configs: {a: b}, clusterRef: x}\n",
		"apiVersion: infrastructure.cluster.x-k8s.io/v1beta1\nkind: VSphereMachineTemplate\nmetadata: {name: a}\nspec: {template: {spec: {network: {devices: [null]}, guestSoftPowerOffTimeout: x, pciDevices: [{}]}}}\n",
		"apiVersion: infrastructure.cluster.x-k8s.io/v1beta1\nkind: VSphereCluster\nmetadata: {name: a}\nspec: {failureDomainSelector: {matchExpressions: [{key: '', operator: x}]}}\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		report, err := check.Run(t.Context(), []manifest.Source{{File: "fuzz", Text: text}}, check.Options{})
		if err != nil {
			if !strings.Contains(err.Error(), "no object") {
				t.Errorf("the check could not be made: %v", err)
			}
			return
		}
		for _, p := range report.Problems {
			if p.Line < 1 || p.Message == "" || strings.Contains(p.String(), "\n") {
				t.Errorf("problem %+v", p)
			}
		}
	})
}
