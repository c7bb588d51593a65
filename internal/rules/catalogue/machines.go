package catalogue

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/rules"
)

func templateEntries() []Entry {
	device := func(edit func(*v1beta1.NetworkDeviceSpec)) judge {
		return templated(func(s *spec) { edit(&s.Network.Devices[0]) })
	}
	naming := func(text string) judge {
		return templated(func(s *spec) { s.NamingStrategy = &v1beta1.VSphereVMNamingStrategy{Template: &text} })
	}
	negative := Text{"No machine can have less than nothing.", "不能小于零。"}
	leaveOut := Text{"Leave it out for the default.", "省略以使用默认值。"}
	noDHCP := func(p *pool) {
		p.Spec.Configs[1].Network.Primary.IP, p.Spec.Configs[1].Network.Primary.Gateway = "", ""
	}
	return []Entry{
		refusal(ids("VS-W55", "VS-R29", "VS-R41"), Text{"A template is changed", "更改模板"}, "field is immutable, create a new resource",
			Text{"Machines that were made of it must stay explainable, and changing it would replace nothing.", "由它创建的机器必须可追溯，而且更改它不会替换任何机器。"},
			Text{"`kubectl get vspheremachinetemplate NAME -o yaml`, remove what the server added, give it another name, change it, apply it, and point the owner at it.", "`kubectl get vspheremachinetemplate NAME -o yaml`，去掉服务器生成的字段，改名并修改后应用，再让所有者引用它。"},
			func() rules.Verdict {
				old, t := newTemplate(), newTemplate()
				t.Spec.Template.Spec.MemoryMiB = 32768
				return rules.VSphereMachineTemplate(old, t, rules.VSphereTemplateWorld{})
			}),
		refusal(ids("VS-W50"), Text{"A provider ID in a template", "模板中有 providerID"}, "providerID: Forbidden: cannot be set in templates",
			Text{"It is one machine's identity.", "它是单台机器的身份。"}, Text{"Remove it.", "删除它。"}, templated(func(s *spec) { s.ProviderID = ptr.To("vsphere://4237c4ac") })),
		refusal(ids("VS-W51"), Text{"Static addresses in a template", "模板中有静态地址"}, "would go to every machine",
			Text{"Every machine of the template would get the same address.", "该模板的每台机器都会得到同一个地址。"}, Text{"Declare addresses in the slots of a pool.", "在池的槽位中声明地址。"},
			device(func(d *v1beta1.NetworkDeviceSpec) { d.IPAddrs = []string{"192.0.2.31/24"} })),
		refusal(ids("VS-V24"), Text{"No network device", "没有网络设备"}, "a machine needs at least one network device",
			Text{"A node without network cannot join.", "没有网络的节点无法加入。"}, Text{"List one device for each interface of the slots.", "为槽位的每块网卡列出一个设备。"},
			templated(func(s *spec) { s.Network.Devices, s.MachineConfigPoolRef = nil, nil })),
		refusal(ids("decision V4", "VS-R43", "VS-R49"), Text{"Template and slots have different numbers of interfaces", "模板与槽位的网卡数不同"}, "make both lists the same length, first the slots, then the template",
			oneInterface, Text{"Change the slots first, then make the template.", "先改槽位，再创建模板。"},
			templated(func(s *spec) {
				s.Network.Devices = append(s.Network.Devices, v1beta1.NetworkDeviceSpec{NetworkName: "pg-stor"})
			})),
		warning(ids("VS-R43"), Text{"A device names another network than the slots", "设备的网络名与槽位不同"}, "the slot's network counts",
			Text{"The slot's network replaces the template's.", "槽位的网络会取代模板的网络。"}, Text{"Write the same name into both.", "两处写同一个名称。"}, device(func(d *v1beta1.NetworkDeviceSpec) { d.NetworkName = "pg-old" })),
		warning(ids("VS-V24"), Text{"An interface that gets no address", "网卡没有地址来源"}, "and machines would wait for one",
			Text{"Nothing gives it an address: no slot, no DHCP, no pool of addresses.", "没有任何地址来源：槽位没有地址，没有 DHCP，也没有地址池。"},
			Text{"Give the slot an address, or set `dhcp4`, `dhcp6`, `addressesFromPools` or `skipIPAllocation`.", "给槽位一个地址，或设置 `dhcp4`、`dhcp6`、`addressesFromPools` 或 `skipIPAllocation`。"},
			func() rules.Verdict {
				p := newPool()
				noDHCP(p)
				return rules.VSphereMachineTemplate(nil, newTemplate(), rules.VSphereTemplateWorld{Pool: p})
			},
			templated(func(s *spec) { s.MachineConfigPoolRef = nil })),
		warning(ids("decision D2"), Text{"The pool does not exist yet", "池尚不存在"}, "does not exist yet: create it before",
			Text{"A template may come before its pool; an owner of machines may not.", "模板可以先于池创建，机器所有者则不行。"}, Text{"Apply the pool, or correct the name.", "应用池，或修正名称。"}, templated(func(s *spec) { s.MachineConfigPoolRef.Name = "demo-gpu" })),
		refusal(ids("VS-W56", "VS-R56"), Text{"The pool is in another namespace", "池在其他命名空间"}, "pool, template and machines live in one namespace",
			Text{"References stay inside the namespace of the Cluster.", "引用不出 Cluster 的命名空间。"}, Text{"Leave `namespace` out.", "省略 `namespace`。"}, templated(func(s *spec) { s.MachineConfigPoolRef.Namespace = "default" })),
		refusal(ids("decision V6"), Text{"The reference is to no pool", "引用的不是池"}, "must be VSphereMachineConfigPool, or be left out",
			Text{"Only a VSphereMachineConfigPool has slots.", "只有 VSphereMachineConfigPool 有槽位。"}, Text{"Correct `kind`.", "修正 `kind`。"}, templated(func(s *spec) { s.MachineConfigPoolRef.Kind = "Pool" })),
		refusal(ids("decision V6"), Text{"The reference is of another group", "引用属于其他 API 组"}, "must be of the group infrastructure.cluster.x-k8s.io",
			Text{"Versions make no difference, groups do.", "版本不限，API 组必须一致。"}, Text{"Correct `apiVersion`, or leave it out.", "修正或省略 `apiVersion`。"}, templated(func(s *spec) { s.MachineConfigPoolRef.APIVersion = "example.com/v1" })),
		refusal(ids("VS-W32"), Text{"A pool reference without name", "池引用没有名称"}, "name the VSphereMachineConfigPool, or remove machineConfigPoolRef",
			Text{"With an empty reference it is not clear whether machines shall have places.", "空引用无法判断机器是否应有位置。"}, Text{"Set `name`, or remove the reference.", "设置 `name`，或删除引用。"}, templated(func(s *spec) { s.MachineConfigPoolRef.Name = "" })),
		refusal(ids("decision D8"), Text{"A data disk has the name of a slot's disk", "数据盘与槽位磁盘同名"}, "disks of one machine need different names",
			Text{"Both become disks of one machine, which are told apart by name.", "两者都是同一台机器的磁盘，按名称区分。"}, Text{"Rename the data disk, or leave it out: slots have disks.", "重命名数据盘，或不用它：磁盘可以放在槽位。"},
			templated(func(s *spec) { s.DataDisks = []v1beta1.VSphereDisk{{Name: "var-cpaas", SizeGiB: 10}} })),
		refusal(ids("decision V2"), Text{"More disks than a machine takes", "磁盘总数超限"}, "together with the disks of slot",
			Text{"The template's data disks and the slot's disks count together.", "模板的数据盘与槽位的磁盘合并计算。"}, Text{"Use fewer, larger disks.", "使用更少、更大的磁盘。"},
			templated(func(s *spec) {
				for i := range 27 {
					s.DataDisks = append(s.DataDisks, v1beta1.VSphereDisk{Name: fmt.Sprintf("data-%d", i), SizeGiB: 10})
				}
			})),
		refusal(ids("decision D1"), Text{"A data disk without size", "数据盘没有大小"}, "must have at least 1 GiB",
			Text{"Sizes are whole GiB.", "大小以整 GiB 计。"}, Text{"Set `sizeGiB`.", "设置 `sizeGiB`。"}, templated(func(s *spec) { s.DataDisks = []v1beta1.VSphereDisk{{Name: "scratch"}} })),
		refusal(ids("VS-V8"), Text{"An unknown way to clone", "未知的克隆方式"}, "supported values: \"fullClone\", \"linkedClone\"",
			Text{"There are two ways.", "只有两种方式。"}, Text{"Use one of them; with pools, `fullClone`.", "使用其一；配合池请用 `fullClone`。"}, templated(func(s *spec) { s.CloneMode = "instantClone" })),
		refusal(ids("VS-B25", "VS-R58"), Text{"A disk size for a linked clone", "链接克隆设置了磁盘大小"}, "has no effect with cloneMode linkedClone",
			Text{"A linked clone shares the image's disk and keeps its size; nodes would fill up.", "链接克隆共享镜像的磁盘并保持其大小；节点会写满。"}, Text{"`cloneMode: fullClone`, or remove `diskGiB`.", "`cloneMode: fullClone`，或删除 `diskGiB`。"}, templated(func(s *spec) { s.CloneMode = v1beta1.LinkedClone })),
		warning(ids("VS-R58"), Text{"A disk size, and no word of how to clone", "设置了磁盘大小但未指定克隆方式"}, "counts for full clones only",
			Text{"Without `cloneMode` it depends on the image's snapshots whether the size counts.", "未指定 `cloneMode` 时，大小是否生效取决于镜像是否有快照。"}, Text{"`cloneMode: fullClone`.", "`cloneMode: fullClone`。"}, templated(func(s *spec) { s.CloneMode = "" })),
		warning(ids("VS-V9"), Text{"`additionalDisksGiB`", "`additionalDisksGiB`"}, "are sizes for further disks that the image has already",
			Text{"It creates no disks.", "它不会创建磁盘。"}, Text{"Declare disks in the slots of a pool.", "在池的槽位中声明磁盘。"}, templated(func(s *spec) { s.AdditionalDisksGiB = []int32{50} })),
		warning(ids("VS-V11"), Text{"Fewer processors than there must be", "处理器数过少"}, "processors, the least there is",
			Text{"Values below 2 become 2.", "小于 2 的值按 2 处理。"}, Text{"Set `numCPUs`.", "设置 `numCPUs`。"}, templated(func(s *spec) { s.NumCPUs = 0 })),
		warning(ids("VS-V11"), Text{"No memory size", "未设置内存"}, "machines get 2048 MiB",
			Text{"0 becomes 2048.", "0 按 2048 处理。"}, Text{"Set `memoryMiB`.", "设置 `memoryMiB`。"}, templated(func(s *spec) { s.MemoryMiB = 0 })),
		refusal(ids("VS-V11", "VS-V9"), Text{"A negative size", "负数"}, "must not be negative",
			negative, leaveOut, templated(func(s *spec) { s.NumCPUs = -1 }), templated(func(s *spec) { s.AdditionalDisksGiB = []int32{-1} })),
		refusal(ids("VS-V11"), Text{"Cores that make no whole sockets", "核数不能整除"}, "into whole sockets",
			Text{"vCenter refuses a number of processors that is no multiple of the cores per socket.", "处理器数不是每插槽核数的倍数时，vCenter 会拒绝。"}, Text{"Leave `numCoresPerSocket` out, or choose a divisor.", "省略 `numCoresPerSocket`，或选择约数。"}, templated(func(s *spec) { s.NumCoresPerSocket = 3 })),
		refusal(ids("VS-W52"), Text{"A hardware version that is none", "虚拟硬件版本无效"}, "must be vmx- and a number from 1 to 99",
			Text{"vCenter names versions like that.", "vCenter 就是这样命名版本的。"}, Text{"`vmx-19`, or leave it out to keep the image's.", "`vmx-19`，或省略以保持镜像的版本。"}, templated(func(s *spec) { s.HardwareVersion = "19" })),
		refusal(ids("VS-W54", "VS-V14"), Text{"A naming template that makes no name", "命名模板无法生成名称"}, "must make a valid name from .machine.name",
			Text{"It is tried on a sample name before any machine needs it.", "在任何机器需要之前，先用样例名称试算。"}, Text{"Such as `{{ .machine.name | trunc 40 }}`.", "例如 `{{ .machine.name | trunc 40 }}`。"}, naming("{{ .machine.name }}_VM"), naming("{{ .machine.name")),
		warning(ids("decision D15"), Text{"`failureDomain` in a template", "模板中的 `failureDomain`"}, "has no effect here; set failureDomain in the Machine's owner",
			Text{"Cluster API decides about failure domains in the Machine.", "故障域由 Cluster API 在 Machine 中决定。"}, Text{"Set it in the MachineDeployment.", "在 MachineDeployment 中设置。"}, templated(func(s *spec) { s.FailureDomain = ptr.To("zone-a") })),
	}
}

