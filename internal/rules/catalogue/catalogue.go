// Package catalogue explains every refusal and warning of package rules: what a message means and what to do. Each entry carries an
// input that provokes its message, so that the page made of it shows what the rules really say; tests run every input, and hold
// the entries against the sentences in the source of the rules, so that nothing is missing and nothing is stale.
//
// Whoever adds a sentence to package rules adds an entry here, and runs hack/generate.sh.
package catalogue

import (
	"slices"
	"strings"

	"github.com/berth-dev/berth/internal/rules"
)

// Text in the two languages of the documentation.
type Text struct{ EN, ZH string }

// Entry is one refusal or warning.
type Entry struct {
	// IDs of the requirements it comes from; the first one names it.
	IDs []string
	// Title says in a few words what was wrong.
	Title Text
	// Warns: it goes with an accepted change. Otherwise it is a refusal.
	Warns bool
	// Fragment of the message that stays as it is; documentation, searches and alarms match on it.
	Fragment string
	// Means says why the rule is there, Do what leads out.
	Means, Do Text
	// Examples provoke the message; the first one is shown.
	Examples []func() rules.Verdict
}

// Section of the page: what is judged, and what is said about it.
type Section struct {
	Title   Text
	Entries []Entry
}

// Sections in the order of the page.
func Sections() []Section {
	return []Section{
		{Text{"Pools: the pool itself", "池：池本身"}, poolEntries()},
		{Text{"Pools: host names and addresses", "池：主机名和地址"}, placeEntries()},
		{Text{"Pools: disks of a slot", "池：槽位的磁盘"}, diskEntries()},
		{Text{"Pools: slots that are InUse or Released", "池：InUse 或 Released 的槽位"}, allocatedEntries()},
		{Text{"Pools: what uses them", "池：使用者"}, userEntries()},
		{Text{"MachineDeployments and KubeadmControlPlanes", "MachineDeployment 和 KubeadmControlPlane"}, consumerEntries()},
		{Text{"Machine templates", "机器模板"}, templateEntries()},
		{Text{"Machines and virtual machines", "机器和虚拟机"}, machineEntries()},
		{Text{"Clusters and failure domains", "集群和故障域"}, inventoryEntries()},
		{Text{"Only in `berth validate`", "仅在 `berth validate` 中"}, manifestEntries()},
	}
}

// Accepted is something that people expect to be refused, or that was in another product, and is let through on purpose.
type Accepted struct {
	IDs []string
	Why Text
}

// OnPurpose lists what is accepted by design.
func OnPurpose() []Accepted {
	return []Accepted{
		{[]string{"VS-W28"}, Text{
			"Updates of labels, annotations, finalizers and status, and everything about an object that is being deleted: no rule about spec is asked.",
			"对标签、注解、finalizer 和 status 的更新，以及正在删除的对象的任何更新：不检查任何 spec 规则。",
		}},
		{[]string{"VS-W31"}, Text{
			"A MachineDeployment or KubeadmControlPlane whose template names no pool: its machines are ordinary ones, `maxSurge` may be anything.",
			"模板未引用池的 MachineDeployment 或 KubeadmControlPlane：其机器是普通机器，`maxSurge` 可以任意设置。",
		}},
		{[]string{"VS-W40"}, Text{
			"An empty `datacenter` of a template or machine: it becomes `*`, which fits any slot.",
			"模板或机器的 `datacenter` 为空：自动设为 `*`，适合任何槽位。",
		}},
		{[]string{"VS-R7"}, Text{
			"`type: OnDelete` without any `rollingUpdate`: nothing is replaced unless somebody deletes it.",
			"`type: OnDelete` 且没有 `rollingUpdate`：除非有人删除，否则不会替换任何机器。",
		}},
		{[]string{"VS-R15"}, Text{
			"A new slot, whatever state the others are in, and even if an old slot breaks a rule that came later.",
			"新增槽位：无论其他槽位处于什么状态，即使旧槽位违反了后来才有的规则。",
		}},
		{[]string{"VS-R50"}, Text{
			"An empty `network.additional` instead of none, a mount path with another number of slashes, a unit number where there was none: they mean the same as before.",
			"用空的 `network.additional` 代替缺省、挂载路径的斜杠数量不同、原先没有 unitNumber 而现在补上：含义不变。",
		}},
		{[]string{"VS-R37", "VS-R60"}, Text{
			"Pointing an owner of machines back at its previous template: it is judged like any other change.",
			"把机器所有者指回以前的模板：与任何其他更改一样判断。",
		}},
	}
}

// Message that an entry shows: what the rules say about its first example.
func (e Entry) Message() string { return e.find(e.Examples[0]()) }

// find the message with the entry's fragment in a verdict, "" if there is none of the right kind.
func (e Entry) find(v rules.Verdict) string {
	messages := v.Warnings
	if !e.Warns {
		messages = nil
		for _, err := range v.Errors {
			messages = append(messages, err.Error())
		}
	}
	if i := slices.IndexFunc(messages, func(m string) bool { return strings.Contains(m, e.Fragment) }); i >= 0 {
		return messages[i]
	}
	return ""
}

// refusal is an entry for what is not accepted.
func refusal(ids []string, title Text, fragment string, means, do Text, examples ...func() rules.Verdict) Entry {
	return Entry{IDs: ids, Title: title, Fragment: fragment, Means: means, Do: do, Examples: examples}
}

// warning is an entry for what goes with an accepted change.
func warning(ids []string, title Text, fragment string, means, do Text, examples ...func() rules.Verdict) Entry {
	e := refusal(ids, title, fragment, means, do, examples...)
	e.Warns = true
	return e
}

func ids(names ...string) []string { return names }
