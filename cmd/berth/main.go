// Command berth runs and inspects local environments of Berth. It is also a kubectl plugin: a link to it called kubectl-berth
// makes `kubectl berth` work.
package main

import (
	"os"

	"github.com/berth-dev/berth/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
