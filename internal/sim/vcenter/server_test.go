package vcenter_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/berth-dev/berth/internal/sim/vcenter"
)

func TestInventoryIsBelievable(t *testing.T) {
	g := NewWithT(t)
	a := start(t, vcenter.Options{})
	b := newSite(t, a.server, "dc-b")
	g.Expect(a.client.ServiceContent.About.Version).To(HavePrefix("8.0."))
	for _, s := range []*site{a, b} {
		for _, find := range []func() error{
			func() error { _, err := s.finder.Network(s.ctx, "pg-stor"); return err },
			func() error { _, err := s.finder.VirtualMachine(s.ctx, "os-v137-0"); return err },
			func() error { _, err := s.finder.Datastore(s.ctx, s.store); return err },
		} {
			g.Expect(find()).To(Succeed())
		}
		hosts, err := s.finder.HostSystemList(s.ctx, "*")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(hosts).To(HaveLen(3))
		template := s.read(s.template)
		g.Expect(template.Config.Template).To(BeTrue())
		g.Expect(s.diskList(s.template)[0].CapacityInBytes).To(Equal(int64(20) << 30))
	}
}

func TestCertificateOutlivesARestart(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	first, err := vcenter.Start(vcenter.Options{Dir: dir})
	g.Expect(err).NotTo(HaveOccurred())
	first.Close()
	second, err := vcenter.Start(vcenter.Options{Dir: dir})
	g.Expect(err).NotTo(HaveOccurred())
	defer second.Close()
	g.Expect(second.Thumbprint()).To(Equal(first.Thumbprint()))
}

func TestListensOnLoopbackOnly(t *testing.T) {
	_, err := vcenter.Start(vcenter.Options{Dir: t.TempDir(), Listen: "0.0.0.0:0"})
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("not a loopback address")))
}
