package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	slowTest   = 3 * time.Second  // of processor time; slower tests are not used
	wallLimit  = 10 * time.Second // that tests may take with a change, and five times what they take without it
	addedTests = 3                // seconds of processor time that they may use, and ten times what they use without it
	memory     = 6 << 20          // KiB of their address space
)

type options struct {
	folder   string
	files    *regexp.Regexp
	accepted string
}

// A trial is the work on one package.
type trial struct {
	options
	work    string // temporary folder
	program string // the compiled tests
	pkg     packageInfo
	mutants []*mutant
	tests   []test
}

// packageInfo is what go list says of a package.
type packageInfo struct {
	Name, ImportPath          string
	TestImports, XTestImports []string
}

// A test is a test function, with what it takes and the mutants that it reaches.
type test struct {
	name    string
	took    time.Duration
	used    time.Duration // processor time
	reaches map[int]bool
}

func run(o options) (survivors int, err error) {
	folder, err := filepath.Abs(o.folder)
	if err != nil {
		return 0, err
	}
	o.folder = folder
	reasons, err := readAccepted(o.accepted)
	if err != nil {
		return 0, err
	}
	work, err := os.MkdirTemp("", "mutants-*")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(work)
	t := &trial{options: o, work: work, program: filepath.Join(work, "tests")}
	list, err := t.command("go", "list", "-json=Name,ImportPath,TestImports,XTestImports", ".").Output()
	if err != nil {
		return 0, fmt.Errorf("go list: %w", err)
	}
	if err := json.Unmarshal(list, &t.pkg); err != nil {
		return 0, err
	}
	broken, err := t.build()
	if err != nil {
		return 0, err
	}
	if err := t.measure(); err != nil {
		return 0, err
	}
	counts := map[string]int{}
	for _, m := range t.mutants {
		result := t.try(m)
		if result != "killed" && t.isAccepted(m, reasons) {
			result = "accepted"
		}
		counts[result]++
		if result != "killed" && result != "accepted" {
			fmt.Printf("%-9s %s:%d %s %s: %s\n", result, m.file, m.line, m.fn, m.kind, m.code)
		}
	}
	fmt.Printf("%d mutants: %d killed, %d ended by a limit of time, %d lived, %d reached by no test, %d accepted; %d more do not compile\n",
		len(t.mutants), counts["killed"], counts["timeout"], counts["lived"], counts["unreached"], counts["accepted"], broken)
	return counts["lived"] + counts["unreached"], nil
}

// isAccepted reports whether there is a reason for a mutant, or for all of its function.
func (t *trial) isAccepted(m *mutant, reasons map[string]bool) bool {
	fn := t.pkg.ImportPath + "/" + m.file + " " + m.fn
	return reasons[fn+" *"] || reasons[fn+" "+m.kind+": "+m.code]
}

// readAccepted reads lines of a mutant, a tab and the reason why no test has to notice it.
func readAccepted(name string) (map[string]bool, error) {
	reasons := map[string]bool{}
	if name == "" {
		return reasons, nil
	}
	data, err := os.ReadFile(name)
	for line := range strings.Lines(string(data)) {
		if place, reason, ok := strings.Cut(line, "\t"); ok && strings.TrimSpace(reason) != "" {
			reasons[place] = true
		}
	}
	return reasons, err
}

// build compiles the tests with all mutants that compile.
func (t *trial) build() (broken int, err error) {
	names, err := filepath.Glob(filepath.Join(t.folder, "*.go"))
	if err != nil {
		return 0, err
	}
	skip := map[string]bool{}
	for range 30 {
		out, err := t.compile(names, skip)
		if err == nil {
			return len(skip), nil
		}
		if added := t.blame(string(out), skip); added == 0 {
			return 0, fmt.Errorf("%w: %s", err, out)
		}
	}
	return 0, errors.New("the changed package does not compile")
}

