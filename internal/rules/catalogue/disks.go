package catalogue

import (
	"fmt"

	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
)

func diskEntries() []Entry {
	unit := func(n int32) judge { return created(withDisk(func(d *disk) { d.UnitNumber = ptr.To(n) })) }
	return []Entry{
		refusal(ids("VS-W13"), Text{"A disk without name", "磁盘没有名称"}, "a disk is known by its name",
			Text{"The name is the disk's key in its slot, part of its file name, and its link in the guest.", "名称是磁盘在槽位中的键，也是文件名的一部分和客户机中的链接名。"},
			Text{"Set `name`.", "设置 `name`。"}, created(withDisk(func(d *disk) { d.Name = "" }))),
		refusal(ids("VS-W13"), Text{"A disk name that is none", "磁盘名称无效"}, "use lower-case letters, digits, '-' and '.'",
			Text{"It becomes `/dev/disk/by-capv/<name>` and part of a path on the datastore.", "它会成为 `/dev/disk/by-capv/<名称>` 和数据存储路径的一部分。"},
			Text{"Respell it, in at most 63 characters.", "改写，最多 63 个字符。"},
			created(withDisk(func(d *disk) { d.Name = "Var CPaaS" })),
			created(withDisk(func(d *disk) { d.Name = fmt.Sprintf("%064d", 1) }))),
		refusal(ids("VS-W13"), Text{"A disk name is used twice in a slot", "槽位内磁盘名称重复"}, "has a disk of this name at",
			Text{"Persistent and ephemeral disks of a slot share one set of names.", "槽位的持久磁盘和临时磁盘共用一套名称。"},
			Text{"Rename one of them.", "重命名其中一个。"}, created(withSlot(func(s *slot) { s.EphemeralDisks[0].Name = "var-cpaas" }))),
		refusal(ids("VS-W14"), Text{"A disk without size", "磁盘没有大小"}, "must be at least 1",
			Text{"Sizes are whole GiB.", "大小以整 GiB 计。"}, Text{"Set `sizeGiB`.", "设置 `sizeGiB`。"},
			created(withDisk(func(d *disk) { d.SizeGiB = 0 }))),
		refusal(ids("VS-W15"), Text{"A unit that a controller does not have", "控制器没有的单元号"}, "must be between 0 and 15",
			Text{"A SCSI controller has the units 0 to 15.", "SCSI 控制器的单元号为 0 到 15。"},
			Text{"Leave `unitNumber` out; Berth finds disks by UUID, not by unit.", "省略 `unitNumber`；Berth 按 UUID 而不是单元号识别磁盘。"}, unit(16)),
		refusal(ids("VS-W15"), Text{"The controller's own unit", "控制器自己的单元号"}, "is reserved for the SCSI controller itself",
			Text{"Unit 7 is the controller.", "单元 7 是控制器自身。"}, Text{"Leave `unitNumber` out, or choose another.", "省略 `unitNumber`，或换一个。"}, unit(7)),
		refusal(ids("VS-W15"), Text{"A unit is used twice", "单元号重复"}, "has this unit already",
			Text{"One unit holds one disk.", "一个单元只能挂一块磁盘。"}, Text{"Leave `unitNumber` out, or choose another.", "省略 `unitNumber`，或换一个。"},
			created(withSlot(func(s *slot) {
				s.PersistentDisks[0].UnitNumber, s.PersistentDisks[1].UnitNumber = ptr.To[int32](2), ptr.To[int32](2)
			}))),
		warning(ids("VS-W15"), Text{"The system disk's unit", "系统盘的单元号"}, "unit 0 is usually the system disk's",
			Text{"On the first controller unit 0 is taken by the image's disk.", "第一个控制器的单元 0 由镜像的磁盘占用。"},
			Text{"Leave `unitNumber` out.", "省略 `unitNumber`。"}, unit(0)),
		refusal(ids("VS-W16"), Text{"Control characters in a mount path", "挂载路径含控制字符"}, "must not contain tabs, line breaks or other control characters",
			Text{"The path goes into files of the guest, line by line.", "路径会逐行写入客户机的文件。"}, Text{"Remove them.", "删除它们。"}, created(mounted("/var/\tcpaas"))),
		refusal(ids("VS-W16"), Text{"A relative mount path", "相对挂载路径"}, "must be an absolute path",
			Text{"There is nothing that it could be relative to.", "没有可以相对的起点。"}, Text{"Start it with `/`.", "以 `/` 开头。"}, created(mounted("var/cpaas"))),
		refusal(ids("VS-W16"), Text{"Dots in a mount path", "挂载路径含点段"}, "must not contain '.' or '..'",
			Text{"What is written must be what is meant.", "写法必须与含义一致。"}, Text{"Write the path that the message shows.", "使用消息中给出的路径。"}, created(mounted("/var/../cpaas"))),
		refusal(ids("VS-W16"), Text{"The root as mount path", "挂载到根目录"}, "the system disk has it; mount below it",
			Text{"`/` is the system disk.", "`/` 是系统盘。"}, Text{"Choose a directory, such as `/var/data`.", "选择一个目录，例如 `/var/data`。"}, created(mounted("/"))),
		refusal(ids("decision D11"), Text{"A mount path of the operating system", "挂载到操作系统目录"}, "which belongs to the operating system",
			Text{"`/proc`, `/sys`, `/dev`, `/run` and `/boot` are the kernel's, or needed before disks are mounted.", "`/proc`、`/sys`、`/dev`、`/run` 和 `/boot` 属于内核，或在挂载磁盘之前就需要。"},
			Text{"Choose another directory.", "选择其他目录。"}, created(mounted("/run/data"))),
		refusal(ids("VS-W16"), Text{"Two disks on one mount path", "两块磁盘挂载到同一路径"}, "is mounted there already",
			Text{"The second would hide the first. Paths are compared without regard to extra slashes.", "后挂载的会遮住先挂载的。比较时忽略多余的斜杠。"},
			Text{"Mount one of them elsewhere.", "将其中一块挂载到别处。"}, created(mounted("/var/lib/kubelet/"))),
		refusal(ids("VS-W17"), Text{"Another file system", "不支持的文件系统"}, "supported values: \"ext4\", \"xfs\"",
			Text{"A blank disk is formatted as ext4 or xfs.", "空白磁盘只格式化为 ext4 或 xfs。"}, Text{"Use one of the two, or leave the disk raw.", "使用其一，或保留为裸盘。"},
			created(withDisk(func(d *disk) { d.FSFormat = "btrfs" }))),
		refusal(ids("VS-W18"), Text{"A mount path without file system", "有挂载路径但没有文件系统"}, "so fsFormat must say ext4 or xfs",
			Text{"A disk is either mounted, with a file system, or raw, with neither.", "磁盘要么有文件系统并挂载，要么两者都没有（裸盘）。"},
			Text{"Set `fsFormat`, or remove `mountPath`.", "设置 `fsFormat`，或删除 `mountPath`。"}, created(withDisk(func(d *disk) { d.FSFormat = "" }))),
		refusal(ids("VS-W18"), Text{"A file system without mount path", "有文件系统但没有挂载路径"}, "so mountPath must say where the disk is mounted",
			Text{"A disk is either mounted, with a file system, or raw, with neither.", "磁盘要么有文件系统并挂载，要么两者都没有（裸盘）。"},
			Text{"Set `mountPath`, or remove `fsFormat`.", "设置 `mountPath`，或删除 `fsFormat`。"}, created(mounted(""))),
		refusal(ids("VS-W18", "decision V5"), Text{"Mount options of a raw disk", "裸盘的挂载选项"}, "is never mounted; remove the options or set both",
			Text{"Berth never mounts a raw disk; its application does.", "Berth 从不挂载裸盘，由应用负责。"}, Text{"Remove `mountOptions`.", "删除 `mountOptions`。"},
			created(withRawDisk(func(d *disk) { d.MountOptions = []string{"noatime"} }))),
		refusal(ids("VS-W18", "decision V5"), Text{"`wipeFilesystem` of a raw disk", "裸盘的 `wipeFilesystem`"}, "has no file system to empty",
			Text{"Berth never looks into a raw disk, so it cannot empty it.", "Berth 从不读取裸盘内容，因此无法清空。"}, Text{"Remove it.", "删除它。"},
			created(withRawDisk(func(d *disk) { d.WipeFilesystem = ptr.To(true) }))),
		refusal(ids("VS-W18"), Text{"Several mount options in one", "一个元素中写了多个挂载选项"}, "must be one option of mount(8)",
			Text{"Options are listed one by one.", "选项要逐个列出。"}, Text{"`mountOptions: [noatime, nodiratime]`.", "`mountOptions: [noatime, nodiratime]`。"},
			created(withDisk(func(d *disk) { d.MountOptions = []string{"noatime,nodiratime"} }))),
		refusal(ids("decision V2"), Text{"Too many disks in a slot", "槽位的磁盘过多"}, "and a machine can have 29 beside its system disk",
			Text{"Persistent and ephemeral disks count together.", "持久磁盘和临时磁盘合并计算。"}, Text{"Use fewer, larger disks.", "使用更少、更大的磁盘。"},
			created(withSlot(func(s *slot) {
				for i := range 28 {
					s.PersistentDisks = append(s.PersistentDisks, disk{Name: fmt.Sprintf("data-%d", i), SizeGiB: 1})
				}
			}))),
	}
}

