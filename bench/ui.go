package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/plugin"
	"loquat/internal/ui"
)

const (
	uiPlugins  = 10
	uiElements = 20 // of each plugin
	uiDelay    = 20 * time.Millisecond
	uiRequests = 200
	maxUI      = 50 * time.Millisecond
)

// pluginMark is the environment variable that makes this program a plugin.
const pluginMark = "LOQUAT_BENCH_PLUGIN"

// benchUI measures gathering the elements of ten plugins: slow plugins in this process, and
// plugin processes of the real program.
func benchUI(w io.Writer) ([]verdict, error) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "ten plugins\tmedian\tp99\telements\t")
	inside, n, err := gatherInside()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(table, "compiled in, %s each\t%s\t%s\t%d\t\n", uiDelay, inside.p(50), inside.p(99), n)
	outside, n, err := gatherProcesses()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(table, "processes, over HTTP\t%s\t%s\t%d\t\n", outside.p(50), outside.p(99), n)
	if err := table.Flush(); err != nil {
		return nil, err
	}
	fmt.Fprintln(w)
	median := max(inside.p(50), outside.p(50))
	return []verdict{{fmt.Sprintf("one schema of ten plugins in %s", maxUI), median <= maxUI, "median " + median.String()}}, nil
}

// slowPlugin is a plugin that waits before it returns its elements.
type slowPlugin struct{ name string }

func (d slowPlugin) Name() string { return d.name }
func (d slowPlugin) Kind() string { return plugin.KindTool }

func (d slowPlugin) UIElements(context.Context, ui.Input) ([]loquat.Object, error) {
	time.Sleep(uiDelay)
	return someElements(d.name), nil
}

func someElements(name string) (out []loquat.Object) {
	for i := range uiElements {
		out = append(out, loquat.Object{}.
			Set("key", fmt.Sprint(name, "_", i)).
			Set("type", "select").
			Set("label", "Setting").
			Set("options", []string{"one", "two", "three"}).
			Set("condition", map[string]any{"any": []any{map[string]any{"path": "model", "exists": true}, map[string]any{"path": "x.y", "eq": i}}}))
	}
	return out
}

func gatherInside() (took latencies, elements int, err error) {
	var plugins []plugin.Plugin
	for i := range uiPlugins {
		plugins = append(plugins, slowPlugin{fmt.Sprint("p", i)})
	}
	registry, err := plugin.NewRegistry(plugins...)
	if err != nil {
		return nil, 0, err
	}
	g := plugin.NewGatherer(registry, slog.New(slog.DiscardHandler), func([]loquat.Object) {})
	for range uiRequests {
		began := time.Now()
		elements = len(g.Gather(context.Background(), plugins, func(plugin.Plugin) ui.Input { return ui.Input{} }))
		took = append(took, time.Since(began))
	}
	return took, elements, nil
}

func gatherProcesses() (took latencies, elements int, err error) {
	p, err := buildProgram()
	if err != nil {
		return nil, 0, err
	}
	defer p.remove()
	entries, err := writePlugins(p.dir)
	if err != nil {
		return nil, 0, err
	}
	backend, err := p.start("backend", "--listen", "127.0.0.1:0")
	if err != nil {
		return nil, 0, err
	}
	defer backend.stop()
	server, err := p.serve(fmt.Sprintf(`{"plugins": ["loquat.providers.reference_generic_compatible", %s],
		"providers": {"main": {"provider": "reference_generic_compatible", "model": "echo", "base_url": "%s/v1"}}}`, strings.Join(entries, ", "), backend.url), "ui")
	if err != nil {
		return nil, 0, err
	}
	defer server.stop()
	c, err := client.New(server.url, client.Options{})
	if err != nil {
		return nil, 0, err
	}
	s, err := c.CreateSession(context.Background(), loquat.NewSession{})
	if err != nil {
		return nil, 0, err
	}
	url := server.url + "/sessions/" + s.SessionID + "/ui-schema"
	for deadline := time.Now().Add(time.Minute); elements < uiPlugins*uiElements; time.Sleep(100 * time.Millisecond) {
		if elements, err = countElements(url); err != nil || time.Now().After(deadline) {
			return nil, 0, fmt.Errorf("ten plugins returned only %d elements: %w", elements, err)
		}
	}
	for range uiRequests {
		began := time.Now()
		if elements, err = countElements(url); err != nil {
			return nil, 0, err
		}
		took = append(took, time.Since(began))
	}
	return took, elements, nil
}

// writePlugins creates directories of plugins whose command is this program.
func writePlugins(dir string) (entries []string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for i := range uiPlugins {
		name := fmt.Sprint("bench", i)
		at := filepath.Join(dir, name)
		manifest, err := json.Marshal(map[string]any{
			"name": name, "version": "1", "kind": "tool", "command": self, "env": map[string]string{pluginMark: name}, "ui": []string{"get_ui_elements"},
		})
		if err != nil {
			return nil, err
		}
		if err := os.Mkdir(at, 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(at, "plugin.json"), manifest, 0o600); err != nil {
			return nil, err
		}
		entries = append(entries, fmt.Sprintf("%q", "path:"+at))
	}
	return entries, nil
}

func countElements(url string) (int, error) {
	resp, err := http.Get(url)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var schema struct{ Elements []loquat.Object }
	if err := json.NewDecoder(resp.Body).Decode(&schema); err != nil {
		return 0, err
	}
	return len(slices.DeleteFunc(schema.Elements, func(e loquat.Object) bool { return !strings.HasPrefix(e.String("plugin"), "bench") })), nil
}

// runPlugin runs a plugin with some elements, on standard input and output.
func runPlugin(name string) error {
	type given struct {
		Config map[string]any   `json:"config"`
		Tags   []string         `json:"tags"`
		Models []map[string]any `json:"models"`
	}
	type shown struct {
		Elements []map[string]any `json:"elements"`
	}
	server := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "get_ui_elements"}, func(context.Context, *mcp.CallToolRequest, given) (*mcp.CallToolResult, shown, error) {
		var out shown
		raw, err := json.Marshal(someElements(name))
		if err == nil {
			err = json.Unmarshal(raw, &out.Elements)
		}
		return nil, out, err
	})
	return server.Run(context.Background(), &mcp.StdioTransport{})
}
