// Command bench measures the performance of Loquat and compares it with alternatives. It
// reports medians of interleaved rounds, so that a busy machine affects all alternatives
// equally, and it reports for every aim whether it is met. It is a module of its own, so that
// the alternatives are not dependencies of the service.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// section is one part of the report. The file with its name contains its code.
type section struct {
	name string
	what string
	run  func(w io.Writer) (verdicts []verdict, err error)
}

var sections = []section{
	{"floor", "streams and sends compared with the least that a durable relay does, with the real program", benchFloor},
	{"relay", "relayed chat completions compared with httputil.ReverseProxy, with the real program", benchRelay},
	{"history", "sends, pages, appends, polls and start-up with 10 and 10,000 messages, with the real program", benchHistory},
	{"decoder", "decoding a streamed answer: Loquat, encoding/json, openai-go, go-openai", benchDecoder},
	{"store", "publishing to a follower: group commit compared with a file with as many fsyncs", benchStore},
	{"postgres", "publishing to PostgreSQL: group commit compared with pgx and the same batches; needs PostgreSQL", benchPostgres},
	{"nodes", "streams over three nodes on PostgreSQL compared with the embedded store, and the cost of history there; needs PostgreSQL", benchNodes},
	{"growth", "the cost of history: polls of large stores, appends to long sessions", benchGrowth},
	{"search", "searches in a million messages, and what the index adds to appends, in both databases; needs PostgreSQL", benchSearch},
	{"sessions", "pages of a list of 100,000 sessions, and alternatives in long sessions, in both databases; needs PostgreSQL", benchSessions},
	{"disk", "the disk space after a million increments, with the real program", benchDisk},
	{"cancel", "from a cancel until the backend sees its connection closed, with the real program", benchCancel},
	{"ui", "one schema of ten plugins, asked in parallel, also as processes of the real program", benchUI},
	{"push", "push to 1,000 apps compared with a plain broadcast, and the delay of the bridge, with the real program", benchPush},
	{"isolation", "the effect of a neighbour with a faulty backend on other users, with the real program", benchIsolation},
	{"attack", "the effect of 16 attackers on a user, with the real program", benchAttack},
}

// verdict is the result for one aim.
type verdict struct {
	aim string
	met bool
	got string
}

func main() {
	if kind := os.Getenv(pushEnv); kind != "" { // this is a child process of the section push
		if err := servePush(kind); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if spec := os.Getenv(attackEnv); spec != "" {
		if err := runAttack(spec); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if kind := os.Getenv(floorEnv); kind != "" {
		if err := serveFloor(kind); err != nil {
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
	only := flag.String("only", "", "run only these sections, separated by commas: "+names())
	flag.IntVar(&floorPairs, "pairs", 5, "pairs of runs of the sections floor and history")
	flag.IntVar(&searchedMessages, "messages", 1_000_000, "messages of the section search")
	flag.IntVar(&listedSessions, "sessions", 100_000, "sessions of the section sessions")
	flag.StringVar(&onlyDatabase, "database", "", "SQLite or PostgreSQL: measure only this one in the sections search and sessions")
	flag.StringVar(&floorWork, "work", "", "run only works of the section floor whose name contains this")
	flag.StringVar(&productPath, "product", "", "program to measure in the sections floor, history and disk (default: the one built from this folder)")
	flag.StringVar(&basePath, "base", "", "older version of the program, to compare with in the sections floor, history and disk")
	flag.BoolVar(&markdown, "markdown", false, "print the tables of the sections floor and history as docs/benchmarks.md has them")
	flag.Parse()
	missed, err := report(os.Stdout, *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	if err != nil || missed > 0 {
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

// report runs sections and returns how many aims they missed.
func report(w io.Writer, only string) (missed int, err error) {
	var verdicts []verdict
	chosen := strings.Split(only, ",")
	for _, name := range chosen {
		if !slices.ContainsFunc(sections, func(s section) bool { return name == "" || s.name == name }) {
			return 0, fmt.Errorf("the section %q is not known; the sections are %s", name, names())
		}
	}
	for _, s := range sections {
		if only != "" && !slices.Contains(chosen, s.name) {
			continue
		}
		fmt.Fprintf(w, "== %s: %s\n\n", s.name, s.what)
		v, err := s.run(w)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", s.name, err)
		}
		verdicts = append(verdicts, v...)
	}
	fmt.Fprintln(w, "== aims")
	for _, v := range verdicts {
		word := "PASS"
		if !v.met {
			word = "MISS"
			missed++
		}
		fmt.Fprintf(w, "%s  %s: %s\n", word, v.aim, v.got)
	}
	return missed, nil
}
