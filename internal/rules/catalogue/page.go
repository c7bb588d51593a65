package catalogue

import (
	"fmt"
	"strings"
)

// Page of the documentation.
type Page struct{ Name, Text string }

// Pages are docs/admission.md and docs/admission.zh.md, made of the entries.
func Pages() []Page {
	en := func(t Text) string { return t.EN }
	zh := func(t Text) string { return t.ZH }
	return []Page{
		{"admission.md", page(en, Text{EN: introEN}, words{
			accepted: "## What is accepted on purpose", refusal: "Refused", warning: "Warning", means: "Why", do: "Way out",
		})},
		{"admission.zh.md", page(zh, Text{ZH: introZH}, words{
			accepted: "## 有意接受的内容", refusal: "拒绝", warning: "警告", means: "原因", do: "处理",
		})},
	}
}

type words struct{ accepted, refusal, warning, means, do string }

const introEN = `<!-- Generated from package internal/rules/catalogue by hack/generate.sh. Do not edit. -->

# What admission refuses, and what it warns about

[中文](admission.zh.md)

Every message here was made by the rules themselves from a small wrong input, so it reads like yours, with other names. Search this page
for a few words of your message; the part in **bold** below a message stays the same from release to release.

A refusal looks like this, with one sentence for each thing that is wrong:

` + "```text" + `
%s
` + "```" + `

- The path is the field, as it is written in the version you applied. Then what was found, what it clashes with, and what to do.
- A warning goes with an accepted change. kubectl prints it as ` + "`Warning: …`" + `.
- "cannot check … against what is there, try again" means that Berth could not read other objects. It refuses rather than guess.
- The same rules run in the controllers, for objects that came while the webhooks were off: a pool says
  ` + "`MembersValid`" + ` or ` + "`MembersUnique`" + ` is false with the same sentence, see [conditions](conditions.md).
- The names in brackets are those of [the requirements](requirements/README.md).
`

const introZH = `<!-- Generated from package internal/rules/catalogue by hack/generate.sh. Do not edit. -->

# 准入拒绝与警告

[English](admission.md)

本页的每条消息都由规则本身根据一个小的错误输入生成，因此与你看到的消息相同，只是名称不同。请用消息中的几个词在本页搜索；消息下方**粗体**部分在各版本之间保持不变。

一次拒绝如下所示，每个问题一句话：

` + "```text" + `
%s
` + "```" + `

- 路径是字段，按你应用的版本书写。随后是发现的值、与什么冲突，以及如何处理。
- 警告随被接受的更改一起出现，kubectl 显示为 ` + "`Warning: …`" + `。
- “cannot check … against what is there, try again” 表示 Berth 无法读取其他对象。它宁可拒绝，也不猜测。
- 控制器使用同样的规则，处理 webhook 关闭期间进入的对象：池的 ` + "`MembersValid`" + ` 或 ` + "`MembersUnique`" + ` 为 false，并给出同一句话，参见 [conditions](conditions.md)（英文）。
- 括号中的名称见 [requirements](requirements/README.md)（英文）。
`

func page(in func(Text) string, intro Text, w words) string {
	var b strings.Builder
	sample := `The VSphereMachineConfigPool "demo-worker" is invalid: ` + allocatedEntries()[0].Message()
	fmt.Fprintf(&b, in(intro), wrapped(sample))
	for _, s := range Sections() {
		fmt.Fprintf(&b, "\n## %s\n", in(s.Title))
		for _, e := range s.Entries {
			kind := w.refusal
			if e.Warns {
				kind = w.warning
			}
			fmt.Fprintf(&b, "\n### %s\n\n", in(e.Title))
			fmt.Fprintf(&b, "```text\n%s\n```\n\n", wrapped(e.Message()))
			fmt.Fprintf(&b, "%s: **%s** (%s)\n\n", kind, escaped(e.Fragment), strings.Join(e.IDs, ", "))
			fmt.Fprintf(&b, "- %s: %s\n- %s: %s\n", w.means, in(e.Means), w.do, in(e.Do))
		}
	}
	fmt.Fprintf(&b, "\n%s\n\n", w.accepted)
	for _, a := range OnPurpose() {
		fmt.Fprintf(&b, "- %s (%s)\n", in(a.Why), strings.Join(a.IDs, ", "))
	}
	return b.String()
}

// escaped is a text that Markdown leaves as it is.
func escaped(s string) string {
	return strings.NewReplacer("*", `\*`, "_", `\_`, "<", `\<`).Replace(s)
}

// wrapped breaks a long message at blanks, so that it can be read without scrolling.
func wrapped(message string) string {
	const width = 120
	var b strings.Builder
	column := 0
	for i, word := range strings.Split(strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(message), " ") {
		switch {
		case i == 0:
		case column+1+len(word) > width:
			b.WriteString("\n  ")
			column = 2
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
