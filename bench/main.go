// Command bench measures what Loquat claims to be quick at, side by side with what
// else there is, in one run. It promises medians of interleaved rounds, so that a
// busy machine slows all contenders alike, and says of every aim whether it is met.
// It is a module of its own, so that those it compares with are no dependencies of
// the service.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// section is one part of the report; each stands in a file of its own name.
type section struct {
	name string
	what string
	run  func(w io.Writer) (verdicts []verdict, err error)
}

var sections = []section{
	{"decoder", "decoding a streamed answer: Loquat, encoding/json, openai-go, go-openai", benchDecoder},
	{"store", "publishing to a follower: group commit beside a file with as many fsyncs", benchStore},
	{"growth", "what history costs: polls of large stores, appends to long sessions", benchGrowth},
	{"disk", "what a million increments leave on disk, on the real program", benchDisk},
	{"cancel", "from a cancel to the backend seeing its connection closed, on the real program", benchCancel},
	{"ui", "one schema of ten plugins, asked side by side, also as processes of the real program", benchUI},
	{"push", "push to 1,000 apps beside a plain broadcast, and what the bridge adds, on the real program", benchPush},
	{"isolation", "what a neighbour with a bad backend costs the others, on the real program", benchIsolation},
}

// verdict says whether an aim is met.
type verdict struct {
	aim string
	met bool
	got string
}

func main() {
	if kind := os.Getenv(pushEnv); kind != "" { // a process of the section push
		if err := servePush(kind); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if name := os.Getenv(pluginMark); name != "" {
		if err := runPlugin(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	only := flag.String("only", "", "run the section of this name alone: "+names())
	flag.Parse()
	if err := report(os.Stdout, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func names() string {
	var all []string
	for _, s := range sections {
		all = append(all, s.name)
	}
	return strings.Join(all, ", ")
}

func report(w io.Writer, only string) error {
	var verdicts []verdict
	ran := 0
	for _, s := range sections {
		if only != "" && only != s.name {
			continue
		}
		ran++
		fmt.Fprintf(w, "== %s: %s\n\n", s.name, s.what)
		v, err := s.run(w)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		verdicts = append(verdicts, v...)
	}
	if ran == 0 {
		return fmt.Errorf("there is no section %q, only %s", only, names())
	}
	fmt.Fprintln(w, "== aims")
	for _, v := range verdicts {
		word := "PASS"
		if !v.met {
			word = "MISS"
		}
		fmt.Fprintf(w, "%s  %s: %s\n", word, v.aim, v.got)
	}
	return nil
}
