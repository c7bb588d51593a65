package local

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
)

// register gives a test a register of ranges of its own. Real environments are still seen, by what they listen on.
func register(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	return filepath.Join(home, "berth", "ranges")
}

// take reserves a range for a new state directory and drops the guard.
func take(dir string) (Range, error) {
	e := &Environment{Dir: dir, Record: Record{Provider: Providers[0]}}
	r, guard, err := reserve(dir, func(r Range) error {
		e.Range = r
		return e.write()
	})
	if err != nil {
		return 0, err
	}
	return r, guard.Close()
}

func TestConcurrentEnvironmentsNeverShareARange(t *testing.T) {
	g := NewWithT(t)
	register(t)
	const n = 20
	dirs := make([]string, n)
	for i := range dirs {
		dirs[i] = t.TempDir()
	}
	var (
		mu    sync.Mutex
		wait  sync.WaitGroup
		taken = map[Range]string{}
	)
	for _, dir := range dirs {
		wait.Go(func() {
			r, err := take(dir)
			mu.Lock()
			defer mu.Unlock()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(taken).NotTo(HaveKey(r))
			taken[r] = dir
		})
	}
	wait.Wait()
	g.Expect(taken).To(HaveLen(n))
	for r := range taken {
		g.Expect(r).To(And(BeNumerically(">=", firstRange), BeNumerically("<=", lastRange)))
	}
}

func TestARangeIsFreeAgainWhenItsStateDirectoryIsGone(t *testing.T) {
	g := NewWithT(t)
	register(t)
	gone := t.TempDir()
	first, err := take(gone)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.RemoveAll(gone)).To(Succeed())

	second, err := take(t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second).To(Equal(first))
}

func TestARangeInWhichSomethingListensIsSkipped(t *testing.T) {
	g := NewWithT(t)
	register(t)
	first, err := take(t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())

	// An address and a port that no environment would try.
	next := first + 1
	l, err := net.Listen("tcp4", fmt.Sprintf("127.%d.200.200:0", int(next)))
	g.Expect(err).NotTo(HaveOccurred())
	defer l.Close()
	second, err := take(t.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second).NotTo(Equal(next))
}

func TestAnEnvironmentTakesItsOwnRangeAgainAndNobodyElses(t *testing.T) {
	g := NewWithT(t)
	entries := register(t)
	dir, other := t.TempDir(), t.TempDir()
	r, err := take(dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.RemoveAll(entries)).To(Succeed())
	g.Expect(retake(dir, r)).To(Succeed())
	g.Expect(retake(dir, r)).To(Succeed())

	g.Expect((&Environment{Dir: other, Record: Record{Range: r}}).write()).To(Succeed())
	g.Expect(retake(other, r)).To(MatchError(ContainSubstring(dir)))
	g.Expect(release(other, r)).To(Succeed(), "giving back what one does not hold changes nothing")
	g.Expect(filepath.Join(entries, strconv.Itoa(int(r)))).To(BeAnExistingFile())
	g.Expect(release(dir, r)).To(Succeed())
	g.Expect(retake(other, r)).To(Succeed())
}

func TestManifestsMoveIntoTheRange(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Range(17).Rewrite("ip: 127.64.1.31/24, host: 127.64.0.2, image: v127.64")).
		To(Equal("ip: 127.17.1.31/24, host: 127.17.0.2, image: v127.64"))
	g.Expect(candidates()).To(HaveLen(int(lastRange - firstRange + 1)))
	g.Expect(candidates()[0]).To(Equal(ExampleRange))
}
