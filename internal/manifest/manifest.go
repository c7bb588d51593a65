// Package manifest reads the manifests that people write, and remembers on which line each field stands.
//
// Values are those that kubectl would send: the text is decoded as kubectl decodes it. Positions come from a second look at the same
// text, so nothing about a position can change a value.
package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// Document is one object of the input.
type Document struct {
	// File as it was given; "-" is standard input.
	File string
	// Object as an API server would get it: whole numbers are int64.
	Object map[string]any

	node *yamlv3.Node // nil if the positions are not known
	// first is added to the lines of node, line is where the document begins.
	first, line int
}

// Problem is a mistake that has to do with the text and not with an object.
type Problem struct {
	File    string
	Line    int
	Message string
}

// Parse reads all documents of a text: YAML or JSON, one or more, lists taken apart. What is not well-formed is a Problem; the other
// documents are read nevertheless.
func Parse(file string, text []byte) ([]*Document, []Problem) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	var docs []*Document
	var problems []Problem
	for _, c := range chunks(text) {
		found, bad := parseChunk(file, c)
		docs, problems = append(docs, found...), append(problems, bad...)
	}
	return docs, problems
}

// chunk is the text of one document, and the number of lines before it.
type chunk struct {
	text   []byte
	before int
	json   bool
}

// chunks splits a stream at its document markers.
func chunks(text []byte) []chunk {
	var out []chunk
	var current []byte
	before, lines, content := 0, 0, false
	end := func(next int) {
		if content {
			out = append(out, jsonValues(chunk{text: current, before: before})...)
		}
		current, before, content = nil, next, false
	}
	for _, line := range bytes.SplitAfter(text, []byte("\n")) {
		switch {
		case isMarker(line, "---"):
			if content {
				end(lines)
			}
			// What follows the marker on its line belongs to the document.
			line = append([]byte("   "), line[3:]...)
		case isMarker(line, "..."):
			end(lines + 1)
			lines++
			continue
		}
		trimmed := bytes.TrimSpace(line)
		directive := len(line) > 0 && line[0] == '%' && !content
		if directive {
			line = []byte("\n")
		} else if len(trimmed) > 0 && trimmed[0] != '#' {
			content = true
		}
		current = append(current, line...)
		lines++
	}
	end(lines)
	return out
}

func isMarker(line []byte, marker string) bool {
	return bytes.HasPrefix(line, []byte(marker)) && (len(line) == 3 || strings.ContainsRune(" \t\r\n", rune(line[3])))
}

// jsonValues takes apart several JSON values that follow each other without markers.
func jsonValues(c chunk) []chunk {
	if t := bytes.TrimSpace(c.text); len(t) == 0 || t[0] != '{' {
		return []chunk{c}
	}
	decoder := json.NewDecoder(bytes.NewReader(c.text))
	var out []chunk
	start := int64(0)
	for {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			break
		}
		end := decoder.InputOffset()
		// Blank lines in front keep columns out of the count, not lines.
		value := c.text[start:end]
		skipped := len(value) - len(bytes.TrimLeft(value, " \t\r\n"))
		before := c.before + bytes.Count(c.text[:start+int64(skipped)], []byte("\n"))
		out = append(out, chunk{text: value[skipped:], before: before, json: true})
		start = end
	}
	if len(bytes.TrimSpace(c.text[start:])) > 0 {
		return []chunk{c} // not JSON after all; YAML may make sense of it, or say what is wrong
	}
	return out
}

func parseChunk(file string, c chunk) ([]*Document, []Problem) {
	problem := func(line int, format string, args ...any) []Problem {
		return []Problem{{File: file, Line: line, Message: fmt.Sprintf(format, args...)}}
	}
	start := c.before + 1 + bytes.Count(c.text[:len(c.text)-len(bytes.TrimLeft(c.text, " \t\r\n"))], []byte("\n"))

	var root yamlv3.Node
	known := true
	if err := yamlv3.Unmarshal(c.text, &root); err != nil {
		if !c.json {
			line, message := yamlError(err.Error(), c.text)
			return nil, problem(c.before+line, "not valid YAML: %s", message)
		}
		known = false
	}
	var problems []Problem
	if known {
		for _, d := range duplicates(&root) {
			problems = append(problems, problem(c.before+d.line, "key %q is set twice, first on line %d; remove one of them", d.key, c.before+d.first)...)
		}
	}
	value, err := decode(c)
	if err != nil {
		line, message := yamlError(err.Error(), c.text)
		return nil, problem(c.before+line, "not valid YAML: %s", message)
	}
	if value == nil {
		return nil, problems
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, append(problems, problem(start, "not an object of Kubernetes: a mapping with apiVersion and kind is expected")...)
	}
	d := &Document{File: file, Object: object, first: c.before, line: start}
	if known && len(root.Content) > 0 {
		d.node = root.Content[0]
	}
	docs, bad := d.items()
	return docs, append(problems, bad...)
}

// decode gives the values that kubectl would send.
func decode(c chunk) (any, error) {
	text := c.text
	if !c.json {
		converted, err := yaml.YAMLToJSON(text)
		if err != nil {
			return nil, err
		}
		text = converted
	}
	var value any
	err := utiljson.Unmarshal(text, &value)
	return value, err
}

// items takes a list apart.
func (d *Document) items() ([]*Document, []Problem) {
	kind, _ := d.Object["kind"].(string)
	items, isList := d.Object["items"].([]any)
	if !strings.HasSuffix(kind, "List") || !isList {
		return []*Document{d}, nil
	}
	var docs []*Document
	var problems []Problem
	for i, item := range items {
		path := fmt.Sprintf("items[%d]", i)
		line := d.Line(path)
		object, ok := item.(map[string]any)
		if !ok {
			problems = append(problems, Problem{File: d.File, Line: line, Message: path + " is not an object of Kubernetes"})
			continue
		}
		one := &Document{File: d.File, Object: object, first: d.first, line: line}
		if list := child(d.node, "items"); list != nil && i < len(list.Content) {
			one.node = list.Content[i]
		}
		found, bad := one.items()
		docs, problems = append(docs, found...), append(problems, bad...)
	}
	return docs, problems
}

var (
	yamlLine   = regexp.MustCompile(`line (\d+): `)
	yamlAnchor = regexp.MustCompile(`unknown anchor '([^']*)'`)
)

// yamlError finds the line that a YAML library complains about, counted from 1, and what it says.
func yamlError(message string, text []byte) (int, string) {
	message = strings.TrimPrefix(message, "error converting YAML to JSON: ")
	message = strings.TrimPrefix(message, "yaml: ")
	message = strings.TrimPrefix(message, "unmarshal errors:\n  ")
	line := 1
	if m := yamlLine.FindStringSubmatchIndex(message); m != nil {
		line, _ = strconv.Atoi(message[m[2]:m[3]])
		message = message[:m[0]] + message[m[1]:]
		// The parser counts from 0, the scanner from 1.
		if strings.HasPrefix(message, "did not find expected") {
			line++
		}
	} else if m := yamlAnchor.FindStringSubmatch(message); m != nil {
		if i := bytes.Index(text, []byte("*"+m[1])); i >= 0 {
			line += bytes.Count(text[:i], []byte("\n"))
		}
	} else {
		// Without a line it is the first one with content.
		line += bytes.Count(text[:len(text)-len(bytes.TrimLeft(text, " \t\r\n"))], []byte("\n"))
	}
	message, _, _ = strings.Cut(message, "\n")
	return min(line, bytes.Count(text, []byte("\n"))+1), message
}
