package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the format deb
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // the format rpm
)

const description = `self-hosted chat session service
Loquat keeps chat sessions durable, runs their requests against any backend
with a chat-completions HTTP API, and lets clients follow.`

// server is the user of the service. Its id is not known before the installation.
var server = owner{user: "loquat", group: "loquat"}

// readable is the owner of files that the service reads and others must not.
var readable = owner{user: "root", group: "loquat"}

// writePackage writes a package in a format of nfpm, deb or rpm.
func (r *release) writePackage(p *platform, format string) error {
	contents, err := r.packageFiles(p, format)
	if err != nil {
		return err
	}
	info, err := r.packageInfo(p, format)
	if err != nil {
		return err
	}
	dir := filepath.Join(r.stage, format+"_"+p.arch)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for i, f := range inOrder(contents) {
		entry, err := r.packageEntry(f, format, filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			return err
		}
		info.Contents = append(info.Contents, entry)
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	out, err := os.Create(filepath.Join(r.out, fmt.Sprintf("loquat_%s_%s_%s.%s", r.version, p.os, p.arch, format)))
	if err != nil {
		return err
	}
	if err := packager.Package(info, out); err != nil {
		return fmt.Errorf("%w (%w)", err, out.Close())
	}
	return out.Close()
}

// packageInfo returns what a package says of itself, and its scripts.
func (r *release) packageInfo(p *platform, format string) (*nfpm.Info, error) {
	version, prerelease, metadata := splitVersion(r.version)
	info := &nfpm.Info{
		Name: "loquat", Arch: p.arch, Platform: p.os, Version: version, Prerelease: prerelease, VersionMetadata: metadata, VersionSchema: "none", Release: "1",
		Section: "web", Priority: "optional", Maintainer: r.maintainer, Description: description, License: "Apache-2.0", MTime: r.time,
		DisableGlobbing: true,
	}
	script := func(name string) string { return filepath.Join(r.root, "deploy", "package", filepath.FromSlash(name)) }
	info.Scripts.PreInstall = script("user.sh")
	switch format {
	case "deb":
		info.Scripts.PostInstall, info.Scripts.PreRemove, info.Scripts.PostRemove = script("deb/postinst"), script("deb/prerm"), script("deb/postrm")
		info.Deb.Predepends = []string{"passwd"} // for the user, before files are unpacked
		info.Recommends = []string{"ca-certificates", "systemd"}
	case "rpm":
		info.Scripts.PostInstall, info.Scripts.PreRemove, info.Scripts.PostRemove = script("rpm/post"), script("rpm/preun"), script("rpm/postun")
		info.Depends = []string{"/usr/sbin/useradd"} // distributions name its package differently
		info.Recommends = []string{"ca-certificates", "systemd"}
		info.RPM.BuildHost = "localhost"
	}
	return info, nil
}

// splitVersion returns the parts of a version such as 1.2.3-rc.1+dirty. A hyphen in the second would
// be that before the revision of a package.
func splitVersion(text string) (version, prerelease, metadata string) {
	text, metadata, _ = strings.Cut(text, "+")
	version, prerelease, _ = strings.Cut(text, "-")
	return version, strings.ReplaceAll(prerelease, "-", "."), metadata
}

// packageFiles returns the files of a package.
func (r *release) packageFiles(p *platform, format string) ([]file, error) {
	program, err := os.ReadFile(p.program)
	if err != nil {
		return nil, err
	}
	list := []file{
		{path: "/usr/bin/loquat", mode: 0o755, content: program},
		{path: "/etc/loquat", mode: fs.ModeDir | 0o755},
		{path: "/var/lib/loquat", mode: fs.ModeDir | 0o700, owner: server},
	}
	for _, f := range []struct {
		from, to string
		kind     kind
		mode     fs.FileMode
		owner    owner
	}{
		{"deploy/loquat.service", "/usr/lib/systemd/system/loquat.service", plain, 0o644, owner{}},
		{"deploy/loquat-backup.service", "/usr/lib/systemd/system/loquat-backup.service", plain, 0o644, owner{}},
		{"deploy/package/loquat.json", "/etc/loquat/loquat.json", setting, 0o640, readable},
		{"deploy/package/environment", "/etc/loquat/environment", setting, 0o640, readable},
		{"README.md", "/usr/share/doc/loquat/README.md", manual, 0o644, owner{}},
	} {
		read, err := r.readFile(f.from, f.to)
		if err != nil {
			return nil, err
		}
		read.kind, read.mode, read.owner = f.kind, f.mode, f.owner
		list = append(list, read)
	}
	shared, err := r.sharedFiles(format)
	return append(list, shared...), err
}

// sharedFiles returns the documentation, the licences, the manual pages and the completions, where
// systems with a format of packages have them.
func (r *release) sharedFiles(format string) (list []file, err error) {
	docs, err := r.docs()
	if err != nil {
		return nil, err
	}
	for _, name := range docs {
		f, err := r.readFile(name, "/usr/share/doc/loquat/"+name)
		if err != nil {
			return nil, err
		}
		f.kind = manual
		list = append(list, f)
	}
	for _, page := range r.pages {
		page.path = "/usr/share/man/" + page.path + ".gz"
		if page.content, err = compressed(page.content); err != nil {
			return nil, err
		}
		page.kind = manual
		list = append(list, page)
	}
	places := map[string]string{
		"bash/loquat": "/usr/share/bash-completion/completions/loquat", "fish/loquat.fish": "/usr/share/fish/vendor_completions.d/loquat.fish",
		"zsh/_loquat": "/usr/share/zsh/vendor-completions/_loquat",
	}
	if format == "rpm" {
		places["zsh/_loquat"] = "/usr/share/zsh/site-functions/_loquat"
	}
	for _, script := range r.scripts {
		if place := places[script.path]; place != "" {
			script.path = place
			list = append(list, script)
		}
	}
	legal, err := r.legalFiles(format)
	return append(list, legal...), err
}

// legalFiles returns the licences and the changelog.
func (r *release) legalFiles(format string) ([]file, error) {
	folder := "/usr/share/doc/loquat/"
	changes, err := r.readFile("CHANGELOG.md", folder+"CHANGELOG.md")
	if err != nil {
		return nil, err
	}
	changes.kind = manual
	if format == "rpm" {
		license, err := r.readFile("LICENSE", "/usr/share/licenses/loquat/LICENSE")
		license.kind = licence
		return []file{changes, license, {path: "/usr/share/licenses/loquat/" + licensesName, mode: 0o644, content: r.licenses, kind: licence}}, err
	}
	changes.path = folder + "changelog.gz"
	if changes.content, err = compressed(changes.content); err != nil {
		return nil, err
	}
	third, err := compressed(r.licenses)
	if err != nil {
		return nil, err
	}
	entry, err := compressed([]byte(r.debianChangelog()))
	if err != nil {
		return nil, err
	}
	copyright, err := r.readFile("deploy/package/deb/copyright", folder+"copyright")
	return []file{
		changes, copyright, {path: folder + licensesName + ".gz", mode: 0o644, content: third}, {path: folder + "changelog.Debian.gz", mode: 0o644, content: entry},
	}, err
}

// debianChangelog returns the changelog of the packaging, which Debian's policy asks for.
func (r *release) debianChangelog() string {
	version, prerelease, metadata := splitVersion(r.version)
	if prerelease != "" {
		version += "~" + prerelease
	}
	if metadata != "" {
		version += "+" + metadata
	}
	return fmt.Sprintf("loquat (%s-1) stable; urgency=medium\n\n  * changelog.gz lists the changes.\n\n -- %s  %s\n", version, r.maintainer, r.time.Format(time.RFC1123Z))
}

// packageEntry returns a file as nfpm takes it, with its content at a path.
func (r *release) packageEntry(f file, format, source string) (*files.Content, error) {
	info := &files.ContentFileInfo{Owner: "root", Group: "root", Mode: f.mode.Perm(), MTime: r.time}
	if f.owner.user != "" {
		info.Owner, info.Group = f.owner.user, f.owner.group
	}
	if f.mode.IsDir() {
		return &files.Content{Destination: f.path, Type: files.TypeDir, FileInfo: info}, nil
	}
	entry := &files.Content{Source: source, Destination: f.path, Type: files.TypeFile, FileInfo: info}
	switch {
	case f.kind == setting:
		entry.Type = files.TypeConfigNoReplace
	case f.kind == manual && format == "rpm":
		entry.Type = files.TypeRPMDoc
	case f.kind == licence && format == "rpm":
		entry.Type = files.TypeRPMLicense
	}
	return entry, os.WriteFile(source, f.content, 0o600)
}
