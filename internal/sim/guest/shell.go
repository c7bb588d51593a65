package guest

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// shell interprets the commands of user data. It knows lists of simple commands (&&, ||, ;), quotes and redirections. What
// needs a real shell (pipes, variables, loops) is not run but written down, and counts as having succeeded.
type shell struct {
	g   *machine
	ctx context.Context //nolint:containedctx // it lives as long as one run of cloud-init
	// again: this boot repeats one that the simulator cut short.
	again bool
	// exited after "exit": the rest of the list is not run.
	exited bool
}

// commands runs a list as cloud-init does: all entries are one script, and a failure does not stop it.
func (s *shell) commands(module string, list []any) {
	for _, entry := range list {
		if s.exited || s.ctx.Err() != nil {
			return
		}
		switch e := entry.(type) {
		case string:
			s.run(e)
		case []any:
			words := make([]string, len(e))
			for i, w := range e {
				words[i] = textOf(w)
			}
			s.simple(command{words: words})
		case nil:
		default:
			s.g.fail("cloud-init: %s: entry %v is neither a string nor a list", module, e)
		}
	}
}

// command is a simple command with its redirection.
type command struct {
	words []string
	// output file of standard output, "" for the console; add appends.
	output string
	add    bool
	// operator that follows: "&&", "||", ";" or "".
	operator string
}

// run interprets one piece of shell and returns its exit status.
func (s *shell) run(text string) int {
	list, err := parse(text)
	if err != nil {
		s.g.notRun(text)
		return 0
	}
	status, skip := 0, false
	for _, c := range list {
		if s.exited || s.ctx.Err() != nil {
			return status
		}
		if !skip {
			status = s.simple(c)
		}
		skip = (c.operator == "&&" && status != 0) || (c.operator == "||" && status == 0)
	}
	return status
}

func (s *shell) simple(c command) int {
	words := c.words
	for len(words) > 0 && (words[0] == "sudo" || isAssignment(words[0])) {
		words = words[1:]
	}
	if len(words) == 0 {
		return 0
	}
	name := words[0][strings.LastIndexByte(words[0], '/')+1:]
	if words[0] == scriptPath {
		name = scriptPath
	}
	run, known := builtins[name]
	if !known {
		s.g.notRun(strings.Join(c.words, " "))
		return 0
	}
	var out strings.Builder
	status := run(s, words[1:], &out)
	if c.output == "" {
		if out.Len() > 0 {
			s.g.console.say("cloud-init", "%s", out.String())
		}
		return status
	}
	if c.output == "/dev/null" {
		return status
	}
	var err error
	if c.add {
		err = s.g.fs.extend(c.output, []byte(out.String()), 0o644)
	} else {
		err = s.g.fs.write(c.output, []byte(out.String()), 0o644)
	}
	if err != nil {
		s.g.console.say("cloud-init", "sh: %v", err)
		return 1
	}
	return status
}

func isAssignment(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	if !ok || name == "" {
		return false
	}
	for i, r := range name {
		letter := r == '_' || (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z')
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return true
}

var errNeedsShell = errors.New("needs a real shell")

// keywords begin what a list of simple commands is not.
var keywords = map[string]bool{
	"if": true, "for": true, "while": true, "until": true, "case": true, "function": true, "{": true, "[[": true, "select": true,
}

// parse splits text into simple commands.
func parse(text string) ([]command, error) {
	tokens, err := tokenize(text)
	if err != nil {
		return nil, err
	}
	var list []command
	var c command
	end := func(operator string) error {
		if len(c.words) == 0 && c.output == "" {
			if operator == ";" || operator == "" {
				return nil
			}
			return fmt.Errorf("%w: %q without a command", errNeedsShell, operator)
		}
		if len(c.words) > 0 && keywords[c.words[0]] {
			return errNeedsShell
		}
		c.operator = operator
		list = append(list, c)
		c = command{}
		return nil
	}
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		switch {
		case !t.operator:
			c.words = append(c.words, t.text)
		case t.text == "&&" || t.text == "||" || t.text == ";":
			if err := end(t.text); err != nil {
				return nil, err
			}
		case strings.HasSuffix(t.text, ">") || strings.HasSuffix(t.text, ">>"):
			i++
			if i == len(tokens) || tokens[i].operator {
				return nil, errNeedsShell
			}
			if !strings.HasPrefix(t.text, "2") {
				c.output, c.add = tokens[i].text, strings.HasSuffix(t.text, ">>")
			}
		case t.text == "2>&1":
		default:
			return nil, errNeedsShell
		}
	}
	return list, end("")
}

type token struct {
	text     string
	operator bool
}

// tokenize splits text into words and operators. Anything that a real shell would expand is an error.
func tokenize(text string) ([]token, error) {
	var tokens []token
	var word strings.Builder
	inWord := false
	flush := func() {
		if inWord {
			tokens = append(tokens, token{text: word.String()})
		}
		word.Reset()
		inWord = false
	}
	operator := func(op string) { flush(); tokens = append(tokens, token{text: op, operator: true}) }
	for i := 0; i < len(text); i++ {
		rest := text[i:]
		switch ch := text[i]; {
		case ch == '\'':
			end := strings.IndexByte(rest[1:], '\'')
			if end < 0 {
				return nil, errNeedsShell
			}
			word.WriteString(rest[1 : 1+end])
			inWord = true
			i += end + 1
		case ch == '"':
			n, quoted, err := doubleQuoted(rest)
			if err != nil {
				return nil, err
			}
			word.WriteString(quoted)
			inWord = true
			i += n - 1
		case ch == '\\':
			if i+1 < len(text) {
				i++
				if text[i] != '\n' {
					word.WriteByte(text[i])
					inWord = true
				}
			}
		case ch == ' ' || ch == '\t' || ch == '\r':
			flush()
		case ch == '\n' || ch == ';':
			operator(";")
		case ch == '#' && !inWord:
			end := strings.IndexByte(rest, '\n')
			if end < 0 {
				end = len(rest)
			}
			i += end - 1
		case strings.HasPrefix(rest, "&&") || strings.HasPrefix(rest, "||"):
			operator(rest[:2])
			i++
		case strings.HasPrefix(rest, "2>&1") && !inWord:
			operator("2>&1")
			i += 3
		case strings.HasPrefix(rest, "2>") && !inWord:
			operator("2>")
			i++
		case strings.HasPrefix(rest, "&>"):
			operator(">")
			i++
		case strings.HasPrefix(rest, ">>"):
			operator(">>")
			i++
		case ch == '>':
			operator(">")
		case strings.IndexByte("|&<()`$*?", ch) >= 0:
			return nil, errNeedsShell
		default:
			word.WriteByte(ch)
			inWord = true
		}
	}
	flush()
	return tokens, nil
}

// doubleQuoted reads a double-quoted string at the start of text and returns its length and content.
func doubleQuoted(text string) (n int, content string, err error) {
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return i + 1, b.String(), nil
		case '\\':
			if i+1 < len(text) && strings.IndexByte("\"\\$`", text[i+1]) >= 0 {
				i++
			}
			b.WriteByte(text[i])
		case '$', '`':
			return 0, "", errNeedsShell
		default:
			b.WriteByte(text[i])
		}
	}
	return 0, "", errNeedsShell
}