func machineEntries() []Entry {
	newMachine := func() *v1beta1.VSphereMachine {
		return &v1beta1.VSphereMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "demo-worker-x7k2p"}, Spec: newTemplate().Spec.Template.Spec}
	}
	machine := func(edit func(*spec)) judge {
		return func() rules.Verdict {
			m := newMachine()
			edit(&m.Spec)
			return rules.VSphereMachine(nil, m)
		}
	}
	newVM := func() *v1beta1.VSphereVM {
		vm := &v1beta1.VSphereVM{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "demo-worker-x7k2p"}}
		vm.Spec.VirtualMachineCloneSpec = newTemplate().Spec.Template.Spec.VirtualMachineCloneSpec
		return vm
	}
	return []Entry{
		refusal(ids("VS-W45", "VS-R41"), Text{"The spec of a machine is changed", "更改机器的 spec"}, "cannot be modified, a running machine is not rebuilt by an edit",
			Text{"Machines change by being replaced.", "机器通过替换来更改。"}, Text{"Make a new template and point the owner at it.", "创建新模板并让所有者引用它。"},
			func() rules.Verdict {
				old, m := newMachine(), newMachine()
				m.Spec.NumCPUs = 16
				return rules.VSphereMachine(old, m)
			}),
		refusal(ids("VS-W41", "decision V7"), Text{"`preferredAPIServerCidr`", "`preferredAPIServerCidr`"}, "has no effect any more; remove",
			Text{"The field is a leftover.", "该字段已废弃。"}, Text{"Remove it; in templates likewise.", "删除它；模板中同样。"}, machine(func(s *spec) { s.Network.PreferredAPIServerCIDR = "192.0.2.0/24" })),
		refusal(ids("VS-W42"), Text{"A static address without prefix length", "静态地址缺少前缀长度"}, "must be an address in CIDR form, such as",
			Text{"The guest needs the size of its network.", "客户机需要知道网络的大小。"}, Text{"Write it as `192.0.2.31/24`.", "写成 `192.0.2.31/24`。"}, machine(func(s *spec) { s.Network.Devices[0].IPAddrs = []string{"192.0.2.31"} })),
		refusal(ids("VS-W43", "VS-W53"), Text{"A timeout for a power-off that does not wait", "关机方式不等待却设置了超时"}, "counts only when powerOffMode is trySoft",
			Text{"`hard` does not wait, and `soft` waits for ever.", "`hard` 不等待，`soft` 一直等待。"}, Text{"`powerOffMode: trySoft`, or remove the timeout; in templates likewise.", "`powerOffMode: trySoft`，或删除超时；模板中同样。"},
			machine(func(s *spec) { s.GuestSoftPowerOffTimeout = &metav1.Duration{Duration: time.Minute} })),
		refusal(ids("VS-W43", "VS-W53"), Text{"A timeout of nothing", "超时为零"}, "must be longer than zero",
			Text{"With no time to shut down, use `hard`.", "不给关机时间就用 `hard`。"}, Text{"Such as `5m`.", "例如 `5m`。"},
			machine(func(s *spec) {
				s.PowerOffMode, s.GuestSoftPowerOffTimeout = v1beta1.VirtualMachinePowerOpModeTrySoft, &metav1.Duration{}
			})),
		refusal(ids("VS-W44", "VS-W53"), Text{"Half a PCI device", "PCI 设备信息不完整"}, "needs both deviceId and vendorId, or vGPUProfile",
			Text{"One number does not find a device.", "只有一个编号无法找到设备。"}, Text{"Complete it; in templates likewise.", "补全；模板中同样。"}, machine(func(s *spec) { s.PciDevices = []v1beta1.PCIDeviceSpec{{DeviceID: ptr.To[int32](7864)}} })),
		refusal(ids("VS-W44", "VS-W53"), Text{"A PCI device in two ways", "同时用两种方式指定 PCI 设备"}, "excludes deviceId and vendorId",
			Text{"A profile and a device are different things.", "配置文件与设备是两回事。"}, Text{"Keep one of the two.", "保留其一。"},
			machine(func(s *spec) {
				s.PciDevices = []v1beta1.PCIDeviceSpec{{VGPUProfile: "grid_t4-8q", DeviceID: ptr.To[int32](7864), VendorID: ptr.To[int32](4318)}}
			})),
		warning(ids("decision V9"), Text{"A VSphereMachine is deleted without its Machine", "单独删除 VSphereMachine"}, "lives: the node goes without being drained",
			Text{"Cluster API drains a node and removes it when the Machine is deleted, not when its infrastructure is.", "只有删除 Machine 时，Cluster API 才会排空并移除节点。"}, Text{"`kubectl delete machine`; an annotation `cluster.x-k8s.io/delete-machine` and scaling down does the same.", "使用 `kubectl delete machine`；或加注解 `cluster.x-k8s.io/delete-machine` 再缩容。"},
			func() rules.Verdict { return rules.VSphereMachineDelete(newMachine(), "demo-worker-abc12") }),
		refusal(ids("VS-V26"), Text{"The spec of a virtual machine is changed", "更改虚拟机的 spec"}, "cannot be modified, it was decided once",
			Text{"The VSphereVM is the record of what was built.", "VSphereVM 记录了实际创建的内容。"}, Text{"Replace the machine.", "替换机器。"},
			func() rules.Verdict {
				old, vm := newVM(), newVM()
				vm.Spec.Datastore = "ds-2"
				return rules.VSphereVM(old, vm)
			}),
		refusal(ids("VS-V20b"), Text{"The name of a Windows machine is too long", "Windows 机器名过长"}, "and the name of a Windows machine at most 15",
			Text{"Windows knows NetBIOS names.", "Windows 使用 NetBIOS 名称。"}, Text{"Shorten names with `namingStrategy` in the template.", "在模板中用 `namingStrategy` 缩短名称。"},
			func() rules.Verdict {
				vm := newVM()
				vm.Spec.OS = v1beta1.Windows
				return rules.VSphereVM(nil, vm)
			}),
		refusal(ids("decision V9"), Text{"A VSphereVM is deleted alone", "单独删除 VSphereVM"}, "lives; delete the Machine instead",
			Text{"It goes with its VSphereMachine.", "它随 VSphereMachine 一起删除。"}, Text{"`kubectl delete machine`.", "使用 `kubectl delete machine`。"},
			func() rules.Verdict { return rules.VSphereVMDelete(newVM(), newMachine()) }),
	}
}
