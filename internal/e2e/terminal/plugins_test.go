//go:build unix

package terminal_test

import (
	"testing"

	"loquat/internal/e2e/binary"
)

func TestPickers(t *testing.T) {
	t.Parallel()
	s := serveConfig(t, `, "agents": {"default": {"provider": "main"}, "second": {"provider": "main", "model": "lorem"}}`)
	s.session(t, "pick", "Picks", nil, user("Hello"), reply("Hello."))
	x := s.chat(t, 80, 24, "pick")
	x.wait("Hello.")
	x.press("alt+m")
	x.wait("demo-reasoning")
	x.golden("models-80")
	x.press("echo", "enter")
	x.wait("the setting was saved")
	x.press("repeat this", "enter")
	x.until("an echo", func(screen string) bool { return regexpCount(screen, "repeat this") == 2 })
	x.press("alt+a")
	x.wait("second")
	x.golden("agents-80")
	x.press("second", "enter")
	x.wait("the chat has the agent second")
	x.press("ctrl+k")
	x.wait("Commands", "New chat")
	x.golden("palette-80")
	x.press("nothing like this")
	x.wait("nothing fits")
	x.press("esc", "f1")
	x.wait("Keys")
	x.golden("help-80")
	x.press("pgdown")
	x.golden("help-more-80")
	x.press("esc")
	x.resize(60, 16)
	x.press("ctrl+k", "chat")
	x.golden("palette-60")
	x.resize(200, 30)
	x.golden("palette-200")
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s := toolServer(t)
	s.session(t, "set", "Settings", nil, user("Hello"), reply("Hello."))
	x := s.chat(t, 80, 30, "set")
	x.wait("written by")
	x.press("alt+o")
	x.wait("Settings of the chat", "Tone")
	for range 30 {
		x.press("down")
	}
	x.golden("settings-end-80")
	for range 5 {
		x.press("up")
	}
	x.wait("> Tone")
	x.golden("settings-80")
	x.press("right")
	x.wait("Warm and long", "this chat", "Greeting") // its condition holds now
	x.golden("settings-condition-80")
	x.press("down", "enter", "Good day", "enter")
	x.wait("Good day")
	x.press("down", "enter", "A long", "enter", "story")
	x.wait("Ctrl-S keeps")
	x.golden("settings-multiline-80")
	x.press("ctrl+s")
	x.wait("A long story")
	x.press("down", "enter")
	x.wait("[ ]")
	x.press("down", "enter")
	x.wait("fast")
	x.golden("settings-options-80")
	x.press("down", "enter")
	x.wait("> Speed", "fast", "this chat")
	x.press("down", "enter", "x", "enter")
	x.wait("is not a number")
	x.golden("settings-fault-80")
	x.press("esc", "backspace", "enter", "ctrl+u", "7", "enter")
	x.wait("7")
	x.press("down", "enter")
	x.wait("a secret is set in the configuration")
	x.resize(60, 20)
	x.golden("settings-60")
	values, err := s.Config(t.Context(), "set")
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"tone": `"warm"`, "greeting": `"Good day"`, "story": `"A long\nstory"`, "polite": "false", "speed": `"fast"`, "level": "7"} {
		if got := values[key]; string(got.Value) != want || got.Source != "override" {
			t.Errorf("%s is %s from %s, want %s", key, got.Value, got.Source, want)
		}
	}
}

func TestActions(t *testing.T) {
	t.Parallel()
	s := toolServer(t)
	s.session(t, "act", "Actions", nil, user("Hello"), reply("Hello."))
	x := s.chat(t, 80, 24, "act")
	x.wait("written by")
	x.press("ctrl+k", "greet")
	x.wait("Greet", "studio")
	x.press("enter")
	x.wait("Greet somebody")
	x.golden("dialog-80")
	x.press("ctrl+s")
	x.wait("is required")
	x.golden("dialog-fault-80")
	x.press("enter", "Ada", "enter", "down", "enter", "down")
	x.wait("[x]", "> [ Run ]")
	x.golden("dialog-filled-80")
	x.press("enter")
	x.wait("Hello Ada", "true")
	x.golden("action-result-80")
	x.press("esc", "tab", "enter")
	x.wait("Translate")
	x.golden("message-menu-plugin-80")
	x.press("translate", "enter")
	x.wait(`"translated": 1`)
}

func TestCompactDialog(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.session(t, "compact", "Compacts", script{"text": "A summary."}, user("One"), reply("Two"), user("Three"))
	x := s.chat(t, 60, 20, "compact")
	x.wait("Three")
	x.press("ctrl+k", "compact")
	x.wait("Compact messages")
	x.press("enter")
	x.wait("First message")
	x.golden("compact-60")
	x.press("enter", "0", "enter", "down", "enter", "1", "enter", "ctrl+s")
	x.wait("A summary.")
	x.press("esc")
	x.gone("Two")
}

func TestServers(t *testing.T) {
	t.Parallel()
	a, b := serve(t), serve(t)
	a.session(t, "a", "On the first server", nil, user("I am on the first"))
	b.session(t, "b", "On the second server", nil, user("I am on the second"))
	x := a.chat(t, 80, 20, "a", "--server", b.url)
	x.wait("I am on the first")
	x.press("ctrl+k", "server", "enter")
	x.wait("2 of 2")
	x.press("down", "enter")
	x.wait("A new chat", "● connected")
	x.press("ctrl+l")
	x.wait("On the second server")
	x.gone("On the first server")
	x.press("enter")
	x.wait("I am on the second")
	x.golden("servers-80")
	x.press("ctrl+c")
	<-x.done
	if want := "--server " + b.url + " --session b"; regexpCount(x.output(), want) != 1 {
		t.Errorf("the output does not have %q", want)
	}
	if code, said := binary.Exit(t, "chat", "--server", a.url, "--theme", "pink"); code != binary.ExitUsage {
		t.Errorf("an unknown theme exits with %d: %s", code, said)
	}
}
