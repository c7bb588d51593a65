package guest

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// cloudConfig is a parsed cloud-config. It works on YAML nodes, so that what the user wrote keeps its order, its styles and
// its comments.
type cloudConfig struct {
	// header is everything up to and with the cloud-config marker, as it was.
	header []byte
	// root is the top-level mapping.
	root *yaml.Node
}

func parseCloudConfig(data []byte) (*cloudConfig, error) {
	header, body := splitHeader(data)
	var doc yaml.Node
	if err := yaml.Unmarshal(body, &doc); err != nil {
		return nil, &ContentError{Message: "the bootstrap data is not valid YAML as it stands (quote values that start with " +
			"a template expression)", Err: err}
	}
	root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	if len(doc.Content) == 1 && doc.Content[0].Tag != "!!null" {
		root = doc.Content[0]
	}
	if root.Kind != yaml.MappingNode {
		return nil, &ContentError{Message: "the bootstrap data is a cloud-config whose top level is not a mapping"}
	}
	return &cloudConfig{header: header, root: root}, nil
}

func splitHeader(data []byte) (header, body []byte) {
	rest := data
	for len(rest) > 0 {
		line, next, _ := bytes.Cut(rest, []byte("\n"))
		rest = next
		if bytes.Equal(bytes.TrimSpace(line), []byte("#cloud-config")) {
			break
		}
	}
	return data[:len(data)-len(rest)], rest
}

func (c *cloudConfig) encode() ([]byte, error) {
	var out bytes.Buffer
	out.Write(c.header)
	if !bytes.HasSuffix(c.header, []byte("\n")) {
		out.WriteByte('\n')
	}
	quoteFragile(c.root)
	start := out.Len()
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(c.root); err != nil {
		return nil, fmt.Errorf("encoding the cloud-config: %w", err)
	}
	if err := enc.Close(); err != nil {
		return nil, fmt.Errorf("encoding the cloud-config: %w", err)
	}
	if err := sameContent(c.root, out.Bytes()[start:]); err != nil {
		return nil, &ContentError{Message: "the bootstrap data cannot be written again without a change to what the user wrote", Err: err}
	}
	return out.Bytes(), nil
}

// quoteFragile puts quotes around block scalars that begin with white space: the encoder gets their indentation wrong.
func quoteFragile(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && strings.ContainsAny(firstByte(n.Value), " \t\n") && strings.Contains(n.Value, "\n") {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range n.Content {
		quoteFragile(child)
	}
}

func firstByte(s string) string { return s[:min(1, len(s))] }

// sameContent proves that the encoded document says what the tree says.
func sameContent(root *yaml.Node, encoded []byte) error {
	var want, got any
	if err := root.Decode(&want); err != nil {
		return err
	}
	if err := yaml.Unmarshal(encoded, &got); err != nil {
		return err
	}
	if !reflect.DeepEqual(want, got) {
		return errors.New("the YAML encoder lost something")
	}
	return nil
}

// writeFile is one entry of write_files.
type writeFile struct {
	Path        string `yaml:"path"`
	Owner       string `yaml:"owner"`
	Permissions string `yaml:"permissions"`
	Encoding    string `yaml:"encoding,omitempty"`
	Content     string `yaml:"content"`
}

func (c *cloudConfig) prependFiles(files []writeFile) error {
	nodes := make([]*yaml.Node, 0, len(files))
	for _, f := range files {
		n := &yaml.Node{}
		if err := n.Encode(f); err != nil {
			return fmt.Errorf("encoding %s: %w", f.Path, err)
		}
		nodes = append(nodes, n)
	}
	return c.prepend("write_files", nodes)
}

func (c *cloudConfig) prependCommands(commands []string) error {
	nodes := make([]*yaml.Node, 0, len(commands))
	for _, cmd := range commands {
		n := &yaml.Node{}
		n.SetString(cmd)
		n.Style = yaml.DoubleQuotedStyle
		nodes = append(nodes, n)
	}
	return c.prepend("runcmd", nodes)
}

// keepHostName has the guest write the metadata's host name into /etc/hostname, where it is the static one that DHCP and
// reverse DNS do not replace, and write it again should an image preserve another. What the user decided stays.
func (c *cloudConfig) keepHostName() (changed bool) {
	for _, key := range []struct {
		name  string
		value bool
	}{{"preserve_hostname", false}, {"create_hostname_file", true}} {
		if lookup(c.root, key.name) != nil {
			continue
		}
		n := &yaml.Node{}
		n.SetString(strconv.FormatBool(key.value))
		n.Tag = "!!bool"
		set(c.root, key.name, n)
		changed = true
	}
	return changed
}

// prepend puts entries before those of the list at key, which is added at the end of the mapping when it is not there.
func (c *cloudConfig) prepend(key string, entries []*yaml.Node) error {
	list := lookup(c.root, key)
	switch {
	case list == nil:
		k := &yaml.Node{}
		k.SetString(key)
		c.root.Content = append(c.root.Content, k, &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: entries})
		return nil
	case list.Tag == "!!null":
		*list = yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: entries}
		return nil
	case list.Kind != yaml.SequenceNode:
		return &ContentError{Message: fmt.Sprintf("the bootstrap data's %s is not a list (line %d)", key, list.Line)}
	}
	list.Style = 0
	list.Content = append(entries, list.Content...)
	return nil
}

// lookup returns the value of key in mapping m, nil when it is not there.
func lookup(m *yaml.Node, key string) *yaml.Node {
	if m == nil || m.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return resolve(m.Content[i+1])
		}
	}
	return nil
}

func resolve(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// set puts value under key in mapping m, replacing what is there.
func set(m *yaml.Node, key string, value *yaml.Node) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			m.Content[i+1] = value
			return
		}
	}
	k := &yaml.Node{}
	k.SetString(key)
	m.Content = append(m.Content, k, value)
}

// setQuoted is set with a quoted string.
func setQuoted(m *yaml.Node, key, value string) {
	set(m, key, quoted(value))
}

func quoted(value string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(value)
	n.Style = yaml.DoubleQuotedStyle
	return n
}
