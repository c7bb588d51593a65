package guest

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
)

// systemctl does what matters here: enable leaves its link, start runs the disk script where a unit needs it.
func systemctl(s *shell, args []string, _ *strings.Builder) int {
	words := operands(args)
	if len(words) == 0 {
		return 0
	}
	verb, units := words[0], words[1:]
	status := 0
	for _, unit := range units {
		if !strings.Contains(unit, ".") {
			unit += ".service"
		}
		switch verb {
		case "enable":
			if err := s.g.fs.write(wantsPath(unit), []byte("/etc/systemd/system/"+unit+"\n"), 0o644); err != nil {
				return s.complain("systemctl", err)
			}
			if has(args, "--now") && !s.g.startUnit(s.ctx, unit) {
				status = 1
			}
		case "disable":
			if host, err := s.g.fs.Path(wantsPath(unit)); err == nil {
				_ = os.Remove(host)
			}
		case "restart", "reload-or-restart", "try-restart":
			delete(s.g.units, unit)
			if !s.g.startUnit(s.ctx, unit) {
				status = 1
			}
		case "start":
			if !s.g.startUnit(s.ctx, unit) {
				status = 1
			}
		case "stop":
			delete(s.g.units, unit)
		case "is-active":
			if s.g.units[unit] != unitActive {
				status = 3
			}
		}
	}
	return status
}

// startUnit starts a unit after the units it requires; false means failed. Only the disk script has an inside; all other
// units are taken to be fine.
func (g *machine) startUnit(ctx context.Context, unit string) bool {
	if g.units[unit] == unitActive {
		return true
	}
	g.units[unit] = unitActive
	texts := g.unitFiles(unit)
	for _, required := range directives(texts, "Requires") {
		for _, name := range strings.Fields(required) {
			if !g.startUnit(ctx, name) {
				g.units[unit] = unitFailed
				g.console.say("systemd", "dependency failed for %s: %s", unit, name)
				return false
			}
		}
	}
	for _, start := range directives(texts, "ExecStart") {
		words := strings.Fields(start)
		switch {
		case len(words) == 0:
		case words[0] == scriptPath:
			g.console.say("systemd", "starting %s", unit)
			if !g.reconcileDisks(ctx) {
				g.units[unit] = unitFailed
				g.console.say("systemd", "%s: failed with result 'exit-code'", unit)
				return false
			}
		default:
			g.notRun("ExecStart of " + unit + ": " + start)
		}
	}
	return true
}

// unitFiles returns the texts of a unit's file and drop-ins.
func (g *machine) unitFiles(unit string) []string {
	var texts []string
	base := "/etc/systemd/system/" + unit
	if data, err := g.fs.read(base); err == nil {
		texts = append(texts, string(data))
	}
	host, err := g.fs.Path(base + ".d")
	if err != nil {
		return texts
	}
	entries, err := os.ReadDir(host)
	if err != nil {
		return texts
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name() < entries[j].Name() })
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".conf" {
			continue
		}
		if data, err := g.fs.read(path.Join(base+".d", e.Name())); err == nil {
			texts = append(texts, string(data))
		}
	}
	return texts
}

// directives returns the values of a directive, in order.
func directives(texts []string, name string) []string {
	var values []string
	for _, text := range texts {
		for line := range strings.SplitSeq(text, "\n") {
			key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
			if ok && strings.TrimSpace(key) == name {
				values = append(values, strings.TrimSpace(value))
			}
		}
	}
	return values
}
