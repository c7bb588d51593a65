package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Stdin is the name of standard input.
const Stdin = "-"

var extensions = []string{".json", ".yaml", ".yml"}

// Source is a text to parse.
type Source struct {
	File string
	Text []byte
}

// Sources reads what -f names, as kubectl does: files of any name; of directories the YAML and JSON files, in the order of their names,
// and those of the directories below if recursive; "-" for standard input. A file is read once, however often it is named.
func Sources(names []string, recursive bool, stdin io.Reader) ([]Source, error) {
	var out []Source
	seen := map[string]bool{}
	read := func(file string) error {
		key := file
		if absolute, err := filepath.Abs(file); err == nil && file != Stdin {
			key = absolute
		}
		if seen[key] {
			return nil
		}
		seen[key] = true
		var text []byte
		var err error
		if file == Stdin {
			text, err = io.ReadAll(stdin)
		} else {
			text, err = os.ReadFile(file)
		}
		if err != nil {
			return err
		}
		out = append(out, Source{File: file, Text: text})
		return nil
	}
	for _, name := range names {
		if strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://") {
			return nil, fmt.Errorf("%s: only files, directories and - are read; download it first", name)
		}
		files := []string{name}
		if info, err := os.Stat(name); name != Stdin && err == nil && info.IsDir() {
			if files, err = inside(name, recursive); err != nil {
				return nil, err
			}
		}
		for _, file := range files {
			if err := read(file); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// inside lists the manifests of a directory.
func inside(dir string, recursive bool) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && file != dir && !recursive:
			return filepath.SkipDir
		case !e.IsDir() && slices.Contains(extensions, filepath.Ext(file)):
			files = append(files, file)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		hint := ""
		if !recursive {
			hint = "; -R looks into the directories below, too"
		}
		err = errors.New(dir + ": no .yaml, .yml or .json file in this directory" + hint)
	}
	return files, err
}
