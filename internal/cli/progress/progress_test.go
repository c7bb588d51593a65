package progress

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestALogGetsPlainLinesAndNoRepetition(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	r := New(&out)
	r.Begin("etcd")
	r.Note("etcd", "starting")
	r.Note("etcd", "waiting until it is ready")
	r.Note("etcd", "waiting until it is ready")
	r.End("etcd", 1234*time.Millisecond, nil)
	r.Begin("kube-apiserver")
	r.End("kube-apiserver", 2*time.Minute, errors.New("it has ended"))
	r.Close()

	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, line := range lines {
		g.Expect(line).To(MatchRegexp(`^\[ *\d+\.\ds\] `))
		lines[i] = line[strings.Index(line, "] ")+2:]
	}
	g.Expect(lines).To(Equal([]string{
		"etcd: starting",
		"etcd: waiting until it is ready",
		"etcd: done in 1.2s",
		"kube-apiserver: failed after 2m0s: it has ended",
	}))
}

// screen plays a terminal: it understands the few control sequences that are used here.
type screen struct {
	lines []string
	row   int
}

var control = regexp.MustCompile("\x1b\\[([0-9]*)([A-Za-z])")

func (s *screen) Write(p []byte) (int, error) {
	text := string(p)
	for text != "" {
		if m := control.FindStringSubmatchIndex(text); m != nil && m[0] == 0 {
			switch text[m[4]:m[5]] {
			case "A":
				n := 0
				for _, d := range text[m[2]:m[3]] {
					n = n*10 + int(d-'0')
				}
				s.row -= n
			case "J":
				s.lines = s.lines[:min(s.row, len(s.lines))]
			}
			text = text[m[1]:]
			continue
		}
		for len(s.lines) <= s.row {
			s.lines = append(s.lines, "")
		}
		switch c := text[0]; c {
		case '\n':
			s.row++
		case '\r':
			s.lines[s.row] = ""
		default:
			s.lines[s.row] += string(c)
		}
		text = text[1:]
	}
	return len(p), nil
}

func TestATerminalKeepsRunningStepsBelowFinishedOnes(t *testing.T) {
	g := NewWithT(t)
	s := &screen{}
	term := newTerminal(s, func() int { return 40 })
	close(term.done)
	term.Begin("etcd")
	term.Begin("vcenter")
	term.Note("vcenter", "waiting for something that takes many words to say")
	term.End("etcd", 600*time.Millisecond, nil)

	g.Expect(s.lines[0]).To(HaveSuffix("etcd  0.6s"))
	g.Expect(s.lines[1]).To(ContainSubstring("vcenter: waiting for"))
	g.Expect(len([]rune(strings.ToValidUTF8(s.lines[1], "…")))).To(BeNumerically("<=", 44), "cut to the width")

	term.End("vcenter", 3*time.Second, errors.New("it has ended"))
	term.Close()
	g.Expect(strings.Join(s.lines, "\n")).To(And(ContainSubstring("vcenter failed after 3.0s: it has ended"), Not(ContainSubstring("many words"))))
}
