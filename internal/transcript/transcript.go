// Package transcript writes sessions for readers: as Markdown, or as an HTML page that runs
// nothing and needs nothing else.
package transcript

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"loquat"
	"loquat/internal/archive"
	"loquat/internal/asset"
	"loquat/internal/readable"
)

// titleOf returns the title of a session, or its id.
func titleOf(s archive.Session) string {
	if title := strings.Join(strings.Fields(s.Metadata.String(loquat.MetaTitle)), " "); title != "" {
		return title
	}
	return s.SessionID
}

// timeOf returns a time as readers see it.
func timeOf(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// speaker describes who wrote a message.
func speaker(m loquat.Message) string {
	switch m.Role {
	case loquat.RoleUser:
		return "User"
	case loquat.RoleSystem:
		return "System"
	case loquat.RoleTool:
		return strings.TrimSpace("Tool " + m.Metadata.String(loquat.MetaToolName))
	}
	if model := m.Metadata.String(loquat.MetaModel); model != "" {
		return "Assistant (" + model + ")"
	}
	return "Assistant"
}

// contentOf returns the text of a message for readers.
func contentOf(m loquat.Message) string {
	if m.Role == loquat.RoleTool {
		return readable.Displayed(m)
	}
	return m.Content
}

// notes returns what else a reader has to know about a message, as sentences.
func notes(m loquat.Message) (list []string) {
	switch {
	case m.Role == loquat.RoleAssistant:
		list = readable.EndingNotices(m)
	case m.Metadata.String(loquat.MetaIncomplete) != "":
		list = []string{"the message ends early: " + m.Metadata.String(loquat.MetaIncomplete)}
	case m.Metadata.Bool(loquat.MetaIsError):
		list = []string{"the tool reports an error"}
	}
	for i, note := range list {
		list[i] = strings.ToUpper(note[:1]) + strings.TrimSuffix(note[1:], ".") + "."
	}
	return list
}

// picture is an image of a message. Its bytes are in the session, or it is only named.
type picture struct {
	name  string // of the image, or why it is not shown
	media string // "" if it is not shown
	write func(io.Writer) error
}

// pictures returns the images of a message. An image that is on another server is only named: if
// the page loaded it, that server would learn who reads the session.
func pictures(s archive.Session, m loquat.Message) (out []picture) {
	var list []loquat.Object
	if json.Unmarshal(m.Metadata[loquat.MetaAttachments], &list) != nil {
		return nil
	}
	for _, a := range list {
		p := picture{name: "Image: " + a.String("url")}
		if id := a.String("asset_id"); id != "" {
			p = stored(s, id)
		} else if data := a.String("data_url"); data != "" {
			p = inline(data)
		}
		out = append(out, p)
	}
	return out
}

func stored(s archive.Session, id string) picture {
	for _, image := range s.Images {
		if image.AssetID != id || !asset.IsSupported(image.MediaType) {
			continue
		}
		name := image.Name
		if name == "" {
			name = "Image"
		}
		return picture{name: name, media: image.MediaType, write: func(w io.Writer) error {
			content, err := image.Open()
			if err != nil {
				return fmt.Errorf("read image %s: %w", id, err)
			}
			defer content.Close()
			return encode(w, content)
		}}
	}
	return picture{name: "This image is missing."}
}

// inline returns the image of a data URL. It decodes the bytes, so that nothing but the letters of
// base64 is written.
func inline(url string) picture {
	head, data, _ := strings.Cut(url, ",")
	media, isBase64 := strings.CutSuffix(strings.TrimPrefix(head, "data:"), ";base64")
	content, err := base64.StdEncoding.DecodeString(data)
	if err != nil || !isBase64 || !asset.IsSupported(media) {
		return picture{name: "This image cannot be read."}
	}
	return picture{name: "Image", media: media, write: func(w io.Writer) error { return encode(w, bytes.NewReader(content)) }}
}

// encode writes base64.
func encode(w io.Writer, content io.Reader) error {
	encoder := base64.NewEncoder(base64.StdEncoding, w)
	if _, err := io.Copy(encoder, content); err != nil {
		return err
	}
	return encoder.Close()
}

// calls returns the tool calls of a message as indented JSON.
func calls(m loquat.Message) (out []string) {
	for _, c := range m.ToolCalls() {
		arguments := c.Arguments
		var b bytes.Buffer
		if json.Indent(&b, []byte(arguments), "", "  ") == nil {
			arguments = b.String()
		}
		out = append(out, c.Name+"\n"+arguments)
	}
	return out
}

// page writes text and remembers the first error.
type page struct {
	w   io.Writer
	err error
}

func (p *page) text(parts ...string) {
	for _, part := range parts {
		if p.err == nil {
			_, p.err = io.WriteString(p.w, part)
		}
	}
}
