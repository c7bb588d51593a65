package main

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
)

// VS-V52: the settings that operators know from the published provider have the names and defaults that they know.
func TestPublishedSettings(t *testing.T) {
	g := NewWithT(t)
	o := newOptions()
	fs := pflag.NewFlagSet("berth-manager", pflag.ContinueOnError)
	o.addTo(fs)
	for name, value := range map[string]string{
		"sync-period": "10m0s", "vspherecluster-concurrency": "50", "vspheremachine-concurrency": "100",
		"vspheredeploymentzone-concurrency": "10", "watch-filter": "",
	} {
		flag := fs.Lookup(name)
		g.Expect(flag).NotTo(BeNil(), name)
		g.Expect(flag.DefValue).To(Equal(value), name)
	}
	g.Expect(o.gates.Enabled(nodeAntiAffinity)).To(BeFalse(), "alpha is off")
	g.Expect(fs.Parse([]string{"--feature-gates=NodeAntiAffinity=true"})).To(Succeed())
	g.Expect(o.gates.Enabled(nodeAntiAffinity)).To(BeTrue())
	g.Expect(fs.Parse([]string{"--feature-gates=NodeAffinity=true"})).NotTo(Succeed(), "a mistyped gate is not ignored")
}
