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
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "clients/typescript/*.md"} {
		found, err := filepath.Glob("../../../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	links := 0
	for _, page := range pages {
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
	if links < 300 {
		t.Errorf("there are only %d links", links)
	}
}

// prose is a page without its blocks of code.
func prose(t *testing.T, page string) string {
	t.Helper()
	return regexp.MustCompile("(?ms)^ *```.*?^ *```").ReplaceAllString(read(t, page), "")
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
