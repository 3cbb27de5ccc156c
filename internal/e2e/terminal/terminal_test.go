//go:build unix

// Package terminal_test tests the terminal client on the whole screen: the real program in a
// pseudo-terminal, whose output an emulator shows, against the real server and the scripted
// backend. The screens are in testdata; `go test -update` writes them.
package terminal_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"loquat"
	"loquat/internal/backend"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

var update = flag.Bool("update", false, "write the screens into the golden files")

// TestMain lets more tests run at the same time than there are cores: they mostly wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// patience is how long a test waits for something on the screen.
const patience = 20 * time.Second

// terminal is a program in a pseudo-terminal.
type terminal struct {
	t    *testing.T
	cmd  *exec.Cmd
	tty  *os.File
	emu  *vt.SafeEmulator
	done chan struct{} // closed at the end of the output

	mu   sync.Mutex
	raw  bytes.Buffer // all output
	last time.Time    // when the last output came
}

// start runs `loquat chat` with arguments in a terminal of a size. env is added to the environment.
func start(t *testing.T, columns, rows int, env []string, args ...string) *terminal {
	t.Helper()
	path, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	x := &terminal{t: t, emu: vt.NewSafeEmulator(columns, rows), done: make(chan struct{})}
	x.cmd = exec.Command(path, append([]string{"chat"}, args...)...)
	for _, v := range binary.CleanEnv() {
		if name, _, _ := strings.Cut(v, "="); name != "NO_COLOR" && name != "TERM_PROGRAM" && name != "COLORTERM" && name != "TMUX" {
			x.cmd.Env = append(x.cmd.Env, v)
		}
	}
	x.cmd.Env = append(append(x.cmd.Env, "TERM=xterm-256color", "HOME="+t.TempDir()), env...)
	x.tty, err = pty.StartWithSize(x.cmd, &pty.Winsize{Cols: uint16(columns), Rows: uint16(rows)})
	if err != nil {
		t.Fatal(err)
	}
	x.keepMargins()
	go x.read()
	go func() { _, _ = io.Copy(x.tty, x.emu) }() // what the emulator answers
	t.Cleanup(x.end)
	return x
}

// keepMargins lets the emulator take no margin below its last line: it would fail, where a terminal keeps the margin
// inside. A program sends one if it draws before it knows that the terminal is smaller now.
func (x *terminal) keepMargins() {
	x.emu.RegisterCsiHandler('r', func(params ansi.Params) bool {
		bottom, _, _ := params.Param(1, 0)
		return bottom > x.emu.Emulator.Height()
	})
}

// read passes the output on to the emulator. It gathers what comes at once, because the emulator
// takes the parts of a character that are written separately for two characters.
func (x *terminal) read() {
	defer close(x.done)
	parts := make(chan []byte, 64)
	go func() {
		defer close(parts)
		for {
			buf := make([]byte, 16<<10)
			n, err := x.tty.Read(buf)
			parts <- buf[:n]
			if err != nil { // Linux: EIO once the program has ended
				return
			}
		}
	}()
	var pending []byte
	for open := true; open; {
		select {
		case part, ok := <-parts:
			pending, open = append(pending, part...), ok
			continue
		case <-time.After(3 * time.Millisecond):
		}
		if at := bytes.LastIndexByte(pending, '\x1b'); at > 0 { // a sequence begins no part of a character
			x.show(pending[:at])
			pending = pending[at:]
		}
		select {
		case part, ok := <-parts:
			pending, open = append(pending, part...), ok
		case <-time.After(60 * time.Millisecond):
			x.show(pending)
			pending = nil
		}
	}
	x.show(pending)
}

// show lets the emulator take a part of the output.
func (x *terminal) show(part []byte) {
	if len(part) == 0 {
		return
	}
	x.mu.Lock()
	x.raw.Write(part)
	x.last = time.Now()
	x.mu.Unlock()
	_, _ = x.emu.Write(part)
}

// end ends the program, if it has not ended.
func (x *terminal) end() {
	if x.cmd.ProcessState == nil {
		_ = x.cmd.Process.Signal(syscall.SIGTERM)
		killer := time.AfterFunc(patience, func() { _ = x.cmd.Process.Kill() })
		_ = x.cmd.Wait()
		killer.Stop()
	}
	<-x.done
	x.tty.Close()
	x.emu.Close()
}

// output returns all bytes that the program has written.
func (x *terminal) output() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.raw.String()
}

// screen returns the lines of the screen, without spaces at their ends.
func (x *terminal) screen() string {
	var lines []string
	for y := range x.emu.Height() {
		var line strings.Builder
		for col := 0; col < x.emu.Width(); {
			cell := x.emu.CellAt(col, y)
			if cell == nil || cell.Content == "" {
				line.WriteByte(' ')
				col++
				continue
			}
			line.WriteString(cell.Content)
			col += max(cell.Width, 1)
		}
		lines = append(lines, strings.TrimRight(line.String(), " "))
	}
	return strings.Join(lines, "\n") + "\n"
}

// keys are the names of keys that are not characters. An Esc is sent as newer terminals do: a program that is slow
// to read takes a single byte and the key after it for one key with Alt.
var keys = map[string]string{
	"enter": "\r", "esc": "\x1b[27u", "tab": "\t", "shift+tab": "\x1b[Z", "up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D",
	"pgup": "\x1b[5~", "pgdown": "\x1b[6~", "home": "\x1b[H", "end": "\x1b[F", "ctrl+home": "\x1b[1;5H", "ctrl+end": "\x1b[1;5F", "f1": "\x1bOP", "backspace": "\x7f",
	"alt+enter": "\x1b\r", "focus": "\x1b[I", "blur": "\x1b[O",
}

