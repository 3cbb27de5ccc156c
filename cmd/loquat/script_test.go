package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == guardName { // this is the program that servers of tests find
		os.Exit(mainExitCode())
	}
	testscript.Main(m, map[string]func(){"loquat": func() { os.Exit(mainExitCode()) }})
}

// The command line, as scripts: each file is one story.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script"})
}
