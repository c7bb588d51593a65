// Command admission writes docs/admission.md and docs/admission.zh.md from the catalogue of the rules. hack/generate.sh runs it in the
// root of a clone.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/internal/rules/catalogue"
)

func main() {
	for _, page := range catalogue.Pages() {
		if err := os.WriteFile(filepath.Join("docs", page.Name), []byte(page.Text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "admission:", err)
			os.Exit(1)
		}
	}
}
