package guest

import (
	"fmt"
	"regexp"
	"strings"
)

// render renders the part of jinja that bootstrap data uses: expressions with names, dots, subscripts and the filters
// default, lower and upper, and comments. As in cloud-init, a name that nobody defined becomes CI_MISSING_JINJA_VAR/<name>
// and is reported; statements ({% %}) are beyond this guest and an error.
func render(text string, data map[string]any) (out string, missing []string, err error) {
	var b strings.Builder
	for {
		i := strings.IndexByte(text, '{')
		if i < 0 || i+1 >= len(text) {
			b.WriteString(text)
			return b.String(), missing, nil
		}
		var closing string
		switch text[i+1] {
		case '{':
			closing = "}}"
		case '#':
			closing = "#}"
		case '%':
			return "", nil, fmt.Errorf("jinja statement %q: only expressions are rendered here", firstChars(text[i:]))
		default:
			b.WriteString(text[:i+1])
			text = text[i+1:]
			continue
		}
		b.WriteString(text[:i])
		end := strings.Index(text[i:], closing)
		if end < 0 {
			return "", nil, fmt.Errorf("jinja expression %q does not end", firstChars(text[i:]))
		}
		inner := text[i+2 : i+end]
		text = text[i+end+2:]
		if closing == "#}" {
			continue
		}
		value, lost, err := evaluate(inner, data)
		if err != nil {
			return "", nil, err
		}
		if lost != "" {
			missing = append(missing, lost)
		}
		b.WriteString(value)
	}
}

func firstChars(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	const enough = 40
	if len(s) > enough {
		s = s[:enough]
	}
	return s
}

var (
	nameStep   = regexp.MustCompile(`^\.?([A-Za-z_][A-Za-z0-9_]*)`)
	subscript  = regexp.MustCompile(`^\[\s*(?:"([^"]*)"|'([^']*)')\s*\]`)
	literal    = regexp.MustCompile(`^(?:"([^"]*)"|'([^']*)')$`)
	filterCall = regexp.MustCompile(`^(default|d|lower|upper|trim)\s*(?:\(\s*(?:"([^"]*)"|'([^']*)')?\s*\))?$`)
)

func evaluate(expression string, data map[string]any) (value, missing string, err error) {
	parts := strings.Split(strings.Trim(expression, "-+"), "|")
	term := strings.TrimSpace(parts[0])
	if m := literal.FindStringSubmatch(term); m != nil {
		value = m[1] + m[2]
	} else {
		var found bool
		if value, found, err = look(term, data); err != nil {
			return "", "", err
		}
		if !found {
			missing = term
			value = "CI_MISSING_JINJA_VAR/" + term[strings.LastIndexByte(term, '.')+1:]
		}
	}
	for _, f := range parts[1:] {
		m := filterCall.FindStringSubmatch(strings.TrimSpace(f))
		if m == nil {
			return "", "", fmt.Errorf("jinja filter %q is not known here", strings.TrimSpace(f))
		}
		switch m[1] {
		case "default", "d":
			if missing != "" {
				value, missing = m[2]+m[3], ""
			}
		case "lower":
			value = strings.ToLower(value)
		case "upper":
			value = strings.ToUpper(value)
		case "trim":
			value = strings.TrimSpace(value)
		}
	}
	return value, missing, nil
}

func look(term string, data map[string]any) (value string, found bool, err error) {
	var current any = data
	rest := term
	for rest != "" {
		var key string
		if m := nameStep.FindStringSubmatch(rest); m != nil {
			key, rest = m[1], rest[len(m[0]):]
		} else if m := subscript.FindStringSubmatch(rest); m != nil {
			key, rest = m[1]+m[2], rest[len(m[0]):]
		} else {
			return "", false, fmt.Errorf("jinja expression %q is not understood here", term)
		}
		// A name that leads nowhere is missing; what follows it must still be understood.
		object, _ := current.(map[string]any)
		next, ok := object[key]
		found, current = ok, next
	}
	if !found {
		return "", false, nil
	}
	switch v := current.(type) {
	case nil:
		return "None", true, nil
	case map[string]any, []any:
		return "", false, fmt.Errorf("jinja expression %q is not a single value", term)
	default:
		return fmt.Sprint(v), true, nil
	}
}
