package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// licensesName is the name of the file with the licences of all parts.
const licensesName = "THIRD-PARTY-LICENSES.txt"

// part is a Go module or an npm package that is inside the program.
type part struct {
	name, version string
	url           string // package URL, which names it in a bill of materials
	licence       string // SPDX expression
	texts         []string
}

// findParts returns all parts, sorted by their package URLs.
func (r *release) findParts() ([]part, error) {
	modules, err := r.modules()
	if err != nil {
		return nil, err
	}
	packages, err := r.packages()
	if err != nil {
		return nil, err
	}
	parts := append(modules, packages...)
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.url, b.url) })
	return parts, nil
}

// goPackage is what `go list` says of a package.
type goPackage struct {
	ImportPath, Dir string
	Standard        bool
	Module          *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// modules returns the Go modules with packages in the program, and Go itself.
func (r *release) modules() ([]part, error) {
	root, err := r.goCommand(r.host, "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	version := strings.TrimPrefix(r.goVersion, "go")
	golang := part{name: "std", version: version, url: "pkg:golang/std@" + version}
	found := map[string]*part{"": &golang}
	seen := map[string]bool{}
	if err := golang.addLicences(strings.TrimSpace(string(root)), seen); err != nil {
		return nil, err
	}
	for _, p := range r.platforms {
		list, err := r.goPackages(p)
		if err != nil {
			return nil, fmt.Errorf("packages for %s: %w", p, err)
		}
		for _, pkg := range list {
			if pkg.Standard || pkg.Module == nil || pkg.Module.Main {
				continue
			}
			m := found[pkg.Module.Path]
			if m == nil {
				m = &part{name: pkg.Module.Path, version: pkg.Module.Version, url: "pkg:golang/" + pkg.Module.Path + "@" + pkg.Module.Version}
				found[pkg.Module.Path] = m
			}
			// Parts of a module may have a licence of their own.
			for dir := pkg.Dir; strings.HasPrefix(dir, pkg.Module.Dir); dir = filepath.Dir(dir) {
				if err := m.addLicences(dir, seen); err != nil {
					return nil, err
				}
			}
		}
	}
	var parts []part
	for _, m := range found {
		if len(m.texts) == 0 {
			return nil, fmt.Errorf("%s has no licence, so the program must not contain it", m.name)
		}
		m.licence = spdx(m.texts)
		parts = append(parts, *m)
	}
	return parts, nil
}

// goPackages returns the packages in the program for a platform.
func (r *release) goPackages(p *platform) (list []goPackage, err error) {
	out, err := r.goCommand(p, "list", "-deps", "-json=ImportPath,Dir,Standard,Module", "./cmd/loquat").Output()
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg goPackage
		if err := d.Decode(&pkg); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		list = append(list, pkg)
	}
}

// licenceFile matches the names of files with licences and notices.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([._-][\w.-]+)?$`)

// addLicences adds the licences in a directory that was not seen before.
func (p *part) addLicences(dir string, seen map[string]bool) error {
	if seen[dir] {
		return nil
	}
	seen[dir] = true
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !licenceFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		p.texts = append(p.texts, strings.TrimSpace(string(text)))
	}
	return nil
}

// notLicence is what licensecheck calls the grant of patents in Go's modules, which SPDX does not list.
const notLicence = "GooglePatentsFile"

// spdx returns the SPDX expression of licence texts, or "" if none is known.
func spdx(texts []string) string {
	var ids []string
	for _, text := range texts {
		for _, m := range licensecheck.Scan([]byte(text)).Match {
			if !m.IsURL && m.ID != notLicence && !slices.Contains(ids, m.ID) {
				ids = append(ids, m.ID)
			}
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, " AND ")
}

// packages returns the npm packages in the page, as the build of the page wrote them down.
func (r *release) packages() (parts []part, err error) {
	name := filepath.Join(r.root, "node_modules", ".loquat-packages.json")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("%w; build the page with `make web`", err)
	}
	var list []struct{ Name, Version, License, Text string }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, p := range list {
		licence := strings.Trim(p.License, "()")
		if licence == "" {
			licence = spdx([]string{p.Text})
		}
		parts = append(parts, part{
			name: p.Name, version: p.Version, licence: licence, texts: []string{strings.TrimSpace(p.Text)},
			url: "pkg:npm/" + strings.Replace(p.Name, "@", "%40", 1) + "@" + p.Version,
		})
	}
	return parts, nil
}

// licensesText returns the licences of all parts. Each text is there once, below the parts that
// have it.
func licensesText(parts []part) []byte {
	var order []string
	users := map[string][]string{}
	for _, p := range parts {
		for _, text := range p.texts {
			if users[text] == nil {
				order = append(order, text)
			}
			if name := p.name + " " + p.version; !slices.Contains(users[text], name) {
				users[text] = append(users[text], name)
			}
		}
	}
	var out bytes.Buffer
	out.WriteString("Loquat contains these Go modules and npm packages.\n")
	for _, text := range order {
		fmt.Fprintf(&out, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(users[text], "\n"), text)
	}
	return out.Bytes()
}
