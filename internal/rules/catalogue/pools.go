package catalogue

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/rules"
)

func poolEntries() []Entry {
	ref := func(edit func(*corev1.ObjectReference)) judge {
		return created(func(p *pool) { edit(&p.Spec.ClusterRef) })
	}
	return []Entry{
		refusal(ids("VS-W1"), Text{"The pool names no Cluster", "池没有引用 Cluster"}, "must be set to the name of the Cluster",
			Text{"A pool belongs to one Cluster; its credentials and its endpoint come from there.", "一个池属于一个 Cluster，凭据和端点都来自它。"},
			Text{"Set `spec.clusterRef.name`.", "设置 `spec.clusterRef.name`。"},
			ref(func(r *corev1.ObjectReference) { r.Name = "" })),
		refusal(ids("VS-W2"), Text{"`clusterRef.apiVersion` is of another group", "`clusterRef.apiVersion` 属于其他 API 组"}, "must be of the group cluster.x-k8s.io",
			Text{"The reference must mean Cluster API's Cluster. Its version makes no difference.", "引用必须指向 Cluster API 的 Cluster，版本不限。"},
			Text{"Use `cluster.x-k8s.io/v1beta2`, or leave it out.", "写 `cluster.x-k8s.io/v1beta2`，或省略。"},
			ref(func(r *corev1.ObjectReference) { r.APIVersion = v1beta1.GroupVersion.String() })),
		refusal(ids("VS-W3"), Text{"`clusterRef.kind` is not Cluster", "`clusterRef.kind` 不是 Cluster"}, "must be Cluster",
			Text{"The VSphereCluster is found through the Cluster, not the other way round.", "VSphereCluster 通过 Cluster 找到，而不是反过来。"},
			Text{"Set `kind: Cluster`.", "设置 `kind: Cluster`。"},
			ref(func(r *corev1.ObjectReference) { r.Kind = "VSphereCluster" })),
		refusal(ids("VS-W4", "VS-R56"), Text{"`clusterRef.namespace` is another namespace", "`clusterRef.namespace` 是其他命名空间"}, "must match pool namespace",
			Text{"All objects of a cluster live in one namespace.", "一个集群的所有对象都在同一个命名空间。"},
			Text{"Leave it out, or create the pool where its Cluster is.", "省略它，或在 Cluster 所在的命名空间创建池。"},
			ref(func(r *corev1.ObjectReference) { r.Namespace = "default" })),
		refusal(ids("VS-W5"), Text{"The Cluster of a pool in use is changed", "更改使用中的池的 Cluster"}, "cannot change clusterRef while consumerRef is set",
			Text{"The slots and disks of the pool belong to machines of its present Cluster.", "池的槽位和磁盘属于当前 Cluster 的机器。"},
			Text{"Make a pool of another name for the other Cluster.", "为另一个 Cluster 创建不同名称的池。"},
			func() rules.Verdict {
				old := newPool()
				old.Status.ConsumerRef = &corev1.ObjectReference{Kind: "MachineDeployment", Namespace: namespace, Name: "demo-worker"}
				return editedFrom(old, func(p *pool) { p.Spec.ClusterRef.Name = "stage" })()
			}),
		warning(ids("VS-R62"), Text{"A cluster is named like the management cluster", "集群与管理集群同名"}, "is a name for the management cluster itself",
			Text{"`global` and `global-…` are taken for the cluster that runs Berth, where it manages its own nodes.", "`global` 和 `global-…` 保留给运行 Berth 的集群（管理自身节点时使用）。"},
			Text{"Name workload clusters otherwise. For the management cluster itself nothing is wrong.", "业务集群请换名；如果就是管理集群本身，则无需处理。"},
			ref(func(r *corev1.ObjectReference) { r.Name = "global-a" }),
			func() rules.Verdict {
				c := &v1beta1.VSphereCluster{}
				c.Name = "global"
				return rules.VSphereCluster(nil, c, nil)
			}),
		refusal(ids("VS-W6"), Text{"The pool has no slots", "池没有槽位"}, "a pool needs at least one slot",
			Text{"Every machine of the pool's owner needs a slot of its own.", "所有者的每台机器都需要一个槽位。"},
			Text{"List at least one slot in `spec.configs`.", "在 `spec.configs` 中至少列出一个槽位。"},
			created(func(p *pool) { p.Spec.Configs = nil })),
		refusal(ids("promise 3"), Text{"A pool that would outgrow one object", "池会超出单个对象的大小"}, "slots like these fit in one pool",
			Text{"Claims and disks are recorded in the pool's status, and the API server keeps objects of at most 1.5 MiB. What cannot be recorded cannot be done.", "占用和磁盘记录在池的 status 中，而 API 服务器保存的对象最大为 1.5 MiB。无法记录的操作就无法执行。"},
			Text{"Declare the other slots in a second pool, and give it a MachineDeployment of its own.", "在第二个池中声明其余槽位，并为它创建单独的 MachineDeployment。"},
			created(func(p *pool) {
				for i := range 999 {
					s := newSlot(fmt.Sprintf("demo-worker-%d", i+100), fmt.Sprintf("10.0.%d.%d/16", i/250, 1+i%250))
					s.Network.Primary.Gateway = "10.0.255.254"
					p.Spec.Configs = append(p.Spec.Configs, s)
				}
			})),
		refusal(ids("VS-R48"), Text{"A negative grace period", "宽限期为负数"}, "(the disks of a released slot are deleted at once) or more",
			Text{"`releaseDelayHours` is how long the disks of a released slot wait for a successor.", "`releaseDelayHours` 是已释放槽位的磁盘等待继任机器的时间。"},
			Text{"Write 0 or more, or leave it out for 24.", "写 0 或更大的数，或省略（24）。"},
			created(func(p *pool) { p.Spec.ReleaseDelayHours = ptr.To(-1) })),
		warning(ids("VS-R28"), Text{"No grace period", "没有宽限期"}, "leaves no time to think again",
			Text{"With 0, disks are deleted as soon as a slot is released. A replacement takes its slot over before that; scaling in by mistake does not.", "设为 0 时，槽位一释放就删除磁盘。替换会在此之前接管槽位，误缩容则来不及补救。"},
			Text{"Leave it out unless the data is worthless.", "除非数据无价值，否则不要设置。"},
			created(func(p *pool) { p.Spec.ReleaseDelayHours = ptr.To(0) })),
		warning(ids("VS-R46", "VS-W26"), Text{"A new slot has other disks than the rest", "新槽位的磁盘与其他槽位不同"}, "slots of one pool should have the same layout",
			Text{"The next machine may get any free slot; with mixed layouts nodes differ by chance. Pools from before there were ephemeral disks keep their layout.", "下一台机器可能得到任何空闲槽位；混用布局会使节点随机不同。没有临时磁盘的旧池保持其布局。"},
			Text{"Copy the disk lists of the slots that are there. For another layout make another pool.", "照抄已有槽位的磁盘列表；需要其他布局时新建池。"},
			editedFrom(newPool(), func(p *pool) {
				s := newSlot("demo-worker-3", "192.0.2.33/24")
				s.PersistentDisks, s.EphemeralDisks = s.PersistentDisks[:1], nil
				s.PersistentDisks = append(s.PersistentDisks, disk{Name: "scratch", SizeGiB: 10})
				p.Spec.Configs = append(p.Spec.Configs, s)
			}), created(func(p *pool) { p.Spec.Configs[1].EphemeralDisks = nil })),
		warning(ids("decision D12", "VS-R15"), Text{"Something old breaks a rule of today", "旧内容违反现在的规则"}, "(accepted because this change does not touch it)",
			Text{"It was there before, and this change is about something else, so it is told and not refused. Machines may still not get that slot.", "它原先就存在，而本次更改与它无关，因此只提醒、不拒绝。机器仍可能无法使用该槽位。"},
			Text{"Correct it when you can: the sentence before the brackets says how.", "有机会时修正；括号前的句子说明了方法。"},
			func() rules.Verdict {
				old := newPool()
				old.Spec.Configs[0].Network.Primary.Gateway = "198.51.100.1"
				return editedFrom(old, func(p *pool) { p.Spec.Configs = append(p.Spec.Configs, newSlot("demo-worker-3", "192.0.2.33/24")) })()
			}),
		refusal(ids("VS-W27"), Text{"A pool in use is deleted", "删除使用中的池"}, "still in use",
			Text{"Deleting a pool deletes its persistent disks; with machines on it that would be their data.", "删除池会删除其持久磁盘；若仍有机器，就是它们的数据。"},
			Text{"Delete or scale down the owner first. `retain-disks` on the pool keeps the disks.", "先删除或缩容所有者。池上的 `retain-disks` 注解可保留磁盘。"},
			func() rules.Verdict { return rules.VSphereMachineConfigPoolDelete(inState(v1beta1.ConfigStateInUse)) }),
		refusal(ids("decision D17"), Text{"A pool whose status is being rebuilt is deleted", "删除正在重建状态的池"}, "cannot delete pool while its",
			Text{"After a move or a restore the status is empty for a moment; until it is back, every slot counts as in use.", "迁移或恢复之后 status 会短暂为空；恢复之前，每个槽位都视为使用中。"},
			Text{"Try again shortly. If it stays so, read the pool's conditions.", "稍后重试。如果一直如此，查看池的状况（conditions）。"},
			func() rules.Verdict {
				p := newPool()
				p.Finalizers = []string{v1beta1.MachineConfigPoolFinalizer}
				return rules.VSphereMachineConfigPoolDelete(p)
			}),
	}
}

