package guest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	script "github.com/berth-dev/berth/internal/guest"
)

// cloudConfig are the parts of a cloud-config that have an effect on a simulated guest.
type cloudConfig struct {
	WriteFiles   []fileDoc `yaml:"write_files"`
	BootCmd      []any     `yaml:"bootcmd"`
	RunCmd       []any     `yaml:"runcmd"`
	HostName     string    `yaml:"hostname"`
	FinalMessage string    `yaml:"final_message"`
}

type fileDoc struct {
	Path        string `yaml:"path"`
	Content     string `yaml:"content"`
	Encoding    string `yaml:"encoding"`
	Owner       string `yaml:"owner"`
	Permissions any    `yaml:"permissions"`
	Append      bool   `yaml:"append"`
	Defer       bool   `yaml:"defer"`
}

// effective are the keys of a cloud-config that do something here or need no mention.
var effective = map[string]bool{
	"write_files": true, "bootcmd": true, "runcmd": true, "hostname": true, "final_message": true, "preserve_hostname": true,
	"create_hostname_file": true,
	"manage_etc_hosts":     true, "merge_how": true, "output": true,
}

// runCloudInit does what cloud-init does on the first boot of an instance. again means that an earlier attempt was cut
// short by the simulator, not by the guest.
func (g *machine) runCloudInit(ctx context.Context, meta metadata, userData string, again bool) error {
	if err := g.fs.write(script.InstanceIDPath, []byte(meta.InstanceID+"\n"), 0o644); err != nil {
		return err
	}
	if err := g.fs.write("/run/cloud-init/.instance-id", []byte(meta.InstanceID+"\n"), 0o644); err != nil {
		return err
	}
	if strings.TrimSpace(userData) == "" {
		g.console.say("cloud-init", "no user data; the guest is up and has nothing to do")
		return nil
	}
	body, err := g.renderUserData(meta, userData)
	if err != nil {
		return fmt.Errorf("cloud-init: user data: %w", err)
	}
	var config cloudConfig
	switch {
	case strings.HasPrefix(body, "#cloud-config"):
		if config, err = g.parseUserData(body); err != nil {
			return err
		}
	case strings.HasPrefix(body, "#!"):
		config.RunCmd = []any{body}
	default:
		return fmt.Errorf("cloud-init: unhandled user data starting %q: neither a cloud-config nor a script", firstChars(body))
	}
	if config.HostName != "" {
		g.setHostName(config.HostName)
	}
	sh := &shell{g: g, ctx: ctx, again: again}
	sh.commands("bootcmd", config.BootCmd)
	for _, deferred := range []bool{false, true} {
		for _, f := range config.WriteFiles {
			if f.Defer != deferred {
				continue
			}
			if err := g.writeFile(f); err != nil {
				g.fail("cloud-init: write_files %s: %v", f.Path, err)
			}
		}
	}
	sh.exited = false
	sh.commands("runcmd", config.RunCmd)
	if config.FinalMessage != "" {
		g.console.say("cloud-init", "%s", config.FinalMessage)
	}
	return ctx.Err()
}

// renderUserData renders jinja templates and returns the document without the template marker.
func (g *machine) renderUserData(meta metadata, userData string) (string, error) {
	first, rest, _ := strings.Cut(userData, "\n")
	marker := strings.ToLower(strings.Join(strings.Fields(first), ""))
	if marker != "##template:jinja" {
		return userData, nil
	}
	g.mu.Lock()
	data := meta.templateData(g.status.HostName, g.addrs)
	g.mu.Unlock()
	body, missing, err := render(rest, data)
	if err != nil {
		return "", err
	}
	for _, name := range missing {
		g.console.say("cloud-init", "could not render jinja template variable %q; it becomes CI_MISSING_JINJA_VAR", name)
	}
	return strings.TrimLeft(body, "\n"), nil
}

func (g *machine) parseUserData(body string) (cloudConfig, error) {
	var config cloudConfig
	var keys map[string]any
	if err := yaml.Unmarshal([]byte(body), &keys); err != nil {
		return config, fmt.Errorf("cloud-init: failed loading yaml blob, the user data has no effect: %w", err)
	}
	if err := yaml.Unmarshal([]byte(body), &config); err != nil {
		return config, fmt.Errorf("cloud-init: invalid cloud-config, the user data has no effect: %w", err)
	}
	var others []string
	for key := range keys {
		if !effective[key] {
			others = append(others, key)
		}
	}
	sort.Strings(others)
	for _, key := range others {
		g.notRun("cloud-config module " + key)
	}
	return config, nil
}

// notRun writes down what has no effect here.
func (g *machine) notRun(what string) {
	what = strings.TrimSpace(what)
	g.console.say("not run", "%s", what)
	first, _, more := strings.Cut(what, "\n")
	if more {
		first += " ..."
	}
	g.mu.Lock()
	g.status.NotRun = append(g.status.NotRun, first)
	g.mu.Unlock()
}

func (g *machine) writeFile(f fileDoc) error {
	data, err := decodeFile(f)
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if text := textOf(f.Permissions); text != "" {
		bits, err := strconv.ParseUint(strings.TrimPrefix(text, "0o"), 8, 32)
		if err != nil {
			return fmt.Errorf("permissions %q are not octal", text)
		}
		mode = fs.FileMode(bits) & fs.ModePerm
	}
	if f.Append {
		return g.fs.extend(f.Path, data, mode)
	}
	return g.fs.write(f.Path, data, mode)
}

func decodeFile(f fileDoc) ([]byte, error) {
	data := []byte(f.Content)
	encoding := strings.ToLower(f.Encoding)
	switch encoding {
	case "", "text/plain":
		return data, nil
	case "b64", "base64", "gz", "gzip", "gz+base64", "gzip+base64", "gz+b64", "gzip+b64":
	default:
		return nil, fmt.Errorf("unknown encoding %q", f.Encoding)
	}
	if strings.Contains(encoding, "b") && encoding != "gz" && encoding != "gzip" {
		raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(f.Content), ""))
		if err != nil {
			return nil, fmt.Errorf("not base64: %w", err)
		}
		data = raw
	}
	if strings.HasPrefix(encoding, "gz") {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, errors.New("not gzip")
		}
		const limit = 64 << 20
		return io.ReadAll(io.LimitReader(z, limit))
	}
	return data, nil
}
