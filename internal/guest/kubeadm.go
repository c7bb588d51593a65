package guest

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"
)

// kubeadmDir is where bootstrap providers put kubeadm's configuration.
const kubeadmDir = "/run/kubeadm"

// setKubeadm sets the node name and the kubelet's node-ip in every kubeadm document that the user data writes, wherever
// there is no value or a template expression: the node must carry the place's name, not what the guest happens to believe.
func (c *cloudConfig) setKubeadm(hostName, nodeIP string) (changed bool, err error) {
	if hostName == "" && nodeIP == "" {
		return false, nil
	}
	files := lookup(c.root, "write_files")
	if files == nil || files.Kind != yaml.SequenceNode {
		return false, nil
	}
	for _, f := range files.Content {
		f = resolve(f)
		p := lookup(f, "path")
		if p == nil || path.Dir(path.Clean(p.Value)) != kubeadmDir {
			continue
		}
		content := lookup(f, "content")
		if content == nil {
			continue
		}
		text, recode, err := decodeContent(f, content)
		if err != nil {
			return false, err
		}
		out, did, err := kubeadmFile(text, hostName, nodeIP)
		if err != nil {
			return false, &ContentError{Message: fmt.Sprintf("the kubeadm configuration %s in the bootstrap data is not valid YAML",
				p.Value), Err: err}
		}
		if !did {
			continue
		}
		changed = true
		content.SetString(recode(out))
	}
	return changed, nil
}

// decodeContent undoes a write_files entry's encoding and returns how to redo it.
func decodeContent(file, content *yaml.Node) (text string, recode func(string) string, err error) {
	encoding := ""
	if e := lookup(file, "encoding"); e != nil {
		encoding = strings.ToLower(e.Value)
	}
	switch encoding {
	case "", "text/plain":
		return content.Value, func(s string) string { return s }, nil
	case "b64", "base64":
		raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(content.Value), ""))
		if err != nil {
			return "", nil, &ContentError{Message: "a kubeadm file in the bootstrap data is not valid base64", Err: err}
		}
		return string(raw), func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }, nil
	default:
		return "", nil, &ContentError{Message: fmt.Sprintf("a kubeadm file in the bootstrap data has encoding %q; "+
			"the node name cannot be set in it", encoding)}
	}
}

func kubeadmFile(text, hostName, nodeIP string) (out string, changed bool, err error) {
	dec := yaml.NewDecoder(strings.NewReader(text))
	var docs []*yaml.Node
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", false, err
		}
		if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
			continue
		}
		root := doc.Content[0]
		kind := lookup(root, "kind")
		if kind != nil && (kind.Value == "InitConfiguration" || kind.Value == "JoinConfiguration") {
			if setNodeRegistration(root, hostName, nodeIP) {
				changed = true
			}
		}
		docs = append(docs, root)
	}
	if !changed {
		return text, false, nil
	}
	var buf bytes.Buffer
	if strings.HasPrefix(text, "---") {
		buf.WriteString("---\n")
	}
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	for _, d := range docs {
		if err := enc.Encode(d); err != nil {
			return "", false, err
		}
	}
	if err := enc.Close(); err != nil {
		return "", false, err
	}
	return buf.String(), true, nil
}

func setNodeRegistration(root *yaml.Node, hostName, nodeIP string) (changed bool) {
	reg := lookup(root, "nodeRegistration")
	if reg == nil || reg.Kind != yaml.MappingNode {
		reg = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		set(root, "nodeRegistration", reg)
	}
	reg.Style = 0
	if hostName != "" && undecided(lookup(reg, "name")) {
		setQuoted(reg, "name", hostName)
		changed = true
	}
	if nodeIP != "" && setKubeletArg(root, reg, "node-ip", nodeIP) {
		changed = true
	}
	return changed
}

// undecided reports whether a value is absent or left to a template.
func undecided(n *yaml.Node) bool {
	return n == nil || n.Tag == "!!null" || n.Value == "" || strings.Contains(n.Value, "{{")
}

// setKubeletArg sets an argument of the kubelet in either shape: a list of name and value (kubeadm v1beta4), a mapping
// before.
func setKubeletArg(root, reg *yaml.Node, name, value string) (changed bool) {
	args := lookup(reg, "kubeletExtraArgs")
	if args == nil || args.Tag == "!!null" || (args.Kind == yaml.MappingNode && len(args.Content) == 0) {
		args = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		if v := lookup(root, "apiVersion"); v != nil && oldKubeadm(v.Value) {
			args = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		}
		set(reg, "kubeletExtraArgs", args)
	}
	args.Style = 0
	switch args.Kind {
	case yaml.MappingNode:
		if !undecided(lookup(args, name)) {
			return false
		}
		setQuoted(args, name, value)
		return true
	case yaml.SequenceNode:
		for _, arg := range args.Content {
			arg = resolve(arg)
			if n := lookup(arg, "name"); n == nil || n.Value != name {
				continue
			}
			if !undecided(lookup(arg, "value")) {
				return false
			}
			setQuoted(arg, "value", value)
			return true
		}
		arg := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		setQuoted(arg, "name", name)
		setQuoted(arg, "value", value)
		args.Content = append(args.Content, arg)
		return true
	}
	return false
}

// oldKubeadm reports whether extra arguments are a mapping in this API version.
func oldKubeadm(apiVersion string) bool {
	switch apiVersion {
	case "kubeadm.k8s.io/v1beta1", "kubeadm.k8s.io/v1beta2", "kubeadm.k8s.io/v1beta3":
		return true
	}
	return false
}
