package catalogue

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/rules"
)

// Texts that the page has twice, because the same is found whichever of two objects comes second.
var (
	oneInterface = Text{"The slot's interfaces, the template's devices and the failure domain's networks are one list, in one order.", "槽位的网卡、模板的设备和故障域的网络是同一个列表，顺序一致。"}
	alignThem    = Text{"Correct the one that is wrong. Templates and failure domains do not change: make a new one.", "修正错误的一方。模板和故障域不可更改：请新建。"}
	etcdMeans    = Text{"A new etcd member does not start on the data directory of another one. In the older layout etcd's disk is persistent and emptied for each machine.", "新的 etcd 成员无法使用另一个成员的数据目录启动。旧布局中 etcd 的磁盘是持久的，并为每台机器清空。"}
	etcdDo       = Text{"Set `wipeFilesystem: true` on that disk.", "在该磁盘上设置 `wipeFilesystem: true`。"}
)

// etcdKept is a pool whose slots keep etcd's data.
func etcdKept() *pool {
	p := newPool()
	p.Name = "demo-control-plane"
	for i := range p.Spec.Configs {
		p.Spec.Configs[i].PersistentDisks[0] = disk{Name: "var-lib-etcd", SizeGiB: 100, MountPath: "/var/lib/etcd", FSFormat: v1beta1.Ext4}
	}
	return p
}

func userEntries() []Entry {
	in := func(d rules.VSpherePlacement) judge {
		return usedBy(deployment, func(u *rules.VSphereUser) { u.Placements = []rules.VSpherePlacement{d} })
	}
	return []Entry{
		warning(ids("decision D7", "VS-R18"), Text{"Fewer slots than replicas", "槽位少于副本数"}, "the other machines wait until slots are added",
			Text{"Slots first or replicas first, both are fine; in between machines wait.", "先加槽位或先加副本都可以；其间机器会等待。"}, Text{"Add slots, or scale down.", "新增槽位，或缩容。"},
			usedBy(deployment, func(u *rules.VSphereUser) { *u.Replicas = 5 })),
		refusal(ids("decision V3"), Text{"The pool belongs to another Cluster than its user", "池与其使用者属于不同 Cluster"}, "both must belong to the same Cluster",
			Text{"Slots of one Cluster never go to machines of another.", "一个 Cluster 的槽位不会分给另一个 Cluster 的机器。"}, Text{"Correct `clusterRef`, or use another pool.", "修正 `clusterRef`，或使用其他池。"},
			usedBy(deployment, func(u *rules.VSphereUser) { u.Cluster = "stage" })),
		warning(ids("decision V4", "VS-R43", "VS-R49"), Text{"The slots have another number of interfaces than the template in use", "槽位网卡数与使用中的模板不同"}, "machines cannot be replaced until a template with as many devices",
			Text{"This is the first step of adding or removing an interface; the new template comes next.", "这是增减网卡的第一步，接下来是新模板。"}, Text{"Make the new template and point the owner at it.", "创建新模板并让所有者引用它。"},
			usedBy(deployment, func(u *rules.VSphereUser) {
				u.Template.Spec.Template.Spec.Network.Devices = append(u.Template.Spec.Template.Spec.Network.Devices, v1beta1.NetworkDeviceSpec{NetworkName: "pg-stor"})
			})),
		refusal(ids("decision D8"), Text{"A slot's disk has the name of a data disk in the template in use", "槽位磁盘与使用中的模板的数据盘同名"}, "is the name of a disk in dataDisks of template",
			Text{"Both become disks of one machine, which are told apart by name.", "两者都是同一台机器的磁盘，按名称区分。"}, Text{"Rename the slot's disk.", "重命名槽位的磁盘。"},
			usedBy(deployment, func(u *rules.VSphereUser) {
				u.Template.Spec.Template.Spec.DataDisks = []v1beta1.VSphereDisk{{Name: "app-data", SizeGiB: 10}}
			})),
		warning(ids("VS-R43", "VS-A19"), Text{"The slots do not fit the failure domain of the pool's user", "槽位与使用者的故障域不符"}, "(MachineDeployment cpaas-system/demo-worker goes there)",
			oneInterface, alignThem, in(domain("dc-a", "pg-other")), in(domain("dc-b"))),
		warning(ids("VS-R57"), Text{"A control plane's pool keeps etcd's data", "控制平面的池保留 etcd 数据"}, "does not start on the data of another member",
			etcdMeans, etcdDo, func() rules.Verdict {
				u := user(controlPlane, func(u *rules.VSphereUser) {
					u.Template.Spec.Template.Spec.MachineConfigPoolRef.Name = "demo-control-plane"
					u.Replicas = nil
				})
				return rules.VSphereMachineConfigPool(nil, etcdKept(), rules.VSpherePoolWorld{Users: []rules.VSphereUser{u}})
			}),
	}
}

