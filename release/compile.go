package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// platform is an operating system and an architecture, with the program built for it.
type platform struct {
	os, arch string
	program  string // path
}

func (p platform) String() string { return p.os + "/" + p.arch }

// programName returns the name of the program on the platform.
func (p platform) programName() string {
	if p.os == "windows" {
		return "loquat.exe"
	}
	return "loquat"
}

// release is a release that is being built.
type release struct {
	options
	stage     string // directory for intermediate files
	platforms []*platform
	host      *platform // the one whose program runs here; it need not be among platforms
	commit    string
	goVersion string
	time      time.Time // of everything in the release

	parts    []part // what is inside the program
	licenses []byte // of all parts
	pages    []file // manual pages, by name
	scripts  []file // completions, by shell
}

func newRelease(o options, stage string) (*release, error) {
	r := &release{options: o, stage: stage, host: &platform{os: runtime.GOOS, arch: runtime.GOARCH}}
	var err error
	if r.root, err = filepath.Abs(o.root); err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(o.platforms, ",") {
		system, arch, _ := strings.Cut(name, "/")
		if !slices.Contains(strings.Split(platforms, ","), name) {
			return nil, fmt.Errorf("-platforms: %q is not one of %s", name, platforms)
		}
		p := &platform{os: system, arch: arch}
		if *p == *r.host {
			p = r.host
		}
		r.platforms = append(r.platforms, p)
	}
	r.time, err = r.sourceDate()
	return r, err
}

// sourceDate returns SOURCE_DATE_EPOCH, else the time of the commit.
func (r *release) sourceDate() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := exec.Command("git", "-C", r.root, "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("the time of the commit is not known (%w); set SOURCE_DATE_EPOCH", err)
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %q is not a number of seconds", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// compile builds the program for all platforms and for this one.
func (r *release) compile() error {
	if err := r.requireNoExperiments(); err != nil {
		return err
	}
	all := r.platforms
	if !slices.Contains(all, r.host) {
		all = append([]*platform{r.host}, all...)
	}
	for _, p := range all {
		p.program = filepath.Join(r.stage, p.os+"_"+p.arch, p.programName())
		cmd := r.goCommand(p, "build", "-trimpath", "-buildvcs=auto", "-ldflags=-s -w", "-o", p.program, "./cmd/loquat")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build for %s: %w\n%s", p, err, bytes.TrimSpace(out))
		}
	}
	return r.identify()
}

// requireNoExperiments fails if an experiment of Go is switched on. No value of GOEXPERIMENT overrides one that
// `go env -w` has set.
func (r *release) requireNoExperiments() error {
	out, err := r.goCommand(r.host, "env", "GOEXPERIMENT").Output()
	if err != nil {
		return fmt.Errorf("go env GOEXPERIMENT: %w", err)
	}
	if on := string(bytes.TrimSpace(out)); on != "" {
		return fmt.Errorf("the experiment %s of Go is switched on, which changes the program; run go env -u GOEXPERIMENT", on)
	}
	return nil
}

// goCommand returns a command of Go for a platform. What else would change the result is fixed. An empty variable
// would not override one that `go env -w` has set.
func (r *release) goCommand(p *platform, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "GOOS="+p.os, "GOARCH="+p.arch, "CGO_ENABLED=0", "GOFLAGS=-buildvcs=auto", "GOFIPS140=off", "GOWORK=off", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0")
	return cmd
}

// identify reads the version and the commit from the program.
func (r *release) identify() error {
	info, err := buildinfo.ReadFile(r.host.program)
	if err != nil {
		return err
	}
	r.goVersion = info.GoVersion
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			r.commit = s.Value
		}
	}
	if r.version == "" {
		r.version = info.Main.Version
	}
	r.version = strings.TrimPrefix(r.version, "v")
	if r.version == "" || r.version == "(devel)" {
		return fmt.Errorf("the program has no version, because the commit is not known; name one with -version")
	}
	return nil
}