// compile writes the changed package and compiles its tests.
func (t *trial) compile(names []string, skip map[string]bool) ([]byte, error) {
	next := 1
	t.mutants = nil
	overlay := map[string]string{}
	for _, name := range names {
		base := filepath.Base(name)
		if strings.HasSuffix(base, "_test.go") || !t.files.MatchString(base) {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		s := &source{name: base, text: text, set: token.NewFileSet(), skip: skip, next: &next}
		changed, err := s.change()
		if err != nil {
			return nil, err
		}
		t.mutants = append(t.mutants, s.mutants...)
		overlay[name] = filepath.Join(t.work, base)
		if err := os.WriteFile(overlay[name], changed, 0o600); err != nil {
			return nil, err
		}
	}
	overlay[filepath.Join(t.folder, "mutant_switch.go")] = filepath.Join(t.work, "mutant_switch.go")
	if err := os.WriteFile(filepath.Join(t.work, "mutant_switch.go"), []byte("package "+t.pkg.Name+"\n"+switchCode), 0o600); err != nil {
		return nil, err
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(t.work, "overlay.json"), list, 0o600); err != nil {
		return nil, err
	}
	return t.command("go", "test", "-c", "-vet=off", "-gcflags=-e", "-overlay", filepath.Join(t.work, "overlay.json"), "-o", t.program, ".").CombinedOutput()
}

// switchCode selects the mutant of a run, and notes which mutants a run reaches.
const switchCode = `
import (
	"os"
	"strconv"
	"sync/atomic"
)

var mutantActive, _ = strconv.Atoi(os.Getenv("LOQUAT_MUTANT"))
var mutantNotes, _ = os.OpenFile(os.Getenv("LOQUAT_MUTANT_NOTES"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
var mutantNoted [1 << 14]atomic.Bool

func mutant(id int) bool {
	if mutantNotes != nil && !mutantNoted[id].Load() && !mutantNoted[id].Swap(true) {
		mutantNotes.WriteString(strconv.Itoa(id) + "\n")
	}
	return id == mutantActive
}

func mutantOf[T any](id int, a, b T) T {
	if mutant(id) {
		return b
	}
	return a
}
`

var compileError = regexp.MustCompile(`(?m)([^/\s]+\.go):(\d+):\d+: `)

// blame adds the mutants on the lines that do not compile to skip: arithmetic first.
func (t *trial) blame(errors string, skip map[string]bool) (added int) {
	faulty := map[string]bool{}
	for _, m := range compileError.FindAllStringSubmatch(errors, -1) {
		faulty[m[1]+":"+m[2]] = true
	}
	for _, onlyArithmetic := range []bool{true, false} {
		for place := range faulty {
			had := added
			for _, m := range t.mutants {
				if m.file+":"+strconv.Itoa(m.out) == place && (!onlyArithmetic || m.kind == "arithmetic") {
					skip[m.key] = true
					added++
				}
			}
			if added > had {
				delete(faulty, place)
			}
		}
	}
	return added
}

// command returns a command in the folder of the package that uses what others leave.
func (t *trial) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("nice", append([]string{"-n", "19", name}, args...)...)
	cmd.Dir = t.folder
	return cmd
}

// measure runs each test alone, without a change.
func (t *trial) measure() error {
	out, err := t.command(t.program, "-test.list", "^(Test|Fuzz)").Output()
	if err != nil {
		return err
	}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		notes := filepath.Join(t.work, "notes")
		_ = os.Remove(notes)
		began := time.Now()
		passed, used, _ := t.runTests("^"+name+"$", 10*time.Minute, 600, "LOQUAT_MUTANT_NOTES="+notes)
		if !passed || used > slowTest {
			fmt.Printf("not used  %s: passes %t, takes %v\n", name, passed, used)
			continue
		}
		one := test{name: name, took: time.Since(began), used: used, reaches: map[int]bool{}}
		data, _ := os.ReadFile(notes)
		for line := range strings.Lines(string(data)) {
			id, _ := strconv.Atoi(strings.TrimSpace(line))
			one.reaches[id] = true
		}
		t.tests = append(t.tests, one)
	}
	if len(t.tests) == 0 {
		return errors.New("no test passes without a change")
	}
	slices.SortFunc(t.tests, func(a, b test) int { return int(a.used - b.used) })
	return nil
}

// A group is tests that run in one process.
type group struct {
	names      []string
	took, used time.Duration
}

// try runs the tests that reach a mutant, quick ones first.
func (t *trial) try(m *mutant) string {
	var groups []*group
	for _, one := range t.tests {
		if !one.reaches[m.id] {
			continue
		}
		if len(groups) == 0 || groups[len(groups)-1].used > 200*time.Millisecond {
			groups = append(groups, &group{})
		}
		g := groups[len(groups)-1]
		g.names, g.took, g.used = append(g.names, one.name), g.took+one.took, g.used+one.used
	}
	if groups == nil {
		return "unreached"
	}
	for _, g := range groups {
		passed, _, out := t.runTests("^("+strings.Join(g.names, "|")+")$", wallLimit+5*g.took, int(10*g.used.Seconds())+addedTests, "LOQUAT_MUTANT="+strconv.Itoa(m.id))
		switch {
		case passed:
			continue
		case bytes.Contains(out, []byte("panic: test timed out")):
			return "timeout"
		case bytes.Contains(out, []byte("--- FAIL")), bytes.Contains(out, []byte("panic: ")), bytes.Contains(out, []byte("fatal error: ")):
			return "killed"
		}
		return "timeout" // the system ended it
	}
	return "lived"
}

func (t *trial) runTests(names string, wall time.Duration, seconds int, env string) (passed bool, used time.Duration, out []byte) {
	args := []string{"-c", `ulimit -t "$1" && ulimit -v "$2" && shift 2 && exec "$@"`, "sh", strconv.Itoa(seconds), strconv.Itoa(memory),
		t.program, "-test.run", names, "-test.short", "-test.failfast", "-test.timeout", wall.String()}
	if slices.Contains(slices.Concat(t.pkg.TestImports, t.pkg.XTestImports), "pgregory.net/rapid") {
		args = append(args, "-rapid.shrinktime=0s", "-rapid.nofailfile")
	}
	cmd := t.command("sh", args...)
	cmd.Env = append(os.Environ(), env)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if cmd.ProcessState != nil {
		used = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return err == nil, used, text.Bytes()
}