func consumerEntries() []Entry {
	surge := []string{"spec", "strategy", "rollingUpdate", "maxSurge"}
	unavailable := []string{"spec", "strategy", "rollingUpdate", "maxUnavailable"}
	full := Text{"A full pool has no slot for one machine more; with a surge the roll stands still. Unset means 1.", "满的池没有多余的槽位；有 surge 时滚动会停住。未设置即为 1。"}
	zero := Text{"`maxSurge: 0` and `maxUnavailable: 1`, as numbers; in v1beta2 under `rollout.strategy.rollingUpdate`. Or `type: OnDelete`.", "写数字 `maxSurge: 0` 和 `maxUnavailable: 1`；v1beta2 中位于 `rollout.strategy.rollingUpdate`。或使用 `type: OnDelete`。"}
	stuck := Text{"Without surge a roll removes a machine before it makes the next; if none may be missing, nothing is ever replaced. Percentages are rounded down.", "没有 surge 时，滚动先删除一台再创建下一台；若一台都不能缺，就永远无法替换。百分比向下取整。"}
	one := Text{"`maxUnavailable: 1`.", "`maxUnavailable: 1`。"}
	other := rules.VSphereUser{Consumer: *parsed(deployment, "demo-gpu", "metadata", "name"), Template: newTemplate()}
	in := func(d rules.VSpherePlacement) judge {
		return ownedIn(func(w *rules.VSphereConsumerWorld) { w.Placements = []rules.VSpherePlacement{d} }, deployment, "zone-a", "spec", "template", "spec", "failureDomain")
	}
	return []Entry{
		refusal(ids("VS-W37", "VS-W35", "VS-R5", "VS-R9", "VS-R26"), Text{"A surge on a pool", "使用池时设置了 surge"}, "maxSurge must be 0 for machines of a pool",
			full, zero, owned(deployment, int64(1), surge...), owned(controlPlane, int64(1), "spec", "rolloutStrategy", "rollingUpdate", "maxSurge")),
		refusal(ids("VS-W37", "VS-R6"), Text{"No `maxSurge` on a pool", "使用池时未设置 `maxSurge`"}, "is not set, which means 1; maxSurge must be 0",
			full, zero, owned(deployment, nil, surge...), owned(controlPlane, nil, "spec", "rolloutStrategy")),
		refusal(ids("VS-W37", "VS-W35"), Text{"`maxSurge` as a percentage", "`maxSurge` 为百分比"}, "as a number and not as a percentage",
			Text{"A percentage rounds up, and what it means changes with `replicas`.", "百分比向上取整，其含义随 `replicas` 变化。"}, zero, owned(deployment, "0%", surge...)),
		refusal(ids("VS-W38", "VS-R8"), Text{"Nothing may be unavailable", "不允许任何机器不可用"}, "maxUnavailable must be at least 1",
			stuck, one, owned(deployment, int64(0), unavailable...), owned(deployment, nil, unavailable...), owned(deployment, "49%", unavailable...)),
		refusal(ids("VS-W38"), Text{"`maxUnavailable` is neither number nor percentage", "`maxUnavailable` 既不是数字也不是百分比"}, "must be a number or a percentage",
			stuck, one, owned(deployment, "one", unavailable...)),
		refusal(ids("VS-W36", "VS-R10", "decision D6"), Text{"A control plane of less than three on a pool", "使用池的控制平面少于三个副本"}, "a control plane on a pool must have at least 3 replicas",
			Text{"Without surge a roll takes a member away first; of one or two, none keeps the quorum. `kubectl scale` is judged as well.", "没有 surge 时滚动会先移除一个成员；一个或两个成员无法保持法定人数。`kubectl scale` 同样受检。"},
			Text{"`replicas: 3` or more. Once it is there, never scale below it.", "`replicas: 3` 或更多，之后不要低于它。"},
			owned(controlPlane, int64(1), "spec", "replicas"), owned(controlPlane, nil, "spec", "replicas")),
		refusal(ids("VS-W30"), Text{"The machine template does not exist", "机器模板不存在"}, "referenced VSphereMachineTemplate does not exist",
			Text{"Without it neither machines nor their pool can be known.", "没有它就无法知道机器和池。"}, Text{"Apply the template first, or correct the name.", "先应用模板，或修正名称。"},
			ownedIn(func(w *rules.VSphereConsumerWorld) { w.Template, w.Pool = nil, nil }, deployment, nil)),
		refusal(ids("VS-W32"), Text{"The pool of the template does not exist", "模板引用的池不存在"}, "referenced machine config pool does not exist",
			Text{"Its machines would wait for a slot for ever.", "机器会永远等待槽位。"}, Text{"Apply the pool first.", "先应用池。"},
			ownedIn(func(w *rules.VSphereConsumerWorld) { w.Pool = nil }, deployment, nil)),
		warning(ids("decision D18"), Text{"Something is missing while the Cluster is paused", "Cluster 暂停期间缺少对象"}, "(accepted while the Cluster is paused)",
			Text{"A move or a restore brings objects one after the other.", "迁移或恢复会逐个带来对象。"}, Text{"See that it is there before you unpause.", "取消暂停之前确认它已存在。"},
			ownedIn(func(w *rules.VSphereConsumerWorld) { w.Paused, w.Template = true, nil }, deployment, nil)),
		refusal(ids("VS-R56"), Text{"The template is in another namespace", "模板在其他命名空间"}, "all objects of a cluster live in one namespace; leave it out",
			Text{"References stay inside the namespace of the Cluster.", "引用不出 Cluster 的命名空间。"}, Text{"Leave `infrastructureRef.namespace` out.", "省略 `infrastructureRef.namespace`。"},
			owned(deployment, "default", "spec", "template", "spec", "infrastructureRef", "namespace")),
		refusal(ids("VS-W33", "VS-A4"), Text{"The pool is bound to another owner", "池已绑定其他所有者"}, "is bound to",
			Text{"A pool serves one owner of machines until its last slot is free.", "在最后一个槽位空闲之前，池只服务一个机器所有者。"}, Text{"Make a pool and a template of its own.", "为它创建单独的池和模板。"},
			ownedIn(func(w *rules.VSphereConsumerWorld) {
				w.Pool.Status.ConsumerRef = &corev1.ObjectReference{Kind: "MachineDeployment", Namespace: namespace, Name: "demo-gpu"}
			}, deployment, nil)),
		refusal(ids("VS-W34", "VS-R2"), Text{"Another owner names the pool", "其他所有者已引用该池"}, "is already referenced by",
			Text{"Two owners would take each other's slots, and disks with them.", "两个所有者会互相占用槽位和磁盘。"}, Text{"Make a pool and a template of its own.", "为它创建单独的池和模板。"},
			ownedIn(func(w *rules.VSphereConsumerWorld) { w.Others = []rules.VSphereUser{other} }, deployment, nil)),
		refusal(ids("decision V3"), Text{"The pool belongs to another Cluster", "池属于其他 Cluster"}, "use a template with a pool of that Cluster",
			Text{"Slots of one Cluster never go to machines of another.", "一个 Cluster 的槽位不会分给另一个 Cluster 的机器。"}, Text{"Use a pool of this Cluster.", "使用本 Cluster 的池。"},
			owned(deployment, "stage", "spec", "clusterName")),
		warning(ids("VS-W39", "VS-R20"), Text{"More replicas than slots", "副本数多于槽位数"}, "the other machines wait until slots are added",
			Text{"Machines beyond the slots wait with `NoAvailableSlots`, and go on by themselves when a slot appears.", "多出的机器以 `NoAvailableSlots` 等待，出现槽位后自动继续。"}, Text{"Add slots, or scale down.", "新增槽位，或缩容。"},
			owned(deployment, int64(5), "spec", "replicas")),
		refusal(ids("VS-R43", "VS-R49", "VS-A20"), Text{"The failure domain has another number of networks than the template has devices", "故障域网络数与模板设备数不同"}, "no machine is made until both are the same",
			oneInterface, alignThem, in(domain("dc-a", "pg-node", "pg-stor"))),
		refusal(ids("VS-A19"), Text{"Slot and failure domain name different networks", "槽位与故障域的网络不同"}, "no machine is made there until both are the same",
			Text{"Which of the two a node shall be in is not for us to guess.", "节点应在哪个网络，不应由我们猜测。"}, alignThem, in(domain("dc-a", "pg-other"))),
		warning(ids("VS-R53"), Text{"The pool has no slot in the failure domain's datacenter", "池在故障域的数据中心没有槽位"}, "machines there wait until one is added",
			Text{"A slot fits a failure domain by its `datacenter`.", "槽位通过 `datacenter` 匹配故障域。"}, Text{"Add slots with that datacenter.", "新增该数据中心的槽位。"}, in(domain("dc-b"))),
		warning(ids("decision D2", "VS-R44"), Text{"The failure domain does not exist", "故障域不存在"}, "wait until both do",
			Text{"The name is that of a VSphereDeploymentZone.", "名称应为 VSphereDeploymentZone 的名称。"}, Text{"Create it, or correct the name.", "创建它，或修正名称。"}, in(rules.VSpherePlacement{Zone: "zone-a"})),
		warning(ids("VS-R57"), Text{"The pool keeps etcd's data for the next control plane", "池为下一个控制平面保留 etcd 数据"}, "does not start on the data of another member",
			etcdMeans, etcdDo, ownedIn(func(w *rules.VSphereConsumerWorld) { w.Pool = etcdKept() }, controlPlane, nil)),
	}
}
