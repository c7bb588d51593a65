package check_test

import (
	"io/fs"
	"path"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/berth-dev/berth/examples"
	"github.com/berth-dev/berth/internal/manifest"
	"github.com/berth-dev/berth/internal/manifest/check"
)

// TestExamplesAreValid checks every directory of examples that holds manifests: nothing to complain about, nothing to warn of.
func TestExamplesAreValid(t *testing.T) {
	g := NewWithT(t)
	sets := map[string][]manifest.Source{}
	g.Expect(fs.WalkDir(examples.Files, ".", func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || path.Ext(file) != ".yaml" {
			return err
		}
		text, err := fs.ReadFile(examples.Files, file)
		sets[path.Dir(file)] = append(sets[path.Dir(file)], manifest.Source{File: file, Text: text})
		return err
	})).To(Succeed())
	g.Expect(sets).To(HaveKey("vsphere/v1beta1"))
	g.Expect(sets).To(HaveKey("vsphere/v1beta2"))
	for dir, sources := range sets {
		t.Run(dir, func(t *testing.T) {
			g := NewWithT(t)
			report, err := check.Run(t.Context(), sources, check.Options{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(report.Problems).To(BeEmpty())
			g.Expect(report.Summary.Checked).To(Equal(report.Summary.Objects), "kinds that nobody checks")
		})
	}
}
