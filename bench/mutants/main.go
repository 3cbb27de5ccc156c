// Command mutants shows whether the tests of a package notice that the package is changed.
//
// It makes each condition always true and always false, moves bounds by one, replaces operators,
// negates constants and leaves out statements: one at a time. For each of these changes it runs
// the package's quick tests that reach the place, with -short, until one fails. It prints the
// changes that no test noticed, and those that no test reaches.
//
//	go -C bench run ./mutants [-files REGEXP] [-accepted FILE] FOLDER
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
)

func main() {
	files := flag.String("files", "", "regular expression of the files that are changed")
	accepted := flag.String("accepted", "", "file of the changes that no test has to notice: lines of a function, a kind and the code, then a tab and the reason")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	survivors, err := run(options{folder: flag.Arg(0), files: regexp.MustCompile(*files), accepted: *accepted})
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
	if survivors > 0 {
		os.Exit(3)
	}
}
