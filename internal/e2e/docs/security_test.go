package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that docs/security.md names exists.
func TestDocumentedTests(t *testing.T) {
	inGo, named := goTests(t), 0
	for _, m := range regexp.MustCompile("`((?:Test|Fuzz)\\w+|web/\\S+\\.ts)`").FindAllStringSubmatch(read(t, "../../../docs/security.md"), -1) {
		named++
		if name := m[1]; !strings.HasPrefix(name, "web/") {
			if !strings.Contains(inGo, "func "+name+"(") {
				t.Errorf("docs/security.md names %s, which no test file defines", name)
			}
		} else if _, err := os.Stat(filepath.Join("../../..", filepath.FromSlash(name))); err != nil {
			t.Errorf("docs/security.md names %s: %v", name, err)
		}
	}
	if named < 40 {
		t.Errorf("the page names only %d tests", named)
	}
}
