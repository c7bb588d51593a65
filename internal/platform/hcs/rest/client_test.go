package rest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/berth-dev/berth/internal/platform/hcs/rest"
	"github.com/berth-dev/berth/internal/sim/hcs"
)

var ctx = context.Background()

func start(t *testing.T, set func(*hcs.Options)) *hcs.Server {
	t.Helper()
	o := hcs.Options{Dir: t.TempDir(), Inventory: hcs.InventoryAt(netip.MustParseAddr("127.97.0.0"))}
	if set != nil {
		set(&o)
	}
	s, err := hcs.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func client(t *testing.T, s *hcs.Server, set func(*rest.Config)) *rest.Client {
	t.Helper()
	cfg, err := rest.ConfigOf(s.Credentials())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Limits = rest.Limits{PerSecond: 10000, Burst: 1000}
	if set != nil {
		set(&cfg)
	}
	c, err := rest.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// finished waits for a job to end and says how.
func finished(g Gomega, read func(context.Context, string) (*rest.Job, error), id string) *rest.Job {
	var job *rest.Job
	g.Eventually(func(g Gomega) {
		var err error
		job, err = read(ctx, id)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(job.Done()).To(BeTrue())
	}).WithTimeout(20 * time.Second).Should(Succeed())
	return job
}

// TestServerLife takes a server with a volume of its own place from creation to the end, in both dialects of volumes and over
// TLS with a private authority.
func TestServerLife(t *testing.T) {
	for _, dialect := range []rest.EVSDialect{rest.Volumes, rest.CloudVolumes} {
		t.Run(string(dialect), func(t *testing.T) {
			g := NewWithT(t)
			s := start(t, func(o *hcs.Options) {
				o.TLS = true
				o.JobTimes = map[string]time.Duration{"createServer": 50 * time.Millisecond, "attachVolume": 20 * time.Millisecond}
			})
			c := client(t, s, func(cfg *rest.Config) { cfg.EVS = dialect })

			job, volume, err := c.CreateVolume(ctx, rest.NewVolume{Name: "data", SizeGB: 100, Type: "SSD", AvailabilityZone: "az1.dc1", Metadata: map[string]string{"k": "v"}})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(finished(g, c.VolumeJob, job).VolumeID).To(Equal(volume))

			job, _, err = c.CreateServer(ctx, newServer(g, c, "worker-1", "127.97.1.31"))
			g.Expect(err).NotTo(HaveOccurred())
			id := finished(g, c.ServerJob, job).ServerID
			server, err := c.Server(ctx, id)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(server.Status).To(Equal("SHUTOFF"), "power_on: false keeps it off")
			g.Expect(server.Metadata).To(HaveKeyWithValue("capi-hcs-machine-uid", "worker-1"))
			g.Expect(server.Addresses).To(HaveLen(1))
			g.Expect(server.Addresses[0].IP.String()).To(Equal("127.97.1.31"))

			job, err = c.AttachVolume(ctx, id, volume, "/dev/vdc")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(finished(g, c.ServerJob, job).State).To(Equal(rest.JobSuccess))
			info, err := c.Volume(ctx, volume)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(info.Status).To(Equal("in-use"))
			g.Expect(info.Servers).To(Equal([]string{id}))
			g.Expect(info.SizeGB).To(BeEquivalentTo(100))
			devices, err := c.BlockDevices(ctx, id)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(devices).To(HaveLen(3))
			g.Expect(devices[0].Root).To(BeTrue())
			g.Expect(devices[2]).To(HaveField("VolumeID", volume))

			job, err = c.StartServer(ctx, id)
			g.Expect(err).NotTo(HaveOccurred())
			finished(g, c.ServerJob, job)
			job, err = c.StopServer(ctx, id, false)
			g.Expect(err).NotTo(HaveOccurred())
			finished(g, c.ServerJob, job)
			job, err = c.DetachVolume(ctx, id, volume)
			g.Expect(err).NotTo(HaveOccurred())
			finished(g, c.ServerJob, job)
			job, err = c.DeleteServer(ctx, id)
			g.Expect(err).NotTo(HaveOccurred())
			finished(g, c.ServerJob, job)
			_, err = c.Server(ctx, id)
			g.Expect(rest.KindOf(err)).To(Equal(rest.NotFound))
			volumes, err := c.VolumeList(ctx, "")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(volumes).To(HaveLen(1), "the disks that came with the server went with it, the other stayed")
			g.Expect(volumes[0].ID).To(Equal(volume))
			g.Expect(s.Violations()).To(BeEmpty())
		})
	}
}

func newServer(g Gomega, c *rest.Client, name, address string) rest.NewServer {
	images, err := c.Images(ctx, "os-v136-3")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(images).To(HaveLen(1))
	flavors, err := c.Flavors(ctx, "az1.dc1")
	g.Expect(err).NotTo(HaveOccurred())
	vpcs, err := c.VPCs(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	subnets, err := c.Subnets(ctx, vpcs[0].ID)
	g.Expect(err).NotTo(HaveOccurred())
	groups, err := c.SecurityGroups(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	return rest.NewServer{
		Name: name, ImageID: images[0].ID, FlavorID: flavors[0].ID, VPCID: vpcs[0].ID, AvailabilityZone: "az1.dc1",
		NICs: []rest.NIC{{SubnetID: subnets[0].ID, Address: address}}, Root: rest.Disk{Type: "SSD", SizeGB: 60}, Data: []rest.Disk{{Type: "SSD", SizeGB: 20}},
		SecurityGroupID: groups[0].ID, UserData: []byte("#cloud-config\n"), Metadata: map[string]string{"capi-hcs-machine-uid": name},
		Token: "22222222-2222-4222-8222-" + fmt.Sprintf("%012d", len(name)),
	}
}

// TestRepeatedCreation: the same token is the same server, whatever became of the first answer.
func TestRepeatedCreation(t *testing.T) {
	g := NewWithT(t)
	s := start(t, nil)
	c := client(t, s, nil)
	g.Expect(s.Inject(hcs.Fault{Kind: hcs.FaultDrop, Operation: "CreateServer"})).To(Succeed())
	n := newServer(g, c, "worker-1", "127.97.1.31")
	_, _, err := c.CreateServer(ctx, n)
	g.Expect(rest.KindOf(err)).To(Equal(rest.Unavailable))
	job, _, err := c.CreateServer(ctx, n)
	g.Expect(err).NotTo(HaveOccurred())
	finished(g, c.ServerJob, job)
	servers, err := c.Servers(ctx, "worker")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(servers).To(HaveLen(1))
}

// TestErrorsSayWhatToDo: each refusal has the kind that decides what happens next, and the words that a person needs.
func TestErrorsSayWhatToDo(t *testing.T) {
	g := NewWithT(t)
	s := start(t, func(o *hcs.Options) { o.Quota.Servers = 1 })
	c := client(t, s, nil)
	job, _, err := c.CreateServer(ctx, newServer(g, c, "worker-1", "127.97.1.31"))
	g.Expect(err).NotTo(HaveOccurred())
	finished(g, c.ServerJob, job)

	_, _, err = c.CreateServer(ctx, newServer(g, c, "worker-02", "127.97.1.32"))
	g.Expect(rest.KindOf(err)).To(Equal(rest.Quota))
	g.Expect(err.Error()).To(And(ContainSubstring("create server"), ContainSubstring("Quota exceeded for instances"), ContainSubstring("HTTP 403"), ContainSubstring("request ")))

	_, err = c.Volume(ctx, "no-such-volume")
	g.Expect(rest.KindOf(err)).To(Equal(rest.NotFound))
	_, err = c.ServerJob(ctx, "no-such-job")
	g.Expect(rest.KindOf(err)).To(Equal(rest.NotFound))
	servers, err := c.Servers(ctx, "")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = c.DetachVolume(ctx, servers[0].ID, servers[0].Volumes[0].ID)
	g.Expect(err).To(HaveOccurred())

	s2 := start(t, func(o *hcs.Options) { o.Hosts = 1 })
	c = client(t, s2, nil)
	group, err := c.CreateServerGroup(ctx, "cp", "anti-affinity")
	g.Expect(err).NotTo(HaveOccurred())
	for i, want := range []rest.JobState{rest.JobSuccess, rest.JobFail} {
		n := newServer(g, c, strings.Repeat("n", i+1), fmt.Sprintf("127.97.1.%d", 31+i))
		n.ServerGroupID = group.ID
		job, _, err := c.CreateServer(ctx, n)
		g.Expect(err).NotTo(HaveOccurred())
		j := finished(g, c.ServerJob, job)
		g.Expect(j.State).To(Equal(want))
		if want == rest.JobFail {
			g.Expect(j.Err.Kind).To(Equal(rest.Capacity))
		}
	}
}

// TestRefusedSignature: one attempt, then silence until the pause is over; no secret in any text; a clock that is wrong is named.
func TestRefusedSignature(t *testing.T) {
	g := NewWithT(t)
	s := start(t, nil)
	c := client(t, s, func(cfg *rest.Config) { cfg.SecretKey = "not-the-secret"; cfg.Limits.AuthPause = time.Hour })
	for range 3 {
		_, err := c.Zones(ctx)
		g.Expect(rest.KindOf(err)).To(Equal(rest.Unauthenticated))
		g.Expect(err.Error()).To(And(ContainSubstring("verify aksk signature fail"), Not(ContainSubstring("not-the-secret"))))
	}
	g.Expect(s.Calls()["unauthenticated"]).To(Equal(1))
	g.Expect(fmt.Sprintf("%v %+v %#v", c.Config(), c.Config(), c.Config())).NotTo(ContainSubstring("not-the-secret"))
	var e *rest.Error
	_, err := c.Zones(ctx)
	g.Expect(errors.As(err, &e)).To(BeTrue())
	g.Expect(e.RetryAfter).To(BeNumerically(">", 50*time.Minute))

	late := start(t, func(o *hcs.Options) { o.Now = func() time.Time { return time.Now().Add(time.Hour) } })
	_, err = client(t, late, nil).Zones(ctx)
	g.Expect(rest.KindOf(err)).To(Equal(rest.Unauthenticated))
}

// TestThrottled: a platform that asks for less gets silence for as long as it asks, from every call of the credential.
func TestThrottled(t *testing.T) {
	g := NewWithT(t)
	s := start(t, nil)
	c := client(t, s, nil)
	g.Expect(s.Inject(hcs.Fault{Kind: hcs.FaultBefore, Status: http.StatusTooManyRequests, Code: "APIGW.0308", Message: "The throttling threshold has been reached", RetryAfter: 3600})).To(Succeed())
	_, err := c.Zones(ctx)
	g.Expect(rest.KindOf(err)).To(Equal(rest.Throttled))
	_, err = c.VolumeTypes(ctx)
	var e *rest.Error
	g.Expect(errors.As(err, &e)).To(BeTrue())
	g.Expect(e.Kind).To(Equal(rest.Throttled))
	g.Expect(e.RetryAfter).To(BeNumerically(">", 50*time.Minute))
	g.Expect(s.Calls()["ListVolumeTypes"]).To(BeZero())
}

// TestLoadBalancer goes through both dialects, with real connections over the virtual address.
func TestLoadBalancer(t *testing.T) {
	for i, dialect := range []rest.ELBDialect{rest.LBaaS, rest.ELBv3} {
		t.Run(string(dialect), func(t *testing.T) {
			g := NewWithT(t)
			base := fmt.Sprintf("127.%d.0.0", 98+i)
			s := start(t, func(o *hcs.Options) { o.Inventory = hcs.InventoryAt(netip.MustParseAddr(base)) })
			c := client(t, s, func(cfg *rest.Config) { cfg.ELB = dialect })
			vpcs, err := c.VPCs(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			subnets, err := c.Subnets(ctx, vpcs[0].ID)
			g.Expect(err).NotTo(HaveOccurred())
			at := func(host int) string { return fmt.Sprintf("127.%d.1.%d", 98+i, host) }

			b, err := c.CreateBalancer(ctx, rest.NewBalancer{
				Name: "demo", Description: "ours", VPCID: vpcs[0].ID, VIPSubnetID: subnets[0].NeutronSubnetID, VIPAddress: at(10),
				L4: []rest.NetworkIPs{{NetworkID: subnets[0].ID, IPs: []string{at(11), at(12)}}}, L7: []rest.NetworkIPs{{NetworkID: subnets[0].ID, IPs: []string{at(13), at(14)}}},
			})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(bool(b.Hybrid)).To(BeTrue())
			_, err = c.CreateBalancer(ctx, rest.NewBalancer{Name: "other", VPCID: vpcs[0].ID, VIPSubnetID: subnets[0].NeutronSubnetID, VIPAddress: at(10)})
			g.Expect(rest.KindOf(err)).To(Equal(rest.Conflict), "the address is taken")

			l, err := c.CreateListener(ctx, b.ID, "api", 16443)
			g.Expect(err).NotTo(HaveOccurred())
			p, err := c.CreatePool(ctx, l.ID, "api")
			g.Expect(err).NotTo(HaveOccurred())
			monitor, err := c.CreateHealthMonitor(ctx, p.ID)
			g.Expect(err).NotTo(HaveOccurred())
			m, err := c.CreateMember(ctx, p.ID, "cp-1", at(21), 16443, subnets[0].NeutronSubnetID)
			g.Expect(err).NotTo(HaveOccurred())

			member, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at(21)+":16443")
			g.Expect(err).NotTo(HaveOccurred())
			defer func() { _ = member.Close() }()
			go func() {
				conn, err := member.Accept()
				if err == nil {
					_, _ = io.Copy(conn, conn)
					_ = conn.Close()
				}
			}()
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at(10)+":16443")
			g.Expect(err).NotTo(HaveOccurred())
			_, err = conn.Write([]byte("hello"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(conn.(*net.TCPConn).CloseWrite()).To(Succeed())
			echo, err := io.ReadAll(conn)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(echo)).To(Equal("hello"))
			_ = conn.Close()

			found, err := c.Balancers(ctx, "demo")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found).To(HaveLen(1))
			listeners, err := c.Listeners(ctx, b.ID)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(listeners).To(HaveLen(1))
			g.Expect(string(listeners[0].DefaultPoolID)).To(Equal(p.ID))
			g.Expect(rest.KindOf(c.DeleteBalancer(ctx, b.ID))).To(Equal(rest.Conflict), "not with listeners")

			g.Expect(c.DeleteHealthMonitor(ctx, monitor)).To(Succeed())
			g.Expect(c.DeleteMember(ctx, p.ID, m.ID)).To(Succeed())
			g.Expect(c.DeletePool(ctx, p.ID)).To(Succeed())
			g.Expect(c.DeleteListener(ctx, l.ID)).To(Succeed())
			g.Expect(c.DeleteBalancer(ctx, b.ID)).To(Succeed())
			g.Expect(c.DeleteBalancer(ctx, b.ID)).To(Succeed(), "gone already is no error")
			g.Expect(s.World().Ports).To(BeEmpty())
		})
	}
}

// TestSecret: white space does not matter, what is missing is named, and nothing else is guessed.
func TestSecret(t *testing.T) {
	g := NewWithT(t)
	data := map[string][]byte{
		"accessKey": []byte("AK\n"), "secretKey": []byte(" SK\n"), "projectID": []byte("p\n"), "region": []byte("r1\n"), "externalGlobalDomain": []byte("example.test\n"),
	}
	cfg, err := rest.ConfigOf(data)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cfg.SecretKey).To(Equal("SK"))
	g.Expect(cfg.Base(rest.ECS)).To(Equal("https://ecs.r1.example.test"))
	g.Expect(cfg.Base(rest.ELB)).To(Equal("https://vpc.r1.example.test"))
	g.Expect(cfg.Base(rest.IAM)).To(Equal("https://iam-apigateway-proxy.example.test"))

	data["schema"] = []byte("http")
	cfg, err = rest.ConfigOf(data)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cfg.Base(rest.IAM)).To(HavePrefix("http://"))

	for key, value := range map[string]string{"schema": "ftp", "elbDialect": "v9", "evsDialect": "disks", "insecureSkipTLSVerify": "perhaps", "endpoints": "ecs: not a url", "region": " "} {
		broken := map[string][]byte{}
		for k, v := range data {
			broken[k] = v
		}
		broken[key] = []byte(value)
		_, err := rest.ConfigOf(broken)
		g.Expect(err).To(MatchError(ContainSubstring(key)), key)
		g.Expect(err.Error()).NotTo(ContainSubstring("SK"), key)
	}
}