func allocatedEntries() []Entry {
	quarantined := inState(v1beta1.ConfigStateAvailable)
	quarantined.Status.ConfigStatuses[0].Quarantine = "two virtual machines hold its disk"
	lost := newPool()
	lost.Finalizers = []string{v1beta1.MachineConfigPoolFinalizer}
	without := func(p *pool) { p.Spec.Configs = p.Spec.Configs[1:] }
	geometry := Text{"An existing disk keeps its size, mount path, unit and datastore; growing counts as a change.", "已有磁盘的大小、挂载路径、单元号和数据存储不变；扩大也算更改。"}
	newOne := Text{"Add a slot with the disk you want, move the node there, and take the old slot out when it is Available.", "新增具有所需磁盘的槽位，把节点移过去，旧槽位变为 Available 后再移除。"}
	later := Text{"The running machine stays as it is; its successor in the slot gets the new form.", "运行中的机器保持不变；该槽位的下一台机器才使用新形式。"}
	nothing := Text{"Nothing, or replace the machine when it suits you.", "无需处理；或在合适的时候替换机器。"}
	return []Entry{
		refusal(ids("VS-W19", "VS-R11", "decision D17", "decision D22"), Text{"A slot that is not Available is removed or renamed", "移除或重命名非 Available 的槽位"}, "cannot be removed or renamed while it is",
			Text{"A machine uses it, or its disks wait for one. Another host name is another slot.", "有机器在使用，或其磁盘在等待机器。主机名不同就是另一个槽位。"},
			Text{"Scale in and wait until the slot is Available; the message says what it waits for.", "缩容并等待槽位变为 Available；消息说明了在等什么。"},
			edited(without), editedFrom(inState(v1beta1.ConfigStateReleased), without), editedFrom(lost, without), editedFrom(quarantined, without)),
		refusal(ids("VS-W20", "VS-R12"), Text{"The primary address of such a slot is changed", "更改此类槽位的主地址"}, "its address cannot change from",
			Text{"A place is its address; the node in it is known by it. Adding and clearing count as changes.", "位置就是地址，节点以此为人所知。新增和清除也算更改。"},
			Text{"Add a slot with the new address instead.", "改为新增一个使用新地址的槽位。"},
			edited(withNIC(func(n *nic) { n.IP = "192.0.2.99/24" }))),
		refusal(ids("VS-W24"), Text{"The datacenter of such a slot is changed", "更改此类槽位的数据中心"}, "its disks would stay behind",
			Text{"Persistent disks do not move between datacenters.", "持久磁盘不会在数据中心之间移动。"}, Text{"Add a slot there.", "在目标数据中心新增槽位。"},
			edited(withSlot(func(s *slot) { s.Datacenter = "dc-b" }))),
		refusal(ids("VS-W21", "VS-R13"), Text{"A persistent disk of such a slot is removed", "移除此类槽位的持久磁盘"}, "cannot be removed while the slot is",
			Text{"It may hold data, and nothing would find it any more.", "它可能有数据，移除后再也找不到它。"},
			Text{"Put it back. To be rid of it, empty the slot first.", "放回去。确实不要时，先清空槽位。"},
			edited(withSlot(func(s *slot) { s.PersistentDisks = s.PersistentDisks[:1] }))),
		refusal(ids("VS-W22", "VS-R14", "VS-R47"), Text{"Size or mount path of an existing disk is changed", "更改已有磁盘的大小或挂载路径"}, "sizeGiB of disk \"var-cpaas\" cannot change from",
			geometry, newOne, edited(withDisk(func(d *disk) { d.SizeGiB = 200 }))),
		refusal(ids("VS-W22", "VS-R14"), Text{"The mount path of an existing disk is changed", "更改已有磁盘的挂载路径"}, "mountPath of disk \"var-cpaas\" cannot change from",
			geometry, newOne, edited(mounted("/data"))),
		refusal(ids("VS-W23"), Text{"The unit of an existing disk is changed", "更改已有磁盘的单元号"}, "unitNumber of disk \"var-cpaas\" cannot change from",
			geometry, Text{"Leave it as it was, or remove it.", "保持原样，或删除该字段。"},
			func() judge {
				old := inState(v1beta1.ConfigStateInUse)
				old.Spec.Configs[0].PersistentDisks[0].UnitNumber = ptr.To[int32](2)
				return editedFrom(old, withDisk(func(d *disk) { d.UnitNumber = ptr.To[int32](3) }))
			}()),
		refusal(ids("VS-W24"), Text{"The datastore of an existing disk is changed", "更改已有磁盘的数据存储"}, "datastore of disk \"var-cpaas\" cannot change from",
			geometry, newOne, edited(withDisk(func(d *disk) { d.Datastore = "ds-2" }))),
		warning(ids("VS-W24"), Text{"The storage policy of an existing disk is changed", "更改已有磁盘的存储策略"}, "counts only for a disk that is still to be created",
			Text{"A policy chooses where a disk is created.", "存储策略只决定磁盘创建在哪里。"}, nothing, edited(withDisk(func(d *disk) { d.StoragePolicy = "gold" }))),
		warning(ids("VS-W24"), Text{"The file system of an existing disk is changed", "更改已有磁盘的文件系统"}, "keeps its file system",
			Text{"Berth formats only what is proven blank; the data stays in the file system it is in.", "Berth 只格式化确认空白的磁盘；数据仍在原文件系统中。"}, nothing, edited(withDisk(func(d *disk) { d.FSFormat = v1beta1.XFS }))),
		warning(ids("VS-W24"), Text{"Mount options of an existing disk are changed", "更改已有磁盘的挂载选项"}, "new mount options of disk",
			later, nothing, edited(withDisk(func(d *disk) { d.MountOptions = []string{"noatime"} }))),
		warning(ids("VS-R13", "VS-R48"), Text{"`wipeFilesystem` is switched on for a disk with data", "对有数据的磁盘打开 `wipeFilesystem`"}, "will be emptied on the first start of the next machine",
			Text{"From now on every replacement loses what is on this disk.", "从现在起，每次替换都会丢失该磁盘的内容。"},
			Text{"Switch it off unless that is what you want.", "除非正是所需，否则关闭。"}, edited(withDisk(func(d *disk) { d.WipeFilesystem = ptr.To(true) }))),
		warning(ids("VS-W24"), Text{"A record of older versions is edited", "编辑旧版本留下的记录"}, "are a record of older versions",
			Text{"`volumePath` and `diskUUID` in spec are not read any more.", "spec 中的 `volumePath` 和 `diskUUID` 不再被读取。"}, Text{"Nothing.", "无需处理。"},
			edited(withDisk(func(d *disk) { d.VolumePath = "[ds-1] a/b.vmdk" }))),
		warning(ids("VS-W25", "VS-R16"), Text{"A disk is added to such a slot", "向此类槽位添加磁盘"}, "will be created when its machine is replaced",
			later, nothing,
			edited(withSlot(func(s *slot) { s.PersistentDisks = append(s.PersistentDisks, disk{Name: "more", SizeGiB: 10}) })),
			edited(withSlot(func(s *slot) {
				s.EphemeralDisks = append(s.EphemeralDisks, v1beta1.EphemeralDisk{Name: "more", SizeGiB: 10})
			}))),
		warning(ids("VS-W24"), Text{"An ephemeral disk of such a slot is removed", "移除此类槽位的临时磁盘"}, "goes away when its machine is replaced",
			later, nothing, edited(withSlot(func(s *slot) { s.EphemeralDisks = nil }))),
		warning(ids("VS-W24"), Text{"An ephemeral disk of such a slot is changed", "更改此类槽位的临时磁盘"}, "the change of ephemeral disk",
			later, nothing, edited(withSlot(func(s *slot) { s.EphemeralDisks[0].SizeGiB = 80 }))),
		warning(ids("VS-R50", "VS-R49"), Text{"The network of such a slot is changed", "更改此类槽位的网络"}, "the change takes effect when its machine is replaced",
			Text{"Gateway, name servers and further interfaces count from the next machine on; a live one is never edited.", "网关、DNS 和附加网卡从下一台机器开始生效；运行中的机器从不修改。"}, nothing,
			edited(withNIC(func(n *nic) { n.DNS = []string{"192.0.2.54"} }))),
	}
}
