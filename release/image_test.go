package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// unpackedImage returns the index of the image in a release, and its layout.
func unpackedImage(t *testing.T, r *release) (v1.ImageIndex, string) {
	t.Helper()
	f, err := os.Open(r.artifact(t, r.out, "_image.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir := t.TempDir()
	unpack(t, f, dir)
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := outer.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%+v, %v", manifest, err)
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index, dir
}

// The image is valid for the libraries and programs that others read it with.
func TestImageIsValid(t *testing.T) {
	r := theRelease(t)
	index, dir := unpackedImage(t, r)
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	require(t, "skopeo", "umoci")
	tag := strings.ReplaceAll(r.version, "+", "-")
	var seen struct{ Architecture, Os string }
	if err := json.Unmarshal([]byte(output(t, "skopeo", "inspect", "oci-archive:"+r.artifact(t, r.out, "_image.tar")+":"+tag)), &seen); err != nil {
		t.Fatal(err)
	}
	if seen.Architecture != r.host.arch || seen.Os != "linux" {
		t.Errorf("skopeo sees %+v", seen)
	}
	bundle := filepath.Join(t.TempDir(), "bundle")
	args := []string{"unpack", "--image", dir + ":" + tag, bundle}
	if os.Getuid() != 0 {
		args = slices.Insert(args, 1, "--rootless")
	}
	output(t, "umoci", args...)
	if _, err := os.Stat(filepath.Join(bundle, "rootfs", "usr", "local", "bin", "loquat")); err != nil {
		t.Error(err)
	}
}

// A container is run as the image says: in a file system that has nothing else, as its user.
func TestImageRuns(t *testing.T) {
	r := theRelease(t)
	if os.Getuid() != 0 {
		missing(t, "only root can run something in a file system of its own")
	}
	index, _ := unpackedImage(t, r)
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	files := mutate.Extract(image)
	unpack(t, files, root)
	// The user of the image can write to /data alone, as with --read-only.
	if err := errors.Join(files.Close(), os.Chmod(root, 0o755), os.Chmod(filepath.Join(root, "tmp"), 0o755)); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	c := container{root: root, config: config.Config, env: []string{"LOQUAT_LISTEN=" + address}}
	settings := `{"providers": {"main": {"provider": "reference_generic_compatible", "model": "m"}}}`
	if err := os.WriteFile(filepath.Join(root, "loquat.json"), []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}

	if out, err := c.command(config.Config.Healthcheck.Test[1:]...).CombinedOutput(); err == nil {
		t.Errorf("the health check passes although nothing runs: %s", out)
	}
	said := outputOf(t, c.command("loquat", "token", "new", "admin"))
	token := regexp.MustCompile(`\bloq_\S+`).FindString(said)
	if token == "" {
		t.Errorf("the token is %s", said)
	}
	stop := serve(t, c.command(slices.Concat(config.Config.Entrypoint, config.Config.Cmd)...))
	outputOf(t, c.command(config.Config.Healthcheck.Test[1:]...))
	editLongChat(t, "http://"+address, token)
	stop()
	if out, err := c.command(config.Config.Healthcheck.Test[1:]...).CombinedOutput(); err == nil {
		t.Errorf("the health check passes after the end: %s", out)
	}
}

// editLongChat makes a chat of 100 messages and sends another in place of most of them, for which SQLite
// needs a temporary file.
func editLongChat(t *testing.T, url, token string) {
	t.Helper()
	post := func(path, body string) (created struct {
		SessionID string `json:"session_id"`
	}) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode >= http.StatusBadRequest {
			t.Fatalf("%s: %s %v\n%s", path, resp.Status, err, answer)
		}
		if err := json.Unmarshal(answer, &created); err != nil {
			t.Fatalf("%s: %v\n%s", path, err, answer)
		}
		return created
	}
	message := `{"role": "user", "content": "` + strings.Repeat("x", 2000) + `"}`
	chat := post("/sessions", `{"messages": [`+strings.Repeat(message+", ", 99)+message+`]}`)
	post("/sessions/"+chat.SessionID+"/send", `{"content": "again", "delete_from": 1}`)
}

// container runs commands as an image says.
type container struct {
	root   string
	config v1.Config
	env    []string
}

func (c container) command(args ...string) *exec.Cmd {
	cmd := exec.Command("/usr/local/bin/"+args[0], args[1:]...)
	cmd.Dir, cmd.Env = c.config.WorkingDir, slices.Concat(c.config.Env, c.env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	return cmd
}

// The image is what Containerfile builds: user, entry point, volume, port, environment, health check
// and files.
func TestImageEqualsContainerfile(t *testing.T) {
	text, err := os.ReadFile("../Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRelease(options{root: "..", platforms: platforms}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	config := r.imageConfig()
	quoted := func(args []string) string { return `["` + strings.Join(args, `", "`) + `"]` }
	_, last, _ := strings.Cut(string(text), "\nFROM gcr.io/distroless/static-debian12:nonroot\n")
	want := map[string]string{
		"COPY": "", "ENV": strings.Join(config.Env[2:], " "), "WORKDIR": config.WorkingDir, "VOLUME": "/data", "EXPOSE": "8787", "USER": config.User,
		"HEALTHCHECK": "--interval=30s --timeout=10s --start-period=15m CMD " + quoted(config.Healthcheck.Test[1:]),
		"ENTRYPOINT":  quoted(config.Entrypoint), "CMD": quoted(config.Cmd),
	}
	copies := map[string]bool{}
	for line := range strings.Lines(last) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		value, known := want[name]
		switch {
		case !known:
			t.Errorf("%s is not in the image", strings.TrimSpace(line))
		case name == "COPY":
			copies[rest] = true
		case rest != value:
			t.Errorf("%s is %q, in the image %q", name, rest, value)
		}
		if name != "COPY" {
			delete(want, name)
		}
	}
	if len(want) != 1 {
		t.Errorf("Containerfile lacks some of %q", want)
	}
	for _, name := range []string{
		"--from=build /out/loquat /usr/local/bin/loquat", "--from=build --chown=65532:65532 /out/data /data", "LICENSE /usr/share/doc/loquat/LICENSE",
	} {
		if !copies[name] {
			t.Errorf("Containerfile does not COPY %s", name)
		}
	}
	if stages := strings.TrimSuffix(string(text), last); !strings.Contains(stages, "\nCOPY package.json package-lock.json tsconfig.base.json ./\n") {
		t.Error("the stage of the page lacks a file that web/tsconfig.json extends")
	}
	ignored, err := os.ReadFile("../.dockerignore")
	if err != nil || slices.Contains(strings.Split(string(ignored), "\n"), ".git") {
		t.Errorf("the program has no version, because the build cannot read the commit: %v", err)
	}
	if _, ok := config.Volumes["/data"]; !ok || len(config.ExposedPorts) != 1 {
		t.Errorf("volumes %v, ports %v", config.Volumes, config.ExposedPorts)
	}
	if h := config.Healthcheck; h.Interval.Seconds() != 30 || h.Timeout.Seconds() != 10 || h.StartPeriod.Minutes() != 15 {
		t.Errorf("the health check is %+v", h)
	}
}
