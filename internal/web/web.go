// Package web is the browser client: a page, its script, its style and its icon.
//
// It promises that the page loads nothing from elsewhere, runs no inline script, and
// talks only to the HTTP API of the server that it came from. It does not serve
// itself: internal/httpapi does.
package web

import (
	"embed"
	"io/fs"
)

//go:embed static
var static embed.FS

// Files returns the client, with index.html as its page.
func Files() fs.FS {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic("web: the client is not embedded: " + err.Error())
	}
	return files
}
