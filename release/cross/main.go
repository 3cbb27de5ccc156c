// Command cross type-checks all packages of a module, with their tests, for other platforms. It reads
// the sources of everything that they import, so it compiles nothing and takes seconds where go vet takes
// minutes.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: cross DIR GOOS/GOARCH...")
		os.Exit(2)
	}
	for _, platform := range os.Args[2:] {
		n, err := check(os.Args[1], platform)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", platform, err)
			os.Exit(1)
		}
		fmt.Printf("%s: %d packages\n", platform, n)
	}
}

// check checks the packages in a directory for a platform, and returns their number.
func check(dir, platform string) (int, error) {
	system, arch, _ := strings.Cut(platform, "/")
	list, err := packages.Load(&packages.Config{
		Mode: packages.LoadAllSyntax, Tests: true, Dir: dir,
		Env: append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0"),
	}, "./...")
	switch {
	case err != nil:
		return 0, err
	case len(list) == 0:
		return 0, errors.New("there are no packages")
	case packages.PrintErrors(list) > 0:
		return 0, errors.New("the errors above have to be fixed, or files of one system need a build tag")
	}
	return len(list), nil
}