func placeEntries() []Entry {
	host := func(name string) judge { return created(withSlot(func(s *slot) { s.Hostname = name })) }
	address := func(edit func(*nic)) judge { return created(withNIC(edit)) }
	second := func(edit func(first, second *slot)) judge {
		return created(func(p *pool) { edit(&p.Spec.Configs[0], &p.Spec.Configs[1]) })
	}
	more := func(n nic) judge {
		return created(withSlot(func(s *slot) { s.Network.Additional = []nic{n} }))
	}
	other := func(s slot) judge {
		p := newPool()
		p.Name, p.Spec.Configs = "demo-gpu", []slot{s}
		return createdIn(rules.VSpherePoolWorld{Pools: []pool{*p}}, func(*pool) {})
	}
	return []Entry{
		refusal(ids("VS-W7"), Text{"No host name", "没有主机名"}, "a slot is known by its host name",
			Text{"The host name is the slot's key, the guest's name and the node's name.", "主机名是槽位的键，也是客户机和节点的名称。"},
			Text{"Set `hostname`.", "设置 `hostname`。"}, host("")),
		refusal(ids("VS-W7", "decision D9"), Text{"A host name that is none", "主机名无效"}, "use lower-case letters, digits and '-', in labels joined by '.'",
			Text{"Kubernetes accepts a node only under a lower-case RFC 1123 name.", "Kubernetes 只接受小写的 RFC 1123 名称作为节点名。"},
			Text{"Respell it; an underscore becomes `-`.", "改写；下划线改为 `-`。"}, host("Demo_Worker-1")),
		refusal(ids("VS-W7"), Text{"An address as the host name", "用地址当主机名"}, "is an address and not a name",
			Text{"A guest named like an address is not found by name, and its short name would be `192`.", "用地址命名的客户机无法按名称找到，其短名称会是 `192`。"},
			Text{"Give the slot a name, and the address to `network.primary.ip`.", "给槽位一个名称，地址写入 `network.primary.ip`。"}, host("192.0.2.31")),
		refusal(ids("decision D9"), Text{"A label of the host name is too long", "主机名中的某一段过长"}, "does not fit a host name",
			Text{"Each part between dots has at most 63 characters.", "点号之间的每一段最多 63 个字符。"},
			Text{"Shorten that part.", "缩短该段。"}, host("demo-worker-of-the-second-hall-with-a-name-that-goes-on-and-on-1.example.com")),
		refusal(ids("VS-W9", "VS-W8"), Text{"A host name is used twice", "主机名重复"}, "a host name is a node's name, choose another",
			Text{"Two nodes of one name would replace each other in the cluster. All pools of the Cluster count.", "同名的两个节点会在集群中互相顶替。同一 Cluster 的所有池都算在内。"},
			Text{"Choose another name for the slot named first.", "为消息开头的槽位另取名称。"},
			other(newSlot("demo-worker-1", "192.0.2.91/24")), second(func(_, s *slot) { s.Hostname = "demo-worker-1" })),
		refusal(ids("decision D9"), Text{"Two host names with one short name", "两个主机名的短名称相同"}, "is the short name of",
			Text{"The first label is what the guest calls itself, so it must be unique as well.", "第一段是客户机对自己的称呼，也必须唯一。"},
			Text{"Let the first labels differ.", "让第一段不同。"}, second(func(a, b *slot) { a.Hostname, b.Hostname = "w1.hall-a.example", "w1.hall-b.example" })),
		refusal(ids("VS-W10"), Text{"A slot without network", "槽位没有网络"}, "needs network.primary with a networkName",
			Text{"A machine is connected to what its slot names.", "机器连接到槽位所指定的网络。"},
			Text{"Add `network.primary`.", "添加 `network.primary`。"}, created(withSlot(func(s *slot) { s.Network = nil }))),
		refusal(ids("VS-W10"), Text{"An interface without network name", "网卡没有网络名"}, "needs the name of the network or port group",
			Text{"Every interface, further ones included, is connected to a network of its own naming.", "每块网卡（包括附加网卡）都要指明所连网络。"},
			Text{"Set `networkName`.", "设置 `networkName`。"}, address(func(n *nic) { n.NetworkName = "" })),
		refusal(ids("VS-W12"), Text{"An address without prefix length, or none at all", "地址缺少前缀长度，或不是地址"}, "must be an address in CIDR form",
			Text{"The guest needs the size of its network.", "客户机需要知道网络的大小。"},
			Text{"Write it as `192.0.2.31/24`.", "写成 `192.0.2.31/24`。"},
			address(func(n *nic) { n.IP = "192.0.2.31" }), address(func(n *nic) { n.IP = "node1" })),
		refusal(ids("VS-W12"), Text{"An address of the other family", "地址族不符"}, "the other family has a field of its own",
			Text{"`ip` and `gateway` are IPv4, `ipv6` and `ipv6Gateway` are IPv6.", "`ip` 和 `gateway` 是 IPv4，`ipv6` 和 `ipv6Gateway` 是 IPv6。"},
			Text{"Move it to the other field.", "移到另一个字段。"}, address(func(n *nic) { n.IP = "2001:db8::31/64" })),
		refusal(ids("decision D10"), Text{"An address that no machine can have", "任何机器都不能使用的地址"}, "which no machine can have",
			Text{"The first address of a network names the network, the last one is its broadcast address.", "网络的第一个地址代表网络本身，最后一个是广播地址。"},
			Text{"Choose another address, or correct the prefix length.", "换一个地址，或修正前缀长度。"},
			address(func(n *nic) { n.IP = "192.0.2.0/24" }), address(func(n *nic) { n.IP = "192.0.2.255/24" }), address(func(n *nic) { n.IP = "224.0.0.1/24" })),
		refusal(ids("decision D10"), Text{"A slot has the address of the control plane endpoint", "槽位使用了控制平面端点的地址"}, "is the control plane endpoint",
			Text{"The endpoint's address belongs to the load balancer or virtual IP.", "端点地址属于负载均衡或虚拟 IP。"},
			Text{"Give the slot an address of its own.", "给槽位另一个地址。"},
			createdIn(rules.VSpherePoolWorld{Cluster: &rules.Cluster{Name: "demo", Endpoint: "192.0.2.31"}}, func(*pool) {})),
		refusal(ids("VS-W12"), Text{"A gateway without address", "只有网关没有地址"}, "a gateway needs a static",
			Text{"With DHCP the gateway comes from there.", "使用 DHCP 时，网关由 DHCP 提供。"},
			Text{"Set the address, or remove the gateway.", "设置地址，或删除网关。"}, address(func(n *nic) { n.IP = "" })),
		refusal(ids("VS-W12"), Text{"A gateway that is no address", "网关不是地址"}, "must be an IP address without a prefix length",
			Text{"A gateway is one address, not a network.", "网关是一个地址，而不是网络。"},
			Text{"Remove the prefix length.", "去掉前缀长度。"}, address(func(n *nic) { n.Gateway = "192.0.2.1/24" })),
		refusal(ids("VS-W12"), Text{"A gateway of the other family", "网关的地址族不符"}, "address, like",
			Text{"A gateway is of the family of the address beside it.", "网关与其地址属于同一地址族。"},
			Text{"Use an address of that family.", "使用同一地址族的地址。"}, address(func(n *nic) { n.Gateway = "2001:db8::1" })),
		refusal(ids("VS-W12"), Text{"A gateway outside the network", "网关不在网络内"}, "lies outside",
			Text{"The guest could not reach it.", "客户机无法到达该网关。"},
			Text{"Correct the gateway or the prefix length.", "修正网关或前缀长度。"}, address(func(n *nic) { n.Gateway = "198.51.100.1" })),
		refusal(ids("decision D10"), Text{"A slot has the address of its own gateway", "槽位地址与自己的网关相同"}, "is the gateway of its own network",
			Text{"Two devices with one address disturb the whole network.", "两台设备使用同一地址会扰乱整个网络。"},
			Text{"Choose another address.", "换一个地址。"}, address(func(n *nic) { n.IP = "192.0.2.1/24" })),
		refusal(ids("decision D10"), Text{"A slot has the address of another slot's gateway", "槽位地址是其他槽位的网关"}, "it is the gateway that",
			Text{"All machines with that gateway would lose it.", "使用该网关的所有机器都会失去网关。"},
			Text{"Choose another address, or correct that gateway.", "换一个地址，或修正那个网关。"},
			second(func(_, s *slot) { s.Network.Primary.IP, s.Network.Primary.Gateway = "192.0.2.1/24", "" })),
		refusal(ids("decision D10"), Text{"A gateway is the address of another slot", "网关是其他槽位的地址"}, "has this gateway in network",
			Text{"A node is no router; the machine would be cut off.", "节点不是路由器，机器会断网。"},
			Text{"Correct the gateway.", "修正网关。"},
			second(func(a, b *slot) { a.Network.Primary.Gateway, b.Network.Primary.Gateway = "", "192.0.2.31" })),
		refusal(ids("VS-W12"), Text{"A name server that is no address", "DNS 服务器不是地址"}, "must be the IP address of a name server",
			Text{"A name server cannot be looked up by name.", "DNS 服务器本身不能按名称查找。"},
			Text{"Write its address.", "写它的地址。"}, address(func(n *nic) { n.DNS = []string{"dns.example.com"} })),
		refusal(ids("VS-W11"), Text{"An address is used twice", "地址重复"}, "two machines cannot share an address",
			Text{"Addresses are compared without prefix length. First interfaces are unique in the Cluster, others in their network.", "比较时不看前缀长度。主网卡地址在 Cluster 内唯一，其他网卡在其网络内唯一。"},
			Text{"Choose another address for the slot named first.", "为消息开头的槽位另选地址。"},
			other(newSlot("demo-gpu-1", "192.0.2.32/24")), second(func(_, s *slot) { s.Network.Primary.IP = "192.0.2.31/25" })),
		refusal(ids("decision D10"), Text{"Two interfaces of one slot have one address", "同一槽位的两块网卡地址相同"}, "is the address of another interface of slot",
			Text{"Every interface has an address of its own.", "每块网卡都有自己的地址。"},
			Text{"Choose another address.", "换一个地址。"}, more(nic{NetworkName: "pg-node", IP: "192.0.2.31/24"})),
		warning(ids("VS-R49"), Text{"Two default routes", "两条默认路由"}, "a machine uses one default route for each family",
			Text{"With gateways on two interfaces it is not sure which one replies leave by.", "两块网卡都有网关时，不确定从哪一块发出应答。"},
			Text{"Keep the gateway of the first interface only.", "只保留第一块网卡的网关。"}, more(nic{NetworkName: "pg-stor", IP: "198.51.100.31/24", Gateway: "198.51.100.1"})),
	}
}
