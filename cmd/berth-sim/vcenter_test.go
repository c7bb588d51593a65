package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/berth-dev/berth/internal/sim/vcenter"
)

// lines is an output that can be read while the command writes.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestVCenterSaysThatItServesAndEndsWithItsContext(t *testing.T) {
	g := NewWithT(t)
	out := &lines{}
	ctx, stop := context.WithCancel(context.Background())
	cmd := vcenterCommand()
	cmd.SetOut(out)
	cmd.SetErr(io.Discard)
	cmd.SetArgs([]string{"--state-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"})
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	g.Eventually(out.String, "10s").Should(HavePrefix("serving: api=https://127.0.0.1:"))

	_, rest, _ := strings.Cut(out.String(), "admin=")
	admin := &vcenter.Admin{URL: strings.Fields(rest)[0]}
	g.Expect(admin.Healthy(ctx)).To(Succeed())
	stop()
	g.Eventually(ended, "10s").Should(Receive(BeNil()))
}

func TestVCenterNeedsAStateDirectory(t *testing.T) {
	cmd := vcenterCommand()
	cmd.SetArgs(nil)
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	NewWithT(t).Expect(cmd.Execute()).To(MatchError(ContainSubstring("state-dir")))
}
