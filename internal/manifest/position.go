package manifest

import (
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

const mergeKey = "<<"

// Line is where a field stands, given by a path such as spec.configs[0].network.primary.ip or metadata.labels[example.com/name]; the
// line of the nearest field around it if it is not there. What an alias brings in stands where its anchor is.
func (d *Document) Line(path string) int {
	if d.node == nil {
		return d.line
	}
	return d.first + locate(d.node, path, d.node.Line, 0)
}

// maxDepth keeps an anchor that contains itself from leading round and round.
const maxDepth = 200

// locate follows a path as far as it goes. line is that of what n belongs to.
func locate(n *yamlv3.Node, path string, line, depth int) int {
	path = strings.TrimPrefix(path, ".")
	if path == "" || depth > maxDepth {
		return line
	}
	n = target(n)
	switch {
	case n == nil:
	case n.Kind == yamlv3.MappingNode:
		if key, value, rest := step(n, path, depth); value != nil {
			return locate(value, rest, key.Line, depth+1)
		}
	case n.Kind == yamlv3.SequenceNode && path[0] == '[':
		name, rest, ok := strings.Cut(path[1:], "]")
		if !ok {
			break
		}
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(n.Content) {
			return locate(n.Content[i], rest, n.Content[i].Line, depth+1)
		}
		for _, e := range n.Content {
			if named := child(e, "name"); named != nil && named.Value == name || e.Kind == yamlv3.ScalarNode && e.Value == name {
				return locate(e, rest, e.Line, depth+1)
			}
		}
	}
	return line
}

// step finds the key of a mapping that a path begins with. Keys may have dots and slashes in them, so the longest that fits counts.
func step(n *yamlv3.Node, path string, depth int) (key, value *yamlv3.Node, rest string) {
	fits := func(name string) (string, bool) {
		if path[0] == '[' {
			return strings.CutPrefix(path[1:], name+"]")
		}
		after, ok := strings.CutPrefix(path, name)
		return after, ok && (after == "" || after[0] == '.' || after[0] == '[')
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := keyName(n.Content[i])
		if after, ok := fits(name); ok && name != "" && (key == nil || len(after) < len(rest)) {
			key, value, rest = n.Content[i], n.Content[i+1], after
		}
	}
	if key != nil || depth > maxDepth {
		return key, value, rest
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != mergeKey {
			continue
		}
		merged := target(n.Content[i+1])
		list := []*yamlv3.Node{merged}
		if merged != nil && merged.Kind == yamlv3.SequenceNode {
			list = merged.Content
		}
		for _, m := range list {
			if m = target(m); m != nil && m.Kind == yamlv3.MappingNode && m != n {
				if key, value, rest = step(m, path, depth+1); key != nil {
					return key, value, rest
				}
			}
		}
	}
	return nil, nil, ""
}

// target is what an alias stands for.
func target(n *yamlv3.Node) *yamlv3.Node {
	for i := 0; n != nil && n.Kind == yamlv3.AliasNode && i < maxDepth; i++ {
		n = n.Alias
	}
	return n
}

// child is the value of a key, nil if there is none.
func child(n *yamlv3.Node, name string) *yamlv3.Node {
	n = target(n)
	if n == nil || n.Kind != yamlv3.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if keyName(n.Content[i]) == name {
			return target(n.Content[i+1])
		}
	}
	return nil
}

// keyName is what a key is called in JSON. kubectl reads YAML 1.1, where a bare y is true.
func keyName(n *yamlv3.Node) string {
	if n.Kind == yamlv3.AliasNode {
		return keyName(target(n))
	}
	if n.Style == 0 {
		switch n.Value {
		case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE":
			return "true"
		case "n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE":
			return "false"
		}
	}
	return n.Value
}

type duplicate struct {
	key         string
	line, first int
}

// duplicates finds keys that one mapping has twice. Of a mapping that stands in several places by aliases each is told once.
func duplicates(n *yamlv3.Node) []duplicate {
	var out []duplicate
	if n.Kind == yamlv3.MappingNode {
		first := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			name := keyName(k)
			if line, twice := first[name]; twice && k.Value != mergeKey {
				out = append(out, duplicate{key: k.Value, line: k.Line, first: line})
			} else {
				first[name] = k.Line
			}
		}
	}
	for _, c := range n.Content {
		out = append(out, duplicates(c)...)
	}
	return out
}

// Rename gives a misspelt field the name that was meant, so that everything else can be checked as it was meant.
func (d *Document) Rename(parent, name, meant string) bool {
	steps := split(parent)
	at, ok := descend(d.Object, steps).(map[string]any)
	if !ok {
		return false
	}
	value, found := at[name]
	if _, taken := at[meant]; !found || taken {
		return false
	}
	delete(at, name)
	at[meant] = value
	if n := nodeAt(d.node, parent); n != nil {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if keyName(n.Content[i]) == name {
				n.Content[i].Value = meant
			}
		}
	}
	return true
}

func nodeAt(n *yamlv3.Node, path string) *yamlv3.Node {
	for depth := 0; path != "" && n != nil && depth < maxDepth; depth++ {
		n = target(n)
		path = strings.TrimPrefix(path, ".")
		switch {
		case n == nil:
			return nil
		case n.Kind == yamlv3.MappingNode:
			_, n, path = step(n, path, 0)
		case n.Kind == yamlv3.SequenceNode && path[0] == '[':
			name, rest, _ := strings.Cut(path[1:], "]")
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(n.Content) {
				return nil
			}
			n, path = n.Content[i], rest
		default:
			return nil
		}
	}
	if n = target(n); n == nil || n.Kind != yamlv3.MappingNode {
		return nil
	}
	return n
}

// split takes a path apart. Keys with dots in them are out of its reach.
func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
}

func descend(value any, steps []string) any {
	for _, s := range steps {
		switch v := value.(type) {
		case map[string]any:
			value = v[s]
		case []any:
			i, err := strconv.Atoi(s)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			value = v[i]
		default:
			return nil
		}
	}
	return value
}

// Remove takes the value at a path out of an object, so that the rest of it can be read. It reports whether there was one.
func Remove(object map[string]any, path string) bool {
	steps := split(path)
	if len(steps) == 0 {
		return false
	}
	last := steps[len(steps)-1]
	switch at := descend(object, steps[:len(steps)-1]).(type) {
	case map[string]any:
		_, found := at[last]
		delete(at, last)
		return found
	case []any:
		i, err := strconv.Atoi(last)
		if err != nil || i < 0 || i >= len(at) {
			return false
		}
		// Other elements keep their index, which paths in messages name.
		switch at[i].(type) {
		case map[string]any:
			at[i] = map[string]any{}
		default:
			at[i] = nil
		}
		return true
	}
	return false
}
