package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// older is a version before every other.
const older = "0.0.0-0"

// built is the release of the working tree for this platform, and the packages of an older version
// with the same files.
var built = sync.OnceValues(func() (*release, error) {
	var err error
	if stage, err = os.MkdirTemp("", "loquat-release-test-"); err != nil {
		return nil, err
	}
	o := options{root: "..", out: filepath.Join(stage, "dist"), platforms: runtime.GOOS + "/" + runtime.GOARCH, maintainer: "Loquat <test@loquat.example>"}
	if err := build(o, stage); err != nil {
		return nil, err
	}
	r, err := newRelease(o, stage)
	if err != nil {
		return nil, err
	}
	r.host.program = filepath.Join(stage, r.host.os+"_"+r.host.arch, r.host.programName())
	if err := errors.Join(r.identify(), r.gather()); err != nil {
		return nil, err
	}
	before := *r
	before.version, before.out = older, filepath.Join(stage, "before")
	if err := os.Mkdir(before.out, 0o755); err != nil {
		return nil, err
	}
	return r, errors.Join(before.writePackage(r.host, "deb"), before.writePackage(r.host, "rpm"))
})

// stage is the directory of built; "" if no test needed it.
var stage string

func TestMain(m *testing.M) {
	code := m.Run()
	if stage != "" {
		os.RemoveAll(stage)
	}
	os.Exit(code)
}

// theRelease returns the release of the working tree.
func theRelease(t *testing.T) *release {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("packages and images are tried on Linux")
	}
	require(t, "node", "npm")
	if out, err := exec.Command("make", "-C", "..", "web").CombinedOutput(); err != nil {
		t.Fatalf("make web: %v\n%s", err, out)
	}
	r, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// require skips a test for want of programs. Where CI is set, that is a failure.
func require(t *testing.T, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			missing(t, name+" is not installed")
		}
	}
}

func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// artifact returns the path of a file of the release by the end of its name.
func (r *release) artifact(t *testing.T, dir, end string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "loquat_*"+end))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s has %d files *%s, %v", dir, len(found), end, err)
	}
	return found[0]
}

// output runs a command, which must succeed, and returns what it prints.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	return outputOf(t, exec.Command(name, args...))
}

func outputOf(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	timer := time.AfterFunc(5*time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out)
}

