package catalogue

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/internal/rules"
)

// manifestEntries are what only berth validate asks, because the platform on top demands it and admission has no say in it.
func manifestEntries() []Entry {
	kubelet := func(files, directories []string) judge {
		return func() rules.Verdict {
			return rules.Verdict{Warnings: []string{rules.KubeletPatch("v1.36.3", files, directories)}}
		}
	}
	needed := Text{"From Kubernetes 1.35 on the kubelet verifies credentials of images that are there already, and the platform's images have none.", "从 Kubernetes 1.35 起，kubelet 会校验已有镜像的凭据，而平台镜像没有凭据。"}
	return []Entry{
		refusal(ids("VS-R62"), Text{"A workload cluster has the management cluster's name", "业务集群使用了管理集群的名称"}, "belong to the management cluster; give the workload cluster another name",
			Text{"The platform keeps `global` and `global-…` for itself. Admission only warns, because the management cluster may manage its own nodes.", "平台保留 `global` 和 `global-…`。准入只警告，因为管理集群可以管理自己的节点。"},
			Text{"Choose another name.", "换一个名称。"},
			func() rules.Verdict { return rules.Verdict{Errors: field.ErrorList{rules.ClusterName("global-a")}} }),
		warning(ids("VS-R45", "VS-R57"), Text{"A disk that the platform builds on is missing", "缺少平台所需的磁盘"}, "lacks disks that the platform keeps its data on",
			Text{"The platform finds its data by the names of these disks.", "平台按这些磁盘的名称找到数据。"}, Text{"Declare them in every slot.", "在每个槽位中声明。"},
			func() rules.Verdict { return rules.RequiredDisks(newPool(), false) }),
		warning(ids("VS-R40", "decision V12"), Text{"No kubelet patch", "缺少 kubelet 补丁"}, "need a kubelet patch",
			needed, Text{"Add the file to the bootstrap template, with `imagePullCredentialsVerificationPolicy: NeverVerify`.", "在 bootstrap 模板中添加该文件，内容含 `imagePullCredentialsVerificationPolicy: NeverVerify`。"},
			kubelet(nil, nil)),
		warning(ids("VS-R40", "decision V12"), Text{"A kubelet patch that is not applied", "kubelet 补丁未生效"}, "is not applied: kubeadm looks for patches in",
			needed, Text{"Let `patches.directory` be the file's directory.", "将 `patches.directory` 设为该文件所在目录。"},
			kubelet([]string{rules.KubeletPatchDirectory + "/kubeletconfiguration0+strategic.json"}, []string{"/etc/patches"})),
	}
}