// press types keys: names such as ctrl+k, alt+s and enter, or texts.
func (x *terminal) press(names ...string) {
	x.t.Helper()
	for _, name := range names {
		text, ok := keys[name]
		switch rest, ctrl := strings.CutPrefix(name, "ctrl+"); {
		case ok:
		case ctrl && len(rest) == 1:
			text = string(rest[0] - 'a' + 1)
		case strings.HasPrefix(name, "alt+") && len(name) == 5:
			text = "\x1b" + name[4:]
		default:
			text = name
		}
		if _, err := io.WriteString(x.tty, text); err != nil {
			x.t.Fatal(err)
		}
		time.Sleep(15 * time.Millisecond)
	}
}

// paste pastes a text as terminals do.
func (x *terminal) paste(text string) { x.press("\x1b[200~" + text + "\x1b[201~") }

// wait waits until the screen has all texts.
func (x *terminal) wait(texts ...string) {
	x.t.Helper()
	x.until(fmt.Sprintf("%q", texts), func(screen string) bool {
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	})
}

// gone waits until the screen does not have a text.
func (x *terminal) gone(text string) {
	x.t.Helper()
	x.until("no "+text, func(screen string) bool { return !strings.Contains(screen, text) })
}

// page presses a key that moves the transcript, and waits until what came into sight is loaded:
// the next key counts in lines of texts, not of what stands for them.
func (x *terminal) page(key string) {
	x.t.Helper()
	before := x.screen()
	x.press(key)
	x.until("another page", func(screen string) bool {
		return screen != before && !strings.Contains(screen, "loading message")
	})
}

// dismiss presses Esc for each failure that is shown, until the screen has a text.
func (x *terminal) dismiss(text string) {
	x.t.Helper()
	x.until(fmt.Sprintf("%q", text), func(screen string) bool {
		if strings.Contains(screen, "(Esc)") {
			x.press("esc")
		}
		return strings.Contains(screen, text)
	})
}

func (x *terminal) until(what string, ok func(screen string) bool) {
	x.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		screen := x.screen()
		if ok(screen) {
			return
		}
		if time.Now().After(deadline) {
			x.t.Fatalf("waited in vain for %s; the screen is\n%s", what, screen)
		}
	}
}

// resize changes the size of the terminal.
func (x *terminal) resize(columns, rows int) {
	x.t.Helper()
	x.emu.Resize(columns, rows)
	if err := pty.Setsize(x.tty, &pty.Winsize{Cols: uint16(columns), Rows: uint16(rows)}); err != nil {
		x.t.Fatal(err)
	}
}

// varying are the parts of a screen that differ between runs.
var varying = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`Reasoning · \d+ s\b`), "Reasoning"}, // a fast one has no time
	{regexp.MustCompile(`\d+ s\b`), "N s"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "HOST:PORT"},
}

func normal(screen string) string {
	for _, v := range varying {
		screen = v.pattern.ReplaceAllString(screen, v.text)
	}
	return screen
}

// golden compares the screen with a file, once it has become like it, or never does.
func (x *terminal) golden(name string) {
	x.t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		x.settle()
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			x.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(normal(x.screen())), 0o644); err != nil {
			x.t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		x.t.Fatal(err)
	}
	got := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if got = normal(x.screen()); got == string(want) {
			return
		}
	}
	x.t.Errorf("the screen is\n%s\nwant %s:\n%s", got, file, want)
}

// settle waits until the program has written nothing for a while.
func (x *terminal) settle() {
	for time.Sleep(700 * time.Millisecond); ; {
		x.mu.Lock()
		quiet := time.Since(x.last)
		x.mu.Unlock()
		if quiet > 700*time.Millisecond {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// server is a running server with a client of it.
type server struct {
	*client.Client
	url string
}

// serve starts a server whose backend is scripted.
func serve(t *testing.T) server {
	t.Helper()
	return serveConfig(t, "")
}

// serveConfig is serve with further keys of the configuration.
func serveConfig(t *testing.T, more string) server {
	t.Helper()
	url, c := binary.ServerAt(t, config(binary.ScriptedBackend(t, backend.Options{}), more))
	return server{c, url}
}

func config(backendURL, more string) string {
	return `{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "` + backendURL + `/v1"}}` + more + `}`
}

// script is a script of the backend for all requests of a session.
type script map[string]any

// session creates a session with an id, a script, and messages.
func (s server) session(t *testing.T, id, title string, script script, messages ...loquat.NewMessage) {
	t.Helper()
	meta := loquat.Object{}.Set("title", title)
	if script != nil {
		meta.Set("overrides", map[string]any{"request_options": map[string]any{"loquat_script": script}})
	}
	if _, err := s.CreateSession(t.Context(), loquat.NewSession{SessionID: id, Metadata: meta, Messages: messages}); err != nil {
		t.Fatal(err)
	}
}

// user and reply are messages.
func user(text string) loquat.NewMessage {
	return loquat.NewMessage{Role: loquat.RoleUser, Content: text}
}

func reply(text string) loquat.NewMessage {
	return loquat.NewMessage{Role: loquat.RoleAssistant, Content: text, Metadata: loquat.Object{}.Set("model", "demo").Set("provider", "main")}
}

// chat opens a session of a server, and waits until it is there to be used.
func (s server) chat(t *testing.T, columns, rows int, id string, more ...string) *terminal {
	t.Helper()
	args := append([]string{"--server", s.url}, more...)
	if id != "" {
		args = append(args, "--session", id)
	}
	x := start(t, columns, rows, nil, args...)
	x.until("the chat", func(screen string) bool {
		return strings.Contains(screen, "● connected") && !strings.Contains(screen, "loading the chat")
	})
	return x
}
