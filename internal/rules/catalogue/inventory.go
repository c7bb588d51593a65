package catalogue

import (
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/vsphere/v1beta1"
	"github.com/berth-dev/berth/internal/rules"
)

func inventoryEntries() []Entry {
	cluster := func(edit func(*v1beta1.VSphereClusterSpec)) judge {
		return func() rules.Verdict {
			c := &v1beta1.VSphereCluster{Spec: v1beta1.VSphereClusterSpec{Server: "vcenter.example.com"}}
			c.Name = "demo"
			edit(&c.Spec)
			return rules.VSphereCluster(nil, c, []pool{*newPool()})
		}
	}
	newDomain := func() *v1beta1.VSphereFailureDomain {
		d := domain("dc-a", "pg-node").Domain
		d.Spec.Region = v1beta1.FailureDomain{Name: "region-1", TagCategory: "k8s-region", Type: v1beta1.DatacenterFailureDomain}
		d.Spec.Zone = v1beta1.FailureDomain{Name: "zone-a", TagCategory: "k8s-zone", Type: v1beta1.ComputeClusterFailureDomain}
		d.Spec.Topology.ComputeCluster = ptr.To("cl-a")
		return d
	}
	failureDomain := func(edit func(*v1beta1.VSphereFailureDomainSpec)) judge {
		return func() rules.Verdict {
			d := newDomain()
			edit(&d.Spec)
			return rules.VSphereFailureDomain(nil, d)
		}
	}
	twice := Text{"Networks are listed in one of two forms.", "网络只能用两种形式之一列出。"}
	nameIt := Text{"Name it, or remove the entry.", "填写名称，或删除该项。"}
	return []Entry{
		refusal(ids("VS-V44"), Text{"`server` is a URL", "`server` 是 URL"}, "must be a host name or address without",
			Text{"Berth adds scheme and path itself.", "Berth 自行添加协议和路径。"}, Text{"Write what the message shows.", "按消息所示填写。"}, cluster(func(s *v1beta1.VSphereClusterSpec) { s.Server = "https://vcenter.example.com/" })),
		refusal(ids("VS-V44"), Text{"`server` has a path or a blank", "`server` 含路径或空格"}, "must be the host name or address of vCenter and nothing else",
			Text{"Berth adds scheme and path itself.", "Berth 自行添加协议和路径。"}, Text{"Write the name alone; a port is fine.", "只写主机名，可带端口。"}, cluster(func(s *v1beta1.VSphereClusterSpec) { s.Server = "vcenter.example.com/sdk" })),
		refusal(ids("VS-V44"), Text{"A thumbprint that is none", "证书指纹无效"}, "must be the SHA-1 or SHA-256 thumbprint",
			Text{"With a broken thumbprint no connection would ever succeed.", "指纹错误时，任何连接都不会成功。"}, Text{"`openssl x509 -fingerprint -sha256 -noout` shows it.", "用 `openssl x509 -fingerprint -sha256 -noout` 查看。"}, cluster(func(s *v1beta1.VSphereClusterSpec) { s.Thumbprint = "AB:CD" })),
		refusal(ids("decision D10"), Text{"The endpoint is the address of a slot", "端点是某个槽位的地址"}, "the endpoint needs an address of its own",
			Text{"It belongs to the load balancer or virtual IP.", "它属于负载均衡或虚拟 IP。"}, Text{"Choose another address.", "换一个地址。"}, cluster(func(s *v1beta1.VSphereClusterSpec) {
				s.ControlPlaneEndpoint = v1beta1.APIEndpoint{Host: "192.0.2.31", Port: 6443}
			})),
		refusal(ids("VS-W55"), Text{"A cluster template is changed", "更改集群模板"}, "field is immutable, create a new resource",
			Text{"Clusters that were made of it must stay explainable.", "由它创建的集群必须可追溯。"}, Text{"Make one of another name.", "创建不同名称的模板。"},
			func() rules.Verdict {
				old := &v1beta1.VSphereClusterTemplate{}
				old.Name, old.Spec.Template.Spec.Server = "demo", "vcenter.example.com"
				t := old.DeepCopy()
				t.Spec.Template.Spec.Server = "vcenter-2.example.com"
				return rules.VSphereClusterTemplate(old, t)
			}),
		refusal(ids("VS-R49"), Text{"A failure domain is changed", "更改故障域"}, "a failure domain cannot be modified",
			Text{"Machines have been placed by it.", "已有机器按它放置。"}, Text{"Make one of another name, and name that in the VSphereDeploymentZone.", "创建不同名称的故障域，并在 VSphereDeploymentZone 中引用它。"},
			func() rules.Verdict {
				old, d := newDomain(), newDomain()
				d.Spec.Topology.Networks = append(d.Spec.Topology.Networks, "pg-stor")
				return rules.VSphereFailureDomain(old, d)
			}),
		refusal(ids("VS-R44"), Text{"A region of hosts", "区域类型为主机组"}, "supported values: \"Datacenter\", \"ComputeCluster\"",
			Text{"Only a zone may be a group of hosts.", "只有可用区可以是主机组。"}, Text{"Use one of the two.", "使用二者之一。"}, failureDomain(func(s *v1beta1.VSphereFailureDomainSpec) { s.Region.Type = v1beta1.HostGroupFailureDomain })),
		refusal(ids("VS-R44"), Text{"A zone of hosts without groups", "主机组可用区缺少组"}, "needs the groups of hosts and virtual machines",
			Text{"Machines join the group of virtual machines that an affinity rule ties to the hosts.", "机器加入虚拟机组，由亲和规则绑定到主机。"}, Text{"Set `topology.hosts`.", "设置 `topology.hosts`。"},
			failureDomain(func(s *v1beta1.VSphereFailureDomainSpec) { s.Zone.Type = v1beta1.HostGroupFailureDomain })),
		refusal(ids("VS-R44"), Text{"Groups without a compute cluster", "有组但没有计算集群"}, "groups of hosts belong to a compute cluster",
			Text{"Groups are looked up in it.", "组在计算集群中查找。"}, Text{"Set `topology.computeCluster`.", "设置 `topology.computeCluster`。"},
			failureDomain(func(s *v1beta1.VSphereFailureDomainSpec) {
				s.Topology.Hosts, s.Topology.ComputeCluster = &v1beta1.FailureDomainHosts{VMGroupName: "vms", HostGroupName: "hosts"}, nil
			})),
		refusal(ids("VS-R44"), Text{"A region or zone is a compute cluster without name", "区域或可用区是计算集群但未命名"}, "is of type ComputeCluster, name the cluster",
			Text{"The tag sits on that cluster.", "标签位于该集群上。"}, Text{"Set `topology.computeCluster`.", "设置 `topology.computeCluster`。"}, failureDomain(func(s *v1beta1.VSphereFailureDomainSpec) { s.Topology.ComputeCluster = nil }),
			failureDomain(func(s *v1beta1.VSphereFailureDomainSpec) {
				s.Topology.ComputeCluster, s.Region.Type = nil, v1beta1.ComputeClusterFailureDomain
			})),
		refusal(ids("VS-R43"), Text{"Networks in two forms", "同时用两种形式列出网络"}, "excludes networks, which lists",
			twice, Text{"Keep one of the two.", "保留其一。"}, failureDomain(func(s *v1beta1.VSphereFailureDomainSpec) {
				s.Topology.NetworkConfigurations = []v1beta1.NetworkConfiguration{{NetworkName: "pg-node"}}
			})),
		refusal(ids("VS-R43"), Text{"A network without name", "网络没有名称"}, "name the network or port group of this interface",
			Text{"The list is that of the interfaces, in their order.", "该列表按顺序对应网卡。"}, nameIt,
			failureDomain(func(s *v1beta1.VSphereFailureDomainSpec) { s.Topology.Networks = []string{"pg-node", ""} }),
			failureDomain(func(s *v1beta1.VSphereFailureDomainSpec) {
				s.Topology.Networks, s.Topology.NetworkConfigurations = nil, []v1beta1.NetworkConfiguration{{}}
			})),
	}
}
