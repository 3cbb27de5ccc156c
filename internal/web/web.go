// Package web embeds the browser client, which is built from the folder web.
//
// The page loads nothing from other servers, runs no inline script, and calls only the
// HTTP API of the server that it came from. Package internal/httpapi serves the files.
package web

import (
	"embed"
	"io/fs"
)

// dist is the client as web/build.mjs builds it: index.html, sw.js, manifest.webmanifest,
// icons and licenses.html at the root, files with hashed names in assets, the page of a
// sandboxed frame in frame, each text with compressed copies (.br, .gz) beside it. Without a
// build it has only a placeholder.
//
//go:embed all:dist
var dist embed.FS

// Files returns the client's files; index.html is the page. There is none without a build.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic("web: the client is not embedded: " + err.Error())
	}
	return files
}
