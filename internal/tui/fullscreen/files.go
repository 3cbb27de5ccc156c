package fullscreen

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	tea "charm.land/bubbletea/v2"

	"loquat/internal/client"
)

// maxImage is the number of bytes of an image that is read. The server's own limit is
// limits.max_asset_bytes.
const maxImage = 64 << 20

// attach adds an image to the next message: a URL, or the path of a file.
func (m *model) attach(where string) tea.Cmd {
	if where == "" {
		return m.show(newPrompt("Attach an image", "the path of a PNG, JPEG, GIF or WebP file, or a URL", "", (*model).attach))
	}
	if strings.HasPrefix(where, "https://") || strings.HasPrefix(where, "http://") {
		return m.add(attachment{url: where})
	}
	path, _ := imagePath(where)
	return func() tea.Msg { return readImage(path) }
}

// attachPasted adds the image at a pasted path. If there is none, the text is pasted as it is.
func (m *model) attachPasted(path, text string) tea.Cmd {
	return func() tea.Msg {
		msg := readImage(path)
		if msg.err != nil {
			return imageMsg{text: text}
		}
		return msg
	}
}

// imageMsg brings an image, or a text to insert in its place.
type imageMsg struct {
	image attachment
	text  string
	err   error
}

func (i imageMsg) apply(m *model) tea.Cmd {
	switch {
	case i.err != nil:
		return m.fail(i.err)
	case i.text != "" && m.composer.sending:
		m.composer.waiting = m.composer.waiting.with(draft{text: i.text})
		return nil
	case i.text != "":
		return m.insert(i.text)
	}
	return m.add(i.image)
}

// add adds an image to the message, or to the next one if it is being sent.
func (m *model) add(a attachment) tea.Cmd {
	c := &m.composer
	if c.sending {
		c.waiting.attachments = append(c.waiting.attachments, a)
		return m.say("the image waits for the next message")
	}
	c.attachments = append(c.attachments, a)
	return nil
}

func readImage(path string) imageMsg {
	media := mediaOf(path)
	if media == "" {
		return imageMsg{err: fmt.Errorf("%s is not the name of an image; images end in .png, .jpg, .gif or .webp", filepath.Base(path))}
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return imageMsg{err: fmt.Errorf("the image cannot be read: %w", err)}
	case !info.Mode().IsRegular():
		return imageMsg{err: fmt.Errorf("%s is not a file", path)}
	case info.Size() > maxImage:
		return imageMsg{err: fmt.Errorf("%s has %d bytes; an image has at most %d", path, info.Size(), maxImage)}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return imageMsg{err: fmt.Errorf("the image cannot be read: %w", err)}
	}
	return imageMsg{image: attachment{name: filepath.Base(path), media: media, data: data}}
}

// exportTo writes the open session to a file.
func (m *model) exportTo(path string) tea.Cmd {
	if m.session == nil {
		return m.fail(errors.New("there is no chat to export yet"))
	}
	if path == "" {
		return m.show(newPrompt("Export the chat", "a file that ends in .md, .html or, for an archive, .json", m.session.id+".md", (*model).exportTo))
	}
	return m.export(m.session.id, expandHome(path))
}

// writeNew writes a file that does not exist yet. It gets its name when it is whole.
func writeNew(path string, write func(io.Writer) error) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s exists; choose another name", path)
	}
	return client.WriteWhole(path, write)
}

// editOutside opens the draft in the editor of the user.
func (m *model) editOutside() tea.Cmd {
	if m.composer.sending {
		return nil
	}
	editor := m.environment("VISUAL")
	if editor == "" {
		editor = m.environment("EDITOR")
	}
	words := strings.Fields(editor)
	if len(words) == 0 {
		words = []string{"vi"}
	}
	f, err := os.CreateTemp("", "loquat-*.md")
	if err != nil {
		return m.fail(fmt.Errorf("the draft cannot be opened in an editor: %w", err))
	}
	if text := m.composer.text(); text != "" {
		_, err = f.WriteString(text + "\n") // editors end the last line, too
	}
	if err := errors.Join(err, f.Close()); err != nil {
		os.Remove(f.Name())
		return m.fail(fmt.Errorf("the draft cannot be opened in an editor: %w", err))
	}
	cmd := exec.CommandContext(m.ctx, words[0], append(words[1:], f.Name())...)
	return tea.ExecProcess(cmd, func(err error) tea.Msg {
		if err != nil {
			os.Remove(f.Name())
			return editedMsg{err: fmt.Errorf("the editor %s failed: %w; set EDITOR to another one", words[0], err)}
		}
		return readEdited(f.Name())
	})
}

// readEdited reads and removes the file of the editor. What cannot be taken stays in it.
func readEdited(path string) editedMsg {
	text, err := os.ReadFile(path)
	if err == nil {
		err = checkInput(string(text), 0)
	}
	if err != nil {
		return editedMsg{err: fmt.Errorf("%w; it is in %s", err, path)}
	}
	os.Remove(path)
	return editedMsg{text: strings.TrimSuffix(lineFeeds(string(text)), "\n")}
}

// editedMsg brings the draft from the editor.
type editedMsg struct {
	text string
	err  error
}

func (e editedMsg) apply(m *model) tea.Cmd {
	if e.err != nil {
		return m.fail(e.err)
	}
	m.composer.setText(e.text)
	m.setFocus(focusComposer)
	return nil
}

// notify tells a terminal without focus that the reply has ended.
func (m *model) notify() tea.Cmd {
	switch m.environment("TERM_PROGRAM") {
	case "iTerm.app", "WezTerm", "ghostty":
		return tea.Raw("\x1b]9;Loquat: the reply has ended\x07")
	}
	if strings.HasPrefix(m.environment("TERM"), "rxvt") {
		return tea.Raw("\x1b]777;notify;Loquat;The reply has ended\x07")
	}
	return tea.Raw("\a")
}
