//go:build unix

package terminal_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loquat"
)

func TestComposer(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.session(t, "write", "Writes", script{"text": "Noted."})
	x := s.chat(t, 80, 20, "write")
	x.press("first line", "alt+enter", "second line", "ctrl+j", "third")
	x.wait("third")
	x.golden("multiline-80")
	x.press("enter")
	x.wait("Noted.", "tokens")
	x.press("another message", "enter")
	x.until("two replies", func(screen string) bool { return strings.Count(screen, "Noted.") == 2 })
	x.press("up")
	x.wait("> another message")
	x.press("up")
	x.wait("> first line")
	x.golden("history-80")
	x.press("down", "down")
	x.gone("> another message")
	x.paste("pasted\nover two lines")
	x.wait("> pasted")
	x.golden("pasted-80")
	x.press("ctrl+c")
	x.wait("was not sent")
	x.golden("leave-with-draft-80")
	x.press("ctrl+c")
	<-x.done
	if out := x.output(); !strings.Contains(out, "continue with: loquat chat --server "+s.url+" --session write") {
		t.Errorf("the end of the output is %q", out[max(0, len(out)-300):])
	}
}

func TestCommandsThatAreTyped(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.session(t, "typed", "Typed", script{"text": "Noted."})
	x := s.chat(t, 80, 20, "typed")
	x.press("/nonsense", "enter")
	x.wait("no command /nonsense")
	x.golden("unknown-command-80")
	x.press("esc", "ctrl+u", "//usr is a folder", "enter")
	x.wait("  /usr is a folder", "Noted.")
	x.press("/quit", "enter")
	<-x.done
}

func TestEditor(t *testing.T) {
	t.Parallel()
	s := serve(t)
	editor := filepath.Join(t.TempDir(), "editor")
	if err := os.WriteFile(editor, []byte("#!/bin/sh\nprintf '%s, and what the editor added\\n' \"$(cat \"$1\")\" > \"$1.new\" && mv \"$1.new\" \"$1\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	x := start(t, 80, 20, []string{"EDITOR=" + editor}, "--server", s.url)
	x.wait("● connected")
	x.press("a draft", "ctrl+e")
	x.wait("> a draft, and what the editor added")
	y := start(t, 80, 20, []string{"EDITOR=/does/not/exist"}, "--server", s.url)
	y.wait("● connected")
	y.press("a draft", "ctrl+e")
	y.wait("the editor /does/not/exist failed", "> a draft")
}

func TestAttachments(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.session(t, "see", "Sees", script{"text": "I see."})
	image, err := base64.StdEncoding.DecodeString(onePixel)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "a picture.png")
	if err := os.WriteFile(path, image, 0o600); err != nil {
		t.Fatal(err)
	}
	x := s.chat(t, 80, 20, "see")
	x.press("/attach "+path, "enter")
	x.wait("[image 1] a picture.png")
	x.paste("'" + path + "'")
	x.wait("[image 2] a picture.png")
	x.press("/attach https://example.org/b.png", "enter")
	x.wait("[image 3] https://example.org/b.png")
	x.press("What is this?")
	x.wait("What is this?")
	x.golden("attached-80")
	x.press("enter")
	x.wait("I see.")
	page, err := s.Session(t.Context(), "see")
	if err != nil || len(page.Messages[0].AssetIDs()) != 2 {
		t.Fatalf("the message has the images %v (%v)", page.Messages[0].Metadata, err)
	}
	x.paste(dir + "/missing.png")
	x.wait("missing.png") // it is a text
	x.press("ctrl+u", "/attach /etc/passwd", "enter")
	x.wait("is not the name of an image")
}

// busy returns a client of a session whose reply is being written, and does not end.
func busy(t *testing.T) (server, *terminal) {
	t.Helper()
	s := serve(t)
	s.session(t, "busy", "Busy", script{"attempts": []any{
		map[string]any{"text": "The first reply goes on and on and on", "stall_after": 6}, map[string]any{"text": "The second reply."}}})
	x := s.chat(t, 80, 20, "busy")
	x.press("First", "enter")
	x.wait("goes on", "Enter queues")
	return s, x
}

func TestQueue(t *testing.T) {
	t.Parallel()
	s, x := busy(t)
	x.press("Second", "enter")
	x.wait("1. waits: Second")
	x.press("Third", "enter")
	x.wait("2. waits: Third")
	x.golden("queue-80")
	x.press("alt+z")
	x.gone("2. waits: Third")
	x.wait("> Third")
	x.press("ctrl+u", "esc")
	x.wait("The second reply.")
	x.gone("waits:")
	page, err := s.Session(t.Context(), "busy")
	if err != nil || len(page.Messages) != 4 {
		t.Fatalf("the session has %d messages, want 4 (%v)", len(page.Messages), err)
	}
}

func TestSteer(t *testing.T) {
	t.Parallel()
	_, x := busy(t)
	x.press("Other way", "alt+s")
	x.wait("1. steers the reply: Other way")
	x.golden("steer-80")
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	_, x := busy(t)
	x.press("Stop that", "alt+i")
	x.wait("The second reply.", "was cancelled")
	x.golden("interrupted-80")
}

// A message that could not be sent stays in the composer.
func TestDraftSurvivesFailure(t *testing.T) {
	t.Parallel()
	p := startKillable(t)
	c := p.client(t)
	if _, err := c.CreateSession(t.Context(), loquat.NewSession{SessionID: "draft", Metadata: loquat.Object{}.Set("title", "Drafts")}); err != nil {
		t.Fatal(err)
	}
	x := p.server(t).chat(t, 80, 20, "draft")
	p.kill(t)
	x.wait("connection lost")
	x.press("An important message", "enter")
	x.wait("not sent", "> An important message")
	x.golden("not-sent-80")
	p.start(t)
	x.wait("not sent")
	x.press("enter")
	x.wait("│ An important message", "tokens")
	x.gone("> An important")
}
