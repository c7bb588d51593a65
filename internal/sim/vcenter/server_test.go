package vcenter_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"

	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// start brings up a simulated vCenter and a client that is logged in.
func start(t *testing.T, options vcenter.Options) (*vcenter.Server, *govmomi.Client) {
	t.Helper()
	options.Dir = t.TempDir()
	server, err := vcenter.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server, login(t, server)
}

func login(t *testing.T, server *vcenter.Server) *govmomi.Client {
	t.Helper()
	u := server.URL()
	u.User = server.Userinfo()
	client, err := govmomi.NewClient(context.Background(), u, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Logout(context.Background()) })
	return client
}

func TestInventoryIsBelievable(t *testing.T) {
	g := NewWithT(t)
	_, client := start(t, vcenter.Options{})
	ctx := context.Background()
	g.Expect(client.ServiceContent.About.Version).To(HavePrefix("8.0."))
	finder := find.NewFinder(client.Client)
	for _, path := range []string{"dc-a", "dc-b"} {
		dc, err := finder.Datacenter(ctx, path)
		g.Expect(err).NotTo(HaveOccurred())
		finder.SetDatacenter(dc)
		for _, find := range []func() error{
			func() error { _, err := finder.ResourcePool(ctx, "k8s"); return err },
			func() error { _, err := finder.Folder(ctx, "k8s"); return err },
			func() error { _, err := finder.Network(ctx, "pg-node"); return err },
			func() error { _, err := finder.Network(ctx, "pg-stor"); return err },
			func() error { _, err := finder.VirtualMachine(ctx, "os-v136-3"); return err },
			func() error { _, err := finder.VirtualMachine(ctx, "os-v137-0"); return err },
		} {
			g.Expect(find()).To(Succeed())
		}
		hosts, err := finder.HostSystemList(ctx, "*")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(hosts).To(HaveLen(3))
	}
}
