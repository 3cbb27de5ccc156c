//go:build unix

package loquat_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// make mutants fails if one package has a change that no test notices, and goes on with the others.
func TestMutantsOfOnePackageFail(t *testing.T) {
	for _, tool := range []string{"make", "sh"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("there is no " + tool)
		}
	}
	fake := filepath.Join(t.TempDir(), "go")
	if err := os.WriteFile(fake, []byte("#!/bin/sh\necho \"$@\"\ncase \"$*\" in *../second) exit 3;; esac\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("make", "mutants", "GO="+fake, "PACKAGES=first second third").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "../third") {
		t.Errorf("make mutants: %v\n%s", err, out)
	}
}

// A target that makes no file of its name is in .PHONY: otherwise a file of this name would stop make.
func TestTargetsArePhony(t *testing.T) {
	text, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	phony := strings.Fields(regexp.MustCompile(`(?m)^\.PHONY:(.*)$`).FindStringSubmatch(string(text))[1])
	for _, target := range regexp.MustCompile(`(?m)^([a-z0-9]+):`).FindAllStringSubmatch(string(text), -1) {
		if !slices.Contains(phony, target[1]) {
			t.Errorf("%s is not in .PHONY", target[1])
		}
	}
}
