// Package web embeds the browser client: a page, its scripts, its style and its icon.
//
// The page loads nothing from other servers, runs no inline script, and calls only the
// HTTP API of the server that it came from. Package internal/httpapi serves the files.
package web

import (
	"embed"
	"io/fs"
)

//go:embed static
var static embed.FS

// Files returns the client's files; index.html is the page.
func Files() fs.FS {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic("web: the client is not embedded: " + err.Error())
	}
	return files
}
