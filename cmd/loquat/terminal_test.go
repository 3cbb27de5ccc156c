package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"loquat/internal/e2e/binary"
)

// hostile sets the title of a terminal, moves its cursor, and turns the text around.
const hostile = "\x1b]0;owned\x07\x1b[2J\u009b31m\u202eDETACER\u2066\u2028"

// harmfulRune finds what a terminal would act on in what a command printed.
func harmfulRune(text string) int {
	return strings.IndexFunc(text, func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028'
	})
}

// Texts of others reach a terminal through errors, problems of a configuration and
// tables. None of them makes the terminal do anything, and none is long.
func TestCommandsPrintNothingHarmful(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/tokens" && r.Header.Get("Authorization") == "Bearer good" {
			fmt.Fprintf(w, `{"tokens":[{"token_id":"t","name":%s,"scope":"full"}]}`, jsonOf(hostile))
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		fmt.Fprintf(w, `{"detail":%s,"code":"conflict","status":409}`, jsonOf(hostile+strings.Repeat("long", 100_000)))
	}))
	defer server.Close()
	dir := t.TempDir()
	binary.WriteFiles(t, dir, map[string]string{
		"loquat.json": `{"providers":{"p":{"provider":"reference_generic_compatible","model":"m",` + jsonOf(hostile) + `:1,"timeout":"x"}},
			"agents":{` + jsonOf(hostile) + `:7},"plugins":["path:/` + strings.Trim(jsonOf(hostile), `"`) + `"]}`,
	})
	path, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "loquat.json")
	for _, args := range [][]string{
		{"--" + hostile},
		{hostile},
		{"serve", hostile},
		{"serve", "--listen", hostile, "--config", file},
		{"events", "--since", hostile},
		{"config", "check", file},
		{"config", "check", filepath.Join(dir, hostile)},
		{"config", "show", "--config", file},
		{"plugin", "list", "--config", file},
		{"plugin", "check", filepath.Join(dir, hostile)},
		{"token", "list", "--server", server.URL, "--token", "good"},
		{"token", "list", "--server", server.URL, "--token", "other"},
		{"pair", "--server", server.URL},
		{"chat", "--server", server.URL, "hello"},
		{"events", "--server", server.URL, "--follow"},
	} {
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Env, cmd.Stdout, cmd.Stderr = binary.CleanEnv(), &out, &out
		err := cmd.Run()
		if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
			t.Fatal(err)
		}
		if at := harmfulRune(out.String()); at >= 0 {
			t.Errorf("loquat %.20q… prints %q", args, out.String()[at:min(at+60, out.Len())])
		}
		if out.Len() == 0 || out.Len() > 20_000 {
			t.Errorf("loquat %.20q… prints %d bytes", args, out.Len())
		}
	}
}

// The log of a terminal has colours of its own, and no sequences of others: not in
// messages, not in texts, not in errors.
func TestLogOnATerminalIsHarmless(t *testing.T) {
	var out strings.Builder
	log := newLog(&out, true, nil)
	log.Info("using the model "+hostile, "text", hostile, "error", errors.New(hostile))
	log.With("with", hostile).WithGroup("group").Warn("a backend failed", "error", fmt.Errorf("it said: %w", errors.New(hostile)))
	text := strings.NewReplacer("\x1b[2m", "", "\x1b[0m", "", "\x1b[22m", "", "\x1b[92m", "", "\x1b[93m", "", "\x1b[91m", "", "\x1b[2;91m", "", "\x1b[22;91m", "").Replace(out.String())
	if at := harmfulRune(text); at >= 0 {
		t.Errorf("the log has %q in\n%q", text[at:min(at+60, len(text))], out.String())
	}
	if !strings.Contains(text, "DETACER") {
		t.Errorf("the log lost the text: %q", out.String())
	}
}

// An error that somebody made as long as a body does not fill the log.
func TestLogClipsErrors(t *testing.T) {
	var out strings.Builder
	log := newLog(&out, false, nil)
	log.Error("failed", "error", errors.New(strings.Repeat("long", 1<<20)))
	if most := 100_000; out.Len() > most {
		t.Errorf("the line has %d bytes, want at most %d", out.Len(), most)
	}
}

func jsonOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
