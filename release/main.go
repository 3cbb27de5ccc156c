// Command release builds what is published of a version of Loquat into a directory: archives for
// six platforms, packages for Debian and RPM systems, a container image, a bill of materials, and the
// checksums of all. The same commit, built with the same versions of Go and Node.js, gives the same
// bytes. It is a module of its own, so that its tools are not dependencies of the service.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// platforms are those of a release.
const platforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

// options are the flags.
type options struct {
	root       string // of the repository
	out        string
	platforms  string
	version    string
	maintainer string
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", "..", "`directory` of the repository")
	flag.StringVar(&o.out, "out", "../dist", "`directory` for the files, which is emptied first")
	flag.StringVar(&o.platforms, "platforms", platforms, "`list` of GOOS/GOARCH; packages and the image are for those of Linux")
	flag.StringVar(&o.version, "version", "", "`version` in names and packages (default: that of the program)")
	flag.StringVar(&o.maintainer, "maintainer", "Loquat maintainers <maintainers@loquat.example>", "`contact` in packages")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "release: %q is not a flag; see -help\n", flag.Arg(0))
		os.Exit(2)
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run builds a release.
func run(o options) error {
	stage, err := os.MkdirTemp("", "loquat-release-")
	if err != nil {
		return err
	}
	err = build(o, stage)
	return errors.Join(err, os.RemoveAll(stage))
}

// build builds a release with the help of a directory for intermediate files.
func build(o options, stage string) error {
	r, err := newRelease(o, stage)
	if err != nil {
		return err
	}
	if err := r.compile(); err != nil {
		return err
	}
	if err := r.gather(); err != nil {
		return err
	}
	if err := emptyDir(r.out); err != nil {
		return err
	}
	for _, p := range r.platforms {
		if err := r.writeArchive(p); err != nil {
			return fmt.Errorf("archive for %s: %w", p, err)
		}
		if p.os != "linux" {
			continue
		}
		for _, format := range []string{"deb", "rpm"} {
			if err := r.writePackage(p, format); err != nil {
				return fmt.Errorf("%s for %s: %w", format, p, err)
			}
		}
	}
	if err := r.writeImage(); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if err := r.writeSBOM(); err != nil {
		return fmt.Errorf("bill of materials: %w", err)
	}
	return writeSums(r.out)
}

// emptyDir makes a directory without files. It removes only what a release has written there.
func emptyDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "loquat_") && e.Name() != sumsName {
			return fmt.Errorf("%s is not from a release; name an empty directory with -out", filepath.Join(dir, e.Name()))
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
