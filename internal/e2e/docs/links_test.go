package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every link from one page of the project to another leads to a page, and to a
// heading of it.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob("../../../*.md")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := filepath.Glob("../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for _, page := range append(pages, docs...) {
		for _, link := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(prose(t, page), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			links++
			path, heading, _ := strings.Cut(link[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, link[1], err)
			} else if heading != "" && !strings.Contains(headings(prose(t, target)), "#"+heading+"\n") {
				t.Errorf("%s links to %s, which is not a heading there", page, link[1])
			}
		}
	}
	if links < 40 {
		t.Errorf("there are only %d links", links)
	}
}

// prose is a page without its blocks of code.
func prose(t *testing.T, page string) string {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(string(b), "")
}

// headings lists the anchors of a page, one a line.
func headings(text string) string {
	var out strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		anchor := regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out.WriteString("#" + strings.ReplaceAll(anchor, " ", "-") + "\n")
	}
	return out.String()
}
