package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// gather collects what files have in common: licences, completions and manual pages.
func (r *release) gather() (err error) {
	if r.parts, err = r.findParts(); err != nil {
		return fmt.Errorf("licences: %w", err)
	}
	r.licenses = licensesText(r.parts)
	if r.scripts, err = r.completions(); err != nil {
		return fmt.Errorf("completions: %w", err)
	}
	if r.pages, err = r.manual(); err != nil {
		return fmt.Errorf("manual pages: %w", err)
	}
	return nil
}

// loquat runs the program of this platform.
func (r *release) loquat(args ...string) ([]byte, error) {
	cmd := exec.Command(r.host.program, args...)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(r.time.Unix(), 10))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("loquat %s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// completions returns the completion of each shell, named as the shell expects it.
func (r *release) completions() (files []file, err error) {
	for _, shell := range []struct{ name, file string }{
		{"bash", "loquat"}, {"fish", "loquat.fish"}, {"powershell", "loquat.ps1"}, {"zsh", "_loquat"},
	} {
		script, err := r.loquat("completion", shell.name)
		if err != nil {
			return nil, err
		}
		files = append(files, file{path: shell.name + "/" + shell.file, mode: 0o644, content: script})
	}
	return files, nil
}

// manual returns the manual pages.
func (r *release) manual() (files []file, err error) {
	dir := filepath.Join(r.stage, "man")
	if _, err := r.loquat("man", dir); err != nil {
		return nil, err
	}
	pages, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		content, err := os.ReadFile(filepath.Join(dir, page.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, file{path: "man1/" + page.Name(), mode: 0o644, content: content})
	}
	return files, nil
}

// docs returns the documentation, without its pictures, and the files that it refers to.
func (r *release) docs() (names []string, err error) {
	names = []string{"deploy/package/environment", "deploy/package/loquat.json", "deploy/package/user.sh"}
	examples, err := os.ReadDir(filepath.Join(r.root, "deploy"))
	if err != nil {
		return nil, err
	}
	for _, example := range examples {
		if example.Type().IsRegular() {
			names = append(names, "deploy/"+example.Name())
		}
	}
	err = filepath.WalkDir(filepath.Join(r.root, "docs"), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "pictures":
			return fs.SkipDir
		case entry.Type().IsRegular():
			name, err := filepath.Rel(r.root, path)
			names = append(names, filepath.ToSlash(name))
			return err
		}
		return nil
	})
	return names, err
}
