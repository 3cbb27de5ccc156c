package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"

	"loquat/internal/config"
)

//go:generate go test -run ^TestConfigReference$ . -update

var update = flag.Bool("update", false, "write the generated parts of docs/config.md")

const configPage = "../../docs/config.md"

// The tables of the reference page are those of the schemas.
func TestConfigReference(t *testing.T) {
	page := readPage(t)
	want := replaceTable(t, page, "keys of the service", keyTable(config.Keys()))
	want = replaceTable(t, want, "keys of agents", keyTable(config.AgentKeys()))
	want = replaceTable(t, want, "keys of plugins", pluginTables())
	if want == page {
		return
	}
	if !*update {
		t.Fatalf("%s is out of date; run go generate ./cmd/loquat", configPage)
	}
	if err := os.WriteFile(configPage, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readPage(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(configPage)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// replaceTable replaces what stands between the comment that begins with name and its end.
func replaceTable(t *testing.T, page, name, table string) string {
	t.Helper()
	section := regexp.MustCompile(`(?s)(<!-- ` + name + `;[^>]*-->\n).*?(<!-- end -->)`)
	if !section.MatchString(page) {
		t.Fatalf("%s has no place for the %s", configPage, name)
	}
	return section.ReplaceAllStringFunc(page, func(found string) string {
		parts := section.FindStringSubmatch(found)
		return parts[1] + table + parts[2]
	})
}

func pluginTables() string {
	var out strings.Builder
	for _, p := range compiledIn(config.Limits{}, slog.New(slog.DiscardHandler), nil) {
		if owner, ok := p.(config.Owner); ok {
			fmt.Fprintf(&out, "\n`%s`:\n\n%s\n", p.Name(), keyTable(owner.ConfigSchema()))
		}
	}
	return out.String()
}

func keyTable(schema config.Schema) string {
	var out strings.Builder
	out.WriteString("| key | kind | default | meaning |\n|---|---|---|---|\n")
	for _, f := range schema {
		byDefault := ""
		switch {
		case f.Required:
			byDefault = "required"
		case f.Default != nil:
			raw, _ := json.Marshal(f.Default)
			byDefault = "`" + string(raw) + "`"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", f.Key, strings.ReplaceAll(string(f.Kind), "_", " "), byDefault, meaning(f))
	}
	return out.String()
}

func meaning(f config.Field) string {
	text := f.Doc
	if len(f.Enum) > 0 {
		text += " One of `" + strings.Join(f.Enum, "`, `") + "`."
	}
	if f.Min != nil || f.Max != nil {
		text += " Allowed: " + f.Bounds() + "."
	}
	if f.Secret {
		text += " Secret."
	}
	if config.NeedsRestart(f.Key) {
		text += " Needs a restart."
	}
	return strings.ReplaceAll(text, "|", `\|`)
}

// The configurations on the page are free of faults, warnings included.
func TestConfigExamples(t *testing.T) {
	examples := regexp.MustCompile("(?ms)^```json\n(.*?)^```").FindAllStringSubmatch(readPage(t), -1)
	if len(examples) != 2 {
		t.Fatalf("%s has %d examples, want the minimal and the full one", configPage, len(examples))
	}
	env := config.Environment{
		Lookup:   func(string) (string, bool) { return "value-of-variable", true },
		ReadFile: func(string) ([]byte, error) { return []byte("value-of-a-long-file\n"), nil },
	}
	for _, example := range examples {
		cfg, problems := config.Parse([]byte(example[1]), env)
		if cfg == nil {
			t.Fatal(problems)
		}
		compiled := compiledIn(cfg.Limits, slog.New(slog.DiscardHandler), nil)
		problems = append(problems, cfg.Check(loaded(compiled, chosen(cfg, compiled), false))...)
		for _, p := range problems {
			t.Errorf("example: %s", p)
		}
		shown, err := json.Marshal(cfg.Redacted())
		if err != nil || strings.Contains(string(shown), "value-of-a-long-file") {
			t.Errorf("shown as %s, %v", shown, err)
		}
	}
}
