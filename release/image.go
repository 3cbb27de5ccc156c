package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nonroot is the user in the image, as in the last stage of Containerfile.
var nonroot = owner{id: 65532}

// writeImage writes an archive of an OCI layout. Its index has the images for all platforms of Linux.
// It is what Containerfile builds, without a container engine.
func (r *release) writeImage() error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	images := 0
	for _, p := range r.platforms {
		if p.os != "linux" {
			continue
		}
		image, err := r.image(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
		images++
	}
	if images == 0 {
		return nil
	}
	dir := filepath.Join(r.stage, "image")
	place, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	tag := strings.ReplaceAll(r.version, "+", "-")
	names := map[string]string{"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": "docker.io/library/loquat:" + tag} // Docker reads the second
	if err := place.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	files, err := tree(dir)
	if err != nil {
		return err
	}
	out, err := tarOf(files, r.time)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "loquat_"+r.version+"_image.tar"), out, 0o644)
}

// tree returns the files of a directory.
func tree(dir string) (files []file, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f := file{path: filepath.ToSlash(name), mode: 0o644}
		if entry.IsDir() {
			f.mode = fs.ModeDir | 0o755
		} else if f.content, err = os.ReadFile(path); err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	return inOrder(files), err
}

// image returns the image of a platform: a layer that changes seldom, and one with the program.
func (r *release) image(p *platform) (v1.Image, error) {
	program, err := os.ReadFile(p.program)
	if err != nil {
		return nil, err
	}
	license, err := r.readFile("LICENSE", "usr/share/doc/loquat/LICENSE")
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, l := range []struct {
		what  string
		files []file
	}{
		{"certificates, user and directories", baseFiles()},
		{"loquat " + r.version, []file{
			{path: "usr/local/bin/loquat", mode: 0o755, content: program}, license,
			{path: "usr/share/doc/loquat/" + licensesName, mode: 0o644, content: r.licenses},
		}},
	} {
		layer, err := r.layer(l.files)
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: l.what}})
		if err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created, config.Config = p.os, p.arch, v1.Time{Time: r.time}, r.imageConfig()
	return mutate.ConfigFile(image, config)
}

// imageConfig returns how a container runs. Containerfile says the same.
func (r *release) imageConfig() v1.Config {
	return v1.Config{
		User:         "65532:65532",
		Entrypoint:   []string{"loquat"},
		Cmd:          []string{"serve"},
		WorkingDir:   "/",
		Volumes:      map[string]struct{}{"/data": {}},
		ExposedPorts: map[string]struct{}{"8787/tcp": {}},
		Env: []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt",
			"LOQUAT_DATA=/data", "LOQUAT_LISTEN=0.0.0.0:8787",
		},
		// OCI's specification has no health check. Docker reads this field in images of either format.
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "loquat", "health"}, Interval: 30 * time.Second, Timeout: 10 * time.Second, StartPeriod: 15 * time.Minute},
		Labels: map[string]string{
			"org.opencontainers.image.title": "Loquat", "org.opencontainers.image.version": r.version, "org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.created": r.time.Format(time.RFC3339), "org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
}

// layer returns a layer with files and the directories above them.
func (r *release) layer(files []file) (v1.Layer, error) {
	text, err := tarOf(withParents(files), r.time)
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }, tarball.WithMediaType(types.OCILayer))
}

// withParents adds the directories above files.
func withParents(files []file) []file {
	known := map[string]bool{}
	for _, f := range files {
		known[f.path] = true
	}
	for _, f := range files {
		for dir := filepath.ToSlash(filepath.Dir(f.path)); dir != "." && !known[dir]; dir = filepath.ToSlash(filepath.Dir(dir)) {
			known[dir] = true
			files = append(files, file{path: dir, mode: fs.ModeDir | 0o755})
		}
	}
	return inOrder(files)
}

// baseFiles returns what every program needs: the certificates of public authorities, the names of
// users, and a directory for temporary files.
func baseFiles() []file {
	var certificates bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil { // a file cannot say the others
			// A write to a buffer cannot fail.
			_ = pem.Encode(&certificates, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return []file{
		{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: certificates.Bytes()},
		{path: "etc/passwd", mode: 0o644, content: []byte("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n")},
		{path: "etc/group", mode: 0o644, content: []byte("root:x:0:\nnonroot:x:65532:\n")},
		{path: "home/nonroot", mode: fs.ModeDir | 0o700, owner: nonroot},
		{path: "tmp", mode: fs.ModeDir | fs.ModeSticky | 0o777},
		{path: "data", mode: fs.ModeDir | 0o755, owner: nonroot},
	}
}
