// Package output prints results the way -o asks for.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// Format of a result: table for people, json and yaml for programs.
type Format string

// Formats.
const (
	Table Format = "table"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

var formats = []Format{Table, JSON, YAML}

// AddFlag adds -o.
func (f *Format) AddFlag(flags *pflag.FlagSet) {
	*f = Table
	flags.VarP(f, "output", "o", "json, yaml or table")
}

// String is the value as it is typed. With Set and Type it makes a Format a flag that refuses unknown values before anything is
// done.
func (f *Format) String() string { return string(*f) }

// Set parses a flag's value.
func (f *Format) Set(value string) error {
	if !slices.Contains(formats, Format(value)) {
		return fmt.Errorf("%q is not one of json, yaml, table", value)
	}
	*f = Format(value)
	return nil
}

// Type names the value in the help.
func (f *Format) Type() string { return "format" }

// Print writes value as JSON or YAML, or calls table.
func (f Format) Print(w io.Writer, value any, table func(io.Writer) error) error {
	switch f {
	case JSON:
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	case YAML:
		text, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	default:
		return table(w)
	}
}

// Columns writes rows under a header, aligned. A column that is empty in all rows is left out.
func Columns(w io.Writer, header []string, rows [][]string) error {
	widths := make([]int, len(header))
	for i, title := range header {
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		if widths[i] > 0 || len(rows) == 0 {
			widths[i] = max(widths[i], utf8.RuneCountInString(title))
		}
	}
	for _, row := range append([][]string{header}, rows...) {
		var line strings.Builder
		for i, cell := range row {
			if widths[i] > 0 {
				line.WriteString(cell + strings.Repeat(" ", widths[i]-min(widths[i], utf8.RuneCountInString(cell))+3))
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}
