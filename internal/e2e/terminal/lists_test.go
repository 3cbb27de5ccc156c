//go:build unix

package terminal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loquat"
)

// library is a server with a few sessions.
func library(t *testing.T) server {
	t.Helper()
	s := serve(t)
	for i, title := range []string{"About stones", "About skins", "About trees"} {
		s.session(t, fmt.Sprint("s", i), title, nil, user("Tell me more"), reply("That is all a"+strings.TrimPrefix(title, "A")+"."))
		time.Sleep(5 * time.Millisecond) // they have an order
	}
	return s
}

func TestList(t *testing.T) {
	t.Parallel()
	s := library(t)
	x := s.chat(t, 200, 24, "s0")
	x.wait("About trees", "That is all about stones")
	x.golden("list-200")
	x.press("ctrl+l", "up", "up")
	x.wait("> About trees")
	x.press("enter")
	x.wait("That is all about trees")
	x.golden("list-open-200")
	x.press("ctrl+b")
	x.gone("About skins")
	x.resize(60, 16)
	x.press("ctrl+l")
	x.wait("Chats", "About skins")
	x.golden("list-60")
	x.resize(80, 20)
	x.golden("list-80")

	// What other clients do shows at once.
	if _, err := s.CreateSession(t.Context(), loquat.NewSession{SessionID: "other", Metadata: loquat.Object{}.Set("title", "From elsewhere")}); err != nil {
		t.Fatal(err)
	}
	x.wait("From elsewhere")
	if _, err := s.UpdateSession(t.Context(), "other", loquat.SessionPatch{Metadata: loquat.Object{}.Set("title", "Renamed elsewhere")}); err != nil {
		t.Fatal(err)
	}
	x.wait("Renamed elsewhere")
	if err := s.DeleteSession(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	x.gone("Renamed elsewhere")
}

func TestListCommands(t *testing.T) {
	t.Parallel()
	s := library(t)
	x := s.chat(t, 80, 20, "s0")
	x.press("ctrl+l")
	x.wait("> About stones")
	x.press("r")
	x.wait("Rename the chat")
	x.golden("rename-80")
	x.press("ctrl+u", "About pits", "enter")
	x.wait("> About pits")
	x.press("p")
	x.wait("⚑")
	x.golden("pinned-80")
	x.press("end", "a")
	x.gone("About skins")
	x.press("v")
	x.wait("Archive", "About skins")
	x.golden("archive-80")
	x.press("v")
	x.wait("About trees")
	x.press("end")
	x.wait("> About trees")
	x.press("d")
	x.wait("Delete the chat", "About trees")
	x.golden("delete-80")
	x.press("n")
	x.gone("Delete the chat")
	x.press("d", "y")
	x.gone("About trees")
	x.press("home", "f")
	x.wait("this is the copy", "That is all about stones")
	x.golden("forked-80")
}

func TestSearch(t *testing.T) {
	t.Parallel()
	s := library(t)
	x := s.chat(t, 80, 20, "")
	x.press("ctrl+f")
	x.wait("Search the chats")
	x.golden("search-80")
	x.press("all about ski*", "enter")
	x.wait("Found: all about ski*", "skins")
	x.gone("About trees")
	x.golden("found-80")
	x.press("enter")
	x.wait("That is all about skins.")
	x.press("ctrl+f", "ctrl+u", "enter")
	x.wait("About trees")
}

// A session that is deleted elsewhere while it is open is left.
func TestDeletedElsewhere(t *testing.T) {
	t.Parallel()
	s := library(t)
	x := s.chat(t, 80, 20, "s1")
	x.wait("That is all about skins")
	if err := s.DeleteSession(t.Context(), "s1"); err != nil {
		t.Fatal(err)
	}
	x.wait("the chat was deleted", "A new chat")
	x.press("ctrl+l")
	x.wait("About trees")
	x.gone("About skins")
	x.wait("● connected")
}

// Drafts belong to their chats.
func TestDraftsOfSessions(t *testing.T) {
	t.Parallel()
	s := library(t)
	x := s.chat(t, 80, 20, "s0")
	x.press("about stones I say", "ctrl+l")
	x.wait("> About stones")
	x.press("up", "enter")
	x.wait("all about skins")
	x.gone("about stones I say")
	x.press("ctrl+l")
	x.wait("> About skins")
	x.press("down", "enter")
	x.wait("> about stones I say")
}

func TestMessageActions(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.session(t, "acts", "Acts", script{"attempts": []any{map[string]any{"text": "Another answer."}, map[string]any{"text": "An answer to what was edited."}}},
		user("A question"), reply("The first answer."))
	x := s.chat(t, 80, 22, "acts")
	x.wait("The first answer.")
	x.press("tab")
	x.wait("▌")
	x.golden("selected-80")
	x.press("enter")
	x.wait("write the reply again")
	x.golden("message-actions-80")
	x.press("esc", "c")
	x.wait("copied message 2")
	if !strings.Contains(x.output(), "\x1b]52;c;VGhlIGZpcnN0IGFuc3dlci4=") {
		t.Error("the clipboard did not get the message")
	}
	x.press("r")
	x.wait("Another answer.", "‹ 2 of 2 ›")
	x.golden("alternatives-80")
	x.press("[")
	x.wait("The first answer.", "‹ 1 of 2 ›")
	x.press("]")
	x.wait("Another answer.")
	x.press("up", "e")
	x.wait("message 1: Enter", "> A question")
	x.golden("edit-80")
	x.press(", but edited", "enter")
	x.wait("An answer to what was edited.", "A question, but edited")
	x.press("tab", "up")
	x.wait("▌ You")
	x.press("e")
	x.wait("message 1: Enter")
	x.press(" twice", "ctrl+s")
	x.wait("but edited twice", "message 1 was saved")
	x.press("tab", "d")
	x.wait("Delete message")
	x.golden("delete-message-80")
	x.press("y")
	x.wait("was deleted")
	x.press("esc")
}

func TestForkFromHere(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.session(t, "src", "Source", nil, user("One"), reply("Two"), user("Three"), reply("Four"))
	x := s.chat(t, 80, 20, "src")
	x.wait("Four")
	x.press("tab", "up", "up", "f")
	x.wait("this is the copy")
	x.gone("Three")
	x.wait("Two")
}

func TestExport(t *testing.T) {
	t.Parallel()
	s := library(t)
	dir := t.TempDir()
	x := s.chat(t, 80, 20, "s0")
	x.press("ctrl+k", "export", "enter")
	x.wait("Export the chat")
	x.golden("export-80")
	x.press("ctrl+u", filepath.Join(dir, "a.md"), "enter")
	x.wait("was written to")
	x.press("/export "+filepath.Join(dir, "a.json"), "enter")
	for name, want := range map[string]string{"a.md": "That is all about stones", "a.json": `"loquat`} {
		deadline := time.Now().Add(patience)
		for {
			b, _ := os.ReadFile(filepath.Join(dir, name))
			if strings.Contains(string(b), want) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s has %q", name, b)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	x.press("/export "+filepath.Join(dir, "a.md"), "enter")
	x.wait("exists; choose another")
}
