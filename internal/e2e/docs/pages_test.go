package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// long are the pages that may be long: their rows are looked up, not read.
var long = []string{"benchmarks.md", "comparison.md", "config.md", "decisions.md", "http.md", "testing.md"}

// The index lists every page of docs, and a page is short enough to be read.
func TestPages(t *testing.T) {
	index := read(t, "../../../docs/README.md")
	for _, path := range pages(t) {
		text, name := read(t, path), filepath.Base(path)
		limit := 2600
		if filepath.Dir(path) == filepath.Join("..", "..", "..") {
			limit = 1000
		} else if name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md does not list %s", name)
		}
		if words := len(strings.Fields(text)); words > limit && !slices.Contains(long, name) {
			t.Errorf("%s has %d words: cut or split it", path, words)
		}
	}
}

// pages are the README and the pages of docs.
func pages(t *testing.T) []string {
	t.Helper()
	docs, err := filepath.Glob("../../../docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatalf("no pages were found in docs: %v", err)
	}
	return append(docs, "../../../README.md")
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Every picture is shown on a page and small, and every page that the code names exists.
func TestPicturesAndNamedPages(t *testing.T) {
	var all strings.Builder
	for _, path := range pages(t) {
		all.WriteString(read(t, path))
	}
	pictures, err := os.ReadDir("../../../docs/pictures")
	if err != nil || len(pictures) < 10 {
		t.Fatalf("there are %d pictures: %v", len(pictures), err)
	}
	for _, p := range pictures {
		if info, err := p.Info(); err != nil || info.Size() > 60_000 {
			t.Errorf("%s is too large (%v)", p.Name(), err)
		}
		if !strings.Contains(all.String(), "pictures/"+p.Name()+")") {
			t.Errorf("no page shows %s", p.Name())
		}
	}
	named := 0
	for _, folder := range []string{"bench", "clients", "cmd", "deploy", "internal", "release", "web"} {
		err := filepath.WalkDir(filepath.Join("../../..", folder), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && slices.Contains([]string{"dist", "node_modules", "testdata"}, entry.Name()):
				return fs.SkipDir
			case entry.IsDir() || !slices.Contains([]string{".go", ".ts", ".tsx", ".mjs", ".yaml", ".yml", ".cfg", ".conf", ".service"}, filepath.Ext(path)):
				return nil
			}
			for _, m := range regexp.MustCompile(`\bdocs/([\w-]+\.md)\b`).FindAllStringSubmatch(read(t, path), -1) {
				named++
				if _, err := os.Stat(filepath.Join("../../../docs", m[1])); err != nil {
					t.Errorf("%s names %s: %v", path, m[0], err)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if named < 20 {
		t.Errorf("the code names only %d pages", named)
	}
}

// What docs/development.md names in code is in one of the files of the same list item.
func TestDevelopmentNames(t *testing.T) {
	const folder = "../../../docs/"
	_, lists, _ := strings.Cut(read(t, folder+"development.md"), "\n## Add ")
	words := map[string]bool{} // that are named, and found
	for _, item := range regexp.MustCompile(`\n\n|\n\d+\. `).Split(lists, -1) {
		var sources strings.Builder
		for _, link := range regexp.MustCompile(`\]\((\.\./[^)#]+)\)`).FindAllStringSubmatch(item, -1) {
			sources.WriteString(read(t, folder+link[1]))
		}
		for _, m := range regexp.MustCompile("`([A-Za-z]+)`").FindAllStringSubmatch(item, -1) {
			words[m[1]] = words[m[1]] || regexp.MustCompile(`\b`+m[1]+`\b`).MatchString(sources.String())
		}
	}
	for word, found := range words {
		if !found && strings.ToUpper(word) != word { // words of SQL are in capitals
			t.Errorf("docs/development.md names %s, which is in none of the files next to it", word)
		}
	}
	if len(words) < 30 {
		t.Errorf("docs/development.md names only %d things", len(words))
	}
}

// The tests that docs/comparison.md names exist.
func TestComparison(t *testing.T) {
	folders := map[string]string{
		"browser": "web/test/browser", "model": "web/test/model", "markdown": "web/test/markdown", "client": "clients/typescript/test", "i18n": "web/test",
	}
	rows, inGo := 0, goTests(t)
	for line := range strings.Lines(read(t, "../../../docs/comparison.md")) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 {
			continue
		}
		rows++
		file := ""
		for _, m := range regexp.MustCompile("`([^`]+)`|\"([^\"]+)\"").FindAllStringSubmatch(cells[3], -1) {
			if name := m[1]; strings.HasPrefix(name, "Test") {
				if !strings.Contains(inGo, "func "+name+"(") {
					t.Errorf("docs/comparison.md names %s, which no test file defines", name)
				}
			} else if name != "" {
				folder, rest, _ := strings.Cut(name, "/")
				found, err := filepath.Glob(filepath.Join("../../..", folders[folder], strings.TrimPrefix(rest+".test.ts*", "/")))
				if rest == "" {
					found, err = []string{filepath.Join("../../..", folders[folder], folder+".test.ts")}, nil
				}
				if err != nil || len(found) != 1 {
					t.Errorf("%s is not one file: %v", name, found)
					continue
				}
				file = read(t, found[0])
			} else if file != "" {
				pattern := strings.ReplaceAll(regexp.QuoteMeta(m[2]), "…", ".*")
				if !regexp.MustCompile(pattern).MatchString(file) {
					t.Errorf("no test is named %q: %s", m[2], cells[1])
				}
			}
		}
	}
	if rows < 60 {
		t.Errorf("the page has %d rows", rows)
	}
}

// goTests returns the sources of all tests in Go.
func goTests(t *testing.T) string {
	t.Helper()
	var sources strings.Builder
	for _, folder := range []string{"cmd", "internal"} {
		err := filepath.WalkDir("../../../"+folder, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, "_test.go") {
				sources.WriteString(read(t, path))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return sources.String()
}
