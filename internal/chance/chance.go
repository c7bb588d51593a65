// Package chance seeds the random tests of a package and counts their steps. The seed is the same in every run unless SEED says
// otherwise, so that what fails in CI fails on any desk; `make properties` takes many more steps and prints how many.
package chance

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
)

// defaultSeed is what CI runs with.
const defaultSeed = "20261201"

var steps atomic.Int64

// Main runs a package's tests, for its TestMain, and says at the end how many random steps they took from which seed.
func Main(m *testing.M) {
	flag.Parse()
	seed := os.Getenv("SEED")
	if seed == "" {
		seed = defaultSeed
	}
	given := flag.Lookup("rapid.seed")
	if _, err := strconv.ParseUint(seed, 10, 64); err != nil || given == nil {
		fmt.Fprintf(os.Stderr, "SEED %q is not a number, or the package has no random test\n", seed)
		os.Exit(2)
	}
	if given.Value.String() == "0" {
		_ = given.Value.Set(seed) // a number, as was just seen
	}
	code := m.Run()
	fmt.Printf("%d random steps, seed %s\n", steps.Load(), given.Value)
	os.Exit(code)
}

// Step counts one step.
func Step() { steps.Add(1) }