// unpack unpacks a tar into a directory, with owners if the test runs as root.
func unpack(t *testing.T, in io.Reader, dir string) {
	t.Helper()
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			err = unpackOne(r, h, filepath.Join(dir, filepath.FromSlash(h.Name)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func unpackOne(in io.Reader, h *tar.Header, path string) error {
	if h.Typeflag == tar.TypeDir {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
	} else {
		content, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o600)); err != nil {
			return err
		}
	}
	if os.Getuid() == 0 {
		if err := os.Chown(path, h.Uid, h.Gid); err != nil {
			return err
		}
	}
	return os.Chmod(path, h.FileInfo().Mode().Perm()|h.FileInfo().Mode()&fs.ModeSticky)
}

// Two builds of the same sources at different places, under different circumstances, have equal bytes.
func TestReproducible(t *testing.T) {
	r := theRelease(t)
	require(t, "git", "make")
	other := filepath.Join(t.TempDir(), "another place", "loquat")
	output(t, "git", "clone", "--quiet", "--shared", r.root, other)
	copyChanges(t, r.root, other)
	out := filepath.Join(t.TempDir(), "files")
	cmd := exec.Command("sh", "-c", `umask 077 && make web && cd release && go run . -maintainer 'Loquat <test@loquat.example>' -out "$0" -platforms "$1"`, out, r.options.platforms)
	settings := filepath.Join(t.TempDir(), "go.env") // as go env -w writes them
	if err := os.WriteFile(settings, []byte("GOFLAGS=-tags=nothing\nGOFIPS140=latest\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.Dir, cmd.Env = other, append(os.Environ(), "TZ=Asia/Kathmandu", "LC_ALL=C", "GOMAXPROCS=1", "GOFLAGS=-buildvcs=false -tags=nothing", "GOENV="+settings)
	outputOf(t, cmd)
	want, err := os.ReadFile(filepath.Join(r.out, sumsName))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(out, sumsName))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) || bytes.Count(want, []byte("\n")) != 5 {
		t.Errorf("the second build has\n%swant\n%s", got, want)
	}
	sums := exec.Command("sha256sum", "--check", "--quiet", sumsName)
	sums.Dir = out
	outputOf(t, sums)
}

// copyChanges copies what is not committed yet.
func copyChanges(t *testing.T, from, to string) {
	t.Helper()
	names := output(t, "git", "-C", from, "ls-files", "-z", "--modified", "--others", "--exclude-standard")
	for name := range strings.SplitSeq(names, "\x00") {
		if name == "" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			err = os.Remove(filepath.Join(to, name))
		} else if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755), os.WriteFile(filepath.Join(to, name), content, 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// unpackedArchive returns the folder in the archive for this platform.
func unpackedArchive(t *testing.T, r *release) string {
	t.Helper()
	f, err := os.Open(r.artifact(t, r.out, ".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	unpack(t, in, dir)
	return filepath.Join(dir, strings.TrimSuffix(filepath.Base(f.Name()), ".tar.gz"))
}

// The archive has a program that runs, with its version, and what belongs to it.
func TestArchive(t *testing.T) {
	r := theRelease(t)
	dir := unpackedArchive(t, r)
	if said := output(t, filepath.Join(dir, "loquat"), "version"); !strings.Contains(said, "loquat v"+r.version+", commit "+r.commit) {
		t.Errorf("the program is %s, want version %s of commit %s", said, r.version, r.commit)
	}
	for _, name := range []string{"LICENSE", "README.md", licensesName, "docs/operations.md", "docs/monitoring/alerts.yml", "deploy/loquat.service", "completions/powershell/loquat.ps1", "man/man1/loquat.1"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 || info.Mode().Perm() != 0o644 {
			t.Errorf("%s: %v", name, err)
		}
	}
	pages, err := filepath.Glob(filepath.Join(dir, "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range regexp.MustCompile(`\]\((\.\./deploy/[^)#]+)\)`).FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(dir, "docs", link[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
	if out := output(t, filepath.Join(dir, "loquat"), "config", "check", filepath.Join(dir, "deploy", "package", "loquat.json")); !strings.Contains(out, "ok") {
		t.Errorf("the configuration of the packages: %s", out)
	}
}

// Manual pages have no faults, and shells load the completions.
func TestManualAndCompletions(t *testing.T) {
	r := theRelease(t)
	require(t, "man", "bash", "zsh", "fish")
	dir := unpackedArchive(t, r)
	pages, err := filepath.Glob(filepath.Join(dir, "man", "man1", "*.1"))
	if err != nil || len(pages) < 25 {
		t.Fatalf("%d manual pages, %v", len(pages), err)
	}
	for _, page := range pages {
		cmd := exec.Command("man", "--warnings", "-l", page)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANROFFSEQ=", "MANPAGER=cat")
		var said bytes.Buffer
		cmd.Stderr = &said
		if text, err := cmd.Output(); err != nil || said.Len() > 0 || !bytes.Contains(text, []byte("NAME")) {
			t.Errorf("%s: %v %s", filepath.Base(page), err, said.String())
		}
	}
	path := "PATH=" + dir + ":" + os.Getenv("PATH")
	for _, tc := range []struct{ shell, script, want string }{
		{"bash", `source completions/bash/loquat; COMP_WORDS=(loquat upg); COMP_CWORD=1; COMP_LINE='loquat upg'; COMP_POINT=10; COMP_TYPE=9
			_get_comp_words_by_ref() { cur=upg; prev=loquat; words=(loquat upg); cword=1; }; __start_loquat; echo "${COMPREPLY[@]}"`, "upgrade"},
		{"zsh", `autoload -U compinit && compinit -u -D && fpath=(completions/zsh $fpath) && source completions/zsh/_loquat && whence -w _loquat`, "_loquat: function"},
		{"fish", `source completions/fish/loquat.fish; complete --do-complete 'loquat export --format m'`, "markdown"},
	} {
		cmd := exec.Command(tc.shell, "-c", tc.script)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), path, "HOME="+t.TempDir())
		if out := outputOf(t, cmd); !strings.Contains(out, tc.want) {
			t.Errorf("%s says %q, want %q", tc.shell, out, tc.want)
		}
	}
}

// The bill of materials and the licences name everything that is in the program.
func TestBillOfMaterials(t *testing.T) {
	r := theRelease(t)
	text, err := os.ReadFile(r.artifact(t, r.out, "_sbom.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat  string
		Components []struct {
			PURL     string
			Licenses []struct {
				Expression string
				License    struct{ ID string }
			}
		}
	}
	if err := json.Unmarshal(text, &bom); err != nil || bom.BOMFormat != "CycloneDX" {
		t.Fatalf("%q, %v", bom.BOMFormat, err)
	}
	var got []string
	npm := 0
	for _, c := range bom.Components {
		if len(c.Licenses) != 1 || c.Licenses[0].Expression+c.Licenses[0].License.ID == "" {
			t.Errorf("%s has no licence", c.PURL)
		}
		if strings.HasPrefix(c.PURL, "pkg:npm/") {
			npm++
		} else {
			got = append(got, c.PURL)
		}
	}
	info, err := buildinfo.ReadFile(r.host.program)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}
	for _, m := range info.Deps {
		want = append(want, "pkg:golang/"+m.Path+"@"+m.Version)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the modules are\n%q\nwant\n%q", got, want)
	}
	if npm < 50 {
		t.Errorf("there are %d npm packages", npm)
	}
	// A file LICENSE_list of this module has another licence than the module.
	if i := slices.IndexFunc(r.parts, func(p part) bool { return p.name == "github.com/hashicorp/golang-lru/v2" }); i < 0 {
		t.Error("golang-lru is not in the program")
	} else if r.parts[i].licence != "BSD-3-Clause AND MPL-2.0" {
		t.Errorf("golang-lru has the licence %q", r.parts[i].licence)
	} else if !bytes.Contains(r.licenses, []byte("Copyright (c) 2009 The Go Authors.")) || len(r.parts[i].texts) != 2 {
		t.Errorf("golang-lru has %d licences", len(r.parts[i].texts))
	}
	for _, p := range r.parts {
		if !bytes.Contains(r.licenses, []byte("\n"+p.name+" "+p.version+"\n")) {
			t.Errorf("%s does not name %s", licensesName, p.name)
		}
	}
}

func TestSplitVersion(t *testing.T) {
	for text, want := range map[string][3]string{
		"1.2.3": {"1.2.3", "", ""}, "1.2.3-rc.1": {"1.2.3", "rc.1", ""},
		"0.0.0-20261126202501-e14873e92990+dirty": {"0.0.0", "20261126202501.e14873e92990", "dirty"},
	} {
		version, prerelease, metadata := splitVersion(text)
		if got := [3]string{version, prerelease, metadata}; got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestUnknownPlatform(t *testing.T) {
	for _, name := range []string{"", "linux", "linux/amd6", "plan9/amd64", "linux/amd64,"} {
		if _, err := newRelease(options{root: "..", platforms: name}, t.TempDir()); err == nil || !strings.Contains(err.Error(), "-platforms") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A release is not built with experiments of Go, which `go env -w` may have switched on.
func TestExperimentsAreRefused(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "0")
	r, err := newRelease(options{root: t.TempDir(), platforms: platforms}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	settings := filepath.Join(t.TempDir(), "go.env")
	if err := os.WriteFile(settings, []byte("GOEXPERIMENT=boringcrypto\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOENV", settings)
	if err := r.compile(); err == nil || !strings.Contains(err.Error(), "go env -u GOEXPERIMENT") {
		t.Errorf("the error is %v", err)
	}
}

// A directory with files of others is not emptied.
func TestOutputIsNotEmptied(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "precious")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := emptyDir(dir); err == nil || !strings.Contains(err.Error(), "-out") {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(name); err != nil {
		t.Error(err)
	}
}
