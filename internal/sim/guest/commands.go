package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	script "github.com/berth-dev/berth/internal/guest"
)

const scriptPath = script.ScriptPath

// builtin has a command's effect on the guest and returns its exit status.
type builtin func(s *shell, args []string, out *strings.Builder) int

// builtins are the commands with an effect here. It is filled in init because sh refers to the shell.
var builtins map[string]builtin

func init() { //nolint:gochecknoinits // the table refers to itself through sh
	builtins = map[string]builtin{
		"hostnamectl": hostnamectl, "hostname": hostname, "systemctl": systemctl, "kubeadm": kubeadm, "sh": sh, "bash": sh,
		scriptPath: runScript,
		"echo":     echo, "printf": printf, "cat": cat, "touch": touch, "mkdir": mkdir, "rm": remove, "ln": symlink, "cp": copyFile,
		"mv": move, "chmod": chmod, "test": test, "[": test, "exit": exit,
		"true": succeed, ":": succeed, "false": fails, "set": succeed, "export": succeed, "cd": succeed, "sleep": succeed,
		"sync": succeed,
		// Effects on a kernel or on packages that a simulated guest does not have, and that always work.
		"swapoff": accept, "modprobe": accept, "sysctl": accept, "udevadm": accept, "update-ca-certificates": accept,
		"update-ca-trust": accept, "chown": accept, "chgrp": accept, "restorecon": accept, "setenforce": accept, "ufw": accept,
		"iptables": accept, "timedatectl": accept, "locale-gen": accept,
	}
}

func succeed(*shell, []string, *strings.Builder) int { return 0 }
func fails(*shell, []string, *strings.Builder) int   { return 1 }

// accept is succeed for commands whose effect nobody here could see.
func accept(*shell, []string, *strings.Builder) int { return 0 }

func exit(s *shell, args []string, _ *strings.Builder) int {
	s.exited = true
	if len(args) == 0 {
		return 0
	}
	code, err := strconv.Atoi(args[0])
	if err != nil {
		code = 2
	}
	if code != 0 {
		s.g.fail("cloud-init: the commands of the user data ended with exit status %d", code)
	}
	return code
}

func sh(s *shell, args []string, _ *strings.Builder) int {
	for i, a := range args {
		if a == "-c" && i+1 < len(args) {
			return s.run(args[i+1])
		}
	}
	s.g.notRun("sh " + strings.Join(args, " "))
	return 0
}

func hostnamectl(s *shell, args []string, _ *strings.Builder) int {
	args = operands(args)
	if len(args) < 2 || (args[0] != "set-hostname" && args[0] != "hostname") {
		return 0
	}
	if args[1] == "" || strings.ContainsAny(args[1], " /") {
		s.g.fail("hostnamectl: invalid host name %q", args[1])
		return 1
	}
	s.g.setHostName(args[1])
	s.g.console.say("systemd-hostnamed", "host name is %s", args[1])
	s.g.tellTools(s.ctx)
	return 0
}

func hostname(s *shell, args []string, out *strings.Builder) int {
	if args = operands(args); len(args) == 0 {
		_, name := s.g.identity()
		out.WriteString(name + "\n")
		return 0
	}
	return hostnamectl(s, []string{"set-hostname", args[0]}, out)
}

// operands drops options.
func operands(args []string) []string {
	var out []string
	for _, a := range args {
		if a == "--" {
			continue
		}
		if strings.HasPrefix(a, "-") && len(a) > 1 {
			continue
		}
		out = append(out, a)
	}
	return out
}

func has(args []string, option string) bool {
	for _, a := range args {
		if a == option {
			return true
		}
	}
	return false
}

func echo(_ *shell, args []string, out *strings.Builder) int {
	newline := "\n"
	for len(args) > 0 && (args[0] == "-n" || args[0] == "-e") {
		if args[0] == "-n" {
			newline = ""
		}
		args = args[1:]
	}
	out.WriteString(strings.Join(args, " ") + newline)
	return 0
}

