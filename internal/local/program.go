package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// program is one process of an environment, as data.
type program struct {
	// name is the name of its files, and what Kill and Restart take.
	name string
	// title says to people what it is.
	title string
	path  string
	args  []string
	// env is added to the few variables that every process gets.
	env []string
	// ready asks whether it does its work; it is called again until it answers nil.
	ready func(ctx context.Context) error
	// irreplaceable keeps Up from starting it again for a change of program or arguments.
	irreplaceable bool
	// abrupt makes Up replace it without asking it to end.
	abrupt bool
}

// fingerprint changes when another executable, or other arguments, would run under the same name.
func (p program) fingerprint() string {
	sum := sha256.New()
	fmt.Fprintln(sum, p.path, strings.Join(p.args, "\x00"), strings.Join(p.env, "\x00"))
	if info, err := os.Stat(p.path); err == nil {
		fmt.Fprintln(sum, info.Size(), info.ModTime().UnixNano())
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// patience is how long a process may take to be ready. It is generous: a machine that builds something beside is slow.
const patience = 3 * time.Minute

// ensure makes a program run and be ready. It leaves one alone that already is, and says what it did or waits for.
func (e *Environment) ensure(ctx context.Context, p program, say func(string)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not ready within %s; see %s", patience, e.logPath(p.name)))
	defer cancel()
	current, ok := e.running(p.name)
	if ok && !p.irreplaceable && current.Program != "" && current.Program != p.fingerprint() {
		say("restarting, because its program or its arguments changed")
		if p.abrupt {
			if err := current.signal(unix.SIGKILL); err != nil {
				return err
			}
		}
		if err := current.stop(ctx, stopPatience); err != nil {
			return err
		}
		ok = false
	}
	id := current.identity
	if !ok {
		say("starting")
		var err error
		if id, err = e.spawn(p); err != nil {
			return err
		}
	}
	return e.awaitReady(ctx, p, id, say)
}

func (e *Environment) awaitReady(ctx context.Context, p program, id identity, say func(string)) error {
	if p.ready == nil {
		return nil
	}
	return await(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		err := p.ready(ctx)
		if err == nil {
			return nil
		}
		if !id.alive() {
			return final(fmt.Errorf("%s has ended; %s", p.name, e.lastWords(p.name)))
		}
		say("waiting until it is ready")
		return err
	})
}