func printf(_ *shell, args []string, out *strings.Builder) int {
	if len(args) == 0 {
		return 1
	}
	text := strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\\`, `\`).Replace(args[0])
	for _, a := range args[1:] {
		text = strings.Replace(text, "%s", a, 1)
	}
	out.WriteString(text)
	return 0
}

// complain reports a failed command on the console.
func (s *shell) complain(name string, err error) int {
	if err == nil {
		return 0
	}
	s.g.console.say("cloud-init", "%s: %v", name, err)
	return 1
}

func cat(s *shell, args []string, out *strings.Builder) int {
	for _, p := range operands(args) {
		data, err := s.g.fs.read(p)
		if err != nil {
			return s.complain("cat", err)
		}
		out.Write(data)
	}
	return 0
}

func touch(s *shell, args []string, _ *strings.Builder) int {
	for _, p := range operands(args) {
		if s.g.fs.exists(p) {
			continue
		}
		if err := s.g.fs.write(p, nil, 0o644); err != nil {
			return s.complain("touch", err)
		}
	}
	return 0
}

func mkdir(s *shell, args []string, _ *strings.Builder) int {
	for _, p := range operands(args) {
		host, err := s.g.fs.Path(p)
		if err == nil {
			if has(args, "-p") {
				err = os.MkdirAll(host, 0o755)
			} else {
				err = os.Mkdir(host, 0o755)
			}
		}
		if err != nil {
			return s.complain("mkdir", inGuest(err, p))
		}
	}
	return 0
}

func remove(s *shell, args []string, _ *strings.Builder) int {
	force, recursive := false, false
	for _, a := range args {
		if strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "--") {
			force = force || strings.Contains(a, "f")
			recursive = recursive || strings.ContainsAny(a, "rR")
		}
	}
	for _, p := range operands(args) {
		if _, mounted := s.g.fs.at(path.Clean(p)); mounted {
			return s.complain("rm", fmt.Errorf("cannot remove %q: device or resource busy", p))
		}
		host, err := s.g.fs.resolve(p, false)
		if err == nil {
			if recursive {
				err = os.RemoveAll(host)
			} else {
				err = os.Remove(host)
			}
		}
		if err != nil && (!force || !errors.Is(err, fs.ErrNotExist)) {
			return s.complain("rm", inGuest(err, p))
		}
	}
	return 0
}

func symlink(s *shell, args []string, _ *strings.Builder) int {
	soft, force := false, false
	for _, a := range args {
		if strings.HasPrefix(a, "-") {
			soft = soft || strings.Contains(a, "s")
			force = force || strings.Contains(a, "f")
		}
	}
	args = operands(args)
	if len(args) != 2 || !soft {
		s.g.notRun("ln " + strings.Join(args, " "))
		return 0
	}
	host, err := s.g.fs.resolve(args[1], false)
	if err != nil {
		return s.complain("ln", err)
	}
	if info, err := os.Stat(host); err == nil && info.IsDir() {
		host = filepath.Join(host, path.Base(args[0]))
	}
	if force {
		_ = os.Remove(host)
	}
	return s.complain("ln", inGuest(os.Symlink(args[0], host), args[1]))
}

func copyFile(s *shell, args []string, _ *strings.Builder) int {
	args = operands(args)
	if len(args) != 2 {
		s.g.notRun("cp " + strings.Join(args, " "))
		return 0
	}
	data, err := s.g.fs.read(args[0])
	if err != nil {
		return s.complain("cp", err)
	}
	return s.complain("cp", s.g.fs.write(s.target(args[0], args[1]), data, 0o644))
}

func move(s *shell, args []string, out *strings.Builder) int {
	if status := copyFile(s, args, out); status != 0 {
		return status
	}
	return remove(s, operands(args)[:1], out)
}

// target is where a file goes when the destination may be a directory.
func (s *shell) target(from, to string) string {
	if host, err := s.g.fs.Path(to); err == nil {
		if info, err := os.Stat(host); err == nil && info.IsDir() {
			return path.Join(to, path.Base(from))
		}
	}
	return to
}

func chmod(s *shell, args []string, _ *strings.Builder) int {
	args = operands(args)
	if len(args) < 2 {
		return 0
	}
	bits, err := strconv.ParseUint(args[0], 8, 32)
	if err != nil {
		return 0
	}
	for _, p := range args[1:] {
		host, err := s.g.fs.Path(p)
		if err == nil {
			err = os.Chmod(host, fs.FileMode(bits)&fs.ModePerm)
		}
		if err != nil {
			return s.complain("chmod", inGuest(err, p))
		}
	}
	return 0
}

// test knows the questions about files.
func test(s *shell, args []string, _ *strings.Builder) int {
	if n := len(args); n > 0 && args[n-1] == "]" {
		args = args[:n-1]
	}
	negate := len(args) > 0 && args[0] == "!"
	if negate {
		args = args[1:]
	}
	if len(args) != 2 {
		s.g.notRun("test " + strings.Join(args, " "))
		return 0
	}
	var answer bool
	switch args[0] {
	case "-e", "-f", "-d", "-r", "-s":
		answer = s.g.fs.exists(args[1])
	case "-n":
		answer = args[1] != ""
	case "-z":
		answer = args[1] == ""
	default:
		s.g.notRun("test " + strings.Join(args, " "))
		return 0
	}
	if answer != negate {
		return 0
	}
	return 1
}
