package mcphost

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/plugin"
)

// manifestName is the name of the manifest file.
const manifestName = "plugin.json"

// The bounds of a manifest.
const (
	maxManifestBytes = 64 << 10
	defaultTimeout   = 60 * time.Second // of a call, and of a start
)

// Manifest is a plugin's plugin.json.
type Manifest struct {
	Name       string            `json:"name"`
	Version    string            `json:"version"`
	Kind       string            `json:"kind"`
	Command    string            `json:"command"`
	Args       []string          `json:"args"`
	Env        map[string]string `json:"env"`
	Timeout    float64           `json:"timeout_seconds"`
	Start      float64           `json:"start_timeout_seconds"`
	UI         []string          `json:"ui"`
	Actions    []string          `json:"actions"`
	Transforms []string          `json:"transforms"`
}

// manifestKinds lists the kinds of process plugins. Providers are compiled in.
var manifestKinds = []string{plugin.KindExtension, plugin.KindFeature, plugin.KindTool, plugin.KindApplication}

// manifestSchema is the schema of a manifest.
var manifestSchema = config.Schema{
	{Key: "name", Kind: config.String, Required: true, Check: checkName},
	{Key: "version", Kind: config.String, Check: checkVersion},
	{Key: "kind", Kind: config.String, Required: true, Enum: manifestKinds},
	{Key: "command", Kind: config.String, Required: true, Check: checkCommand},
	{Key: "args", Kind: config.Strings, Check: checkArgs},
	{Key: "env", Kind: config.Labels, Check: checkEnv},
	{Key: "timeout_seconds", Kind: config.Number, Min: new(0.1), Max: new(86400.0)},
	{Key: "start_timeout_seconds", Kind: config.Number, Min: new(0.1), Max: new(3600.0)},
	{Key: "ui", Kind: config.Strings, Check: checkReserved},
	{Key: "actions", Kind: config.Strings, Check: checkReserved},
	{Key: "transforms", Kind: config.Strings, Check: checkReserved},
}

// ReadManifest reads the manifest of a directory and returns all its problems. The
// manifest then has the keys that are valid.
func ReadManifest(dir string) (Manifest, []config.Problem) {
	data, err := readManifestFile(filepath.Join(dir, manifestName))
	if err != nil {
		return Manifest{}, []config.Problem{{Path: manifestName, Message: err.Error()}}
	}
	o, problem := config.ParseObject(data)
	if problem != nil {
		problem.Path = manifestName + " " + problem.Path
		return Manifest{}, []config.Problem{*problem}
	}
	faults := config.CheckObject(o, manifestSchema)
	wrong := map[string]bool{}
	for _, f := range faults {
		wrong[f.Path] = true
	}
	var m Manifest
	for key := range o {
		if !wrong[key] {
			b, _ := json.Marshal(loquat.Object{key: o[key]})
			_ = json.Unmarshal(b, &m) // fails only for a key whose fault is not listed
		}
	}
	faults = config.InOrder(faults, m.duplicateFaults())
	for i := range faults {
		faults[i].Path = manifestName + " " + faults[i].Path
	}
	return m, faults
}

// readManifestFile reads a regular file of at most maxManifestBytes. It never blocks.
func readManifestFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		dir := filepath.Dir(path)
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("cannot be read: there is no directory %s", dir)
		}
		return nil, fmt.Errorf("cannot be read: the directory %s has no such file", dir)
	}
	if err == nil {
		err = checkRegular(info)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	// The file may have changed since: without O_NONBLOCK, opening a named pipe waits
	// for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	defer f.Close()
	if info, err = f.Stat(); err == nil {
		err = checkRegular(info)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxManifestBytes+1))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	if len(data) > maxManifestBytes {
		return nil, fmt.Errorf("is larger than %d bytes", maxManifestBytes)
	}
	return data, nil
}

// checkRegular fails if a file is not a regular file. The error says what it is.
func checkRegular(info fs.FileInfo) error {
	kind := "a special file"
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		kind = "a directory"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a named pipe"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	}
	return fmt.Errorf("it is %s; must be a regular file", kind)
}

// places yields the tools that Loquat itself calls, each with its place in the manifest.
func (m Manifest) places() iter.Seq2[string, string] {
	return func(yield func(place, name string) bool) {
		for _, list := range []struct {
			key   string
			names []string
		}{{"ui", m.UI}, {"actions", m.Actions}, {"transforms", m.Transforms}} {
			for i, name := range list.names {
				if !yield(fmt.Sprintf("%s[%d]", list.key, i), name) {
					return
				}
			}
		}
	}
}

// duplicateFaults returns a problem for each tool that is named more than once.
func (m Manifest) duplicateFaults() []config.Problem {
	var faults []config.Problem
	seen := map[string]string{}
	for place, name := range m.places() {
		if before, ok := seen[name]; ok {
			faults = append(faults, config.Problem{
				Path: place, Message: fmt.Sprintf("is %q, which is already named at %s; each tool has one use", name, before),
			})
			continue
		}
		seen[name] = place
	}
	return faults
}

// timeout bounds a call.
func (m Manifest) timeout() time.Duration { return secondsOr(m.Timeout, defaultTimeout) }

// startTimeout bounds a start of the process.
func (m Manifest) startTimeout() time.Duration { return secondsOr(m.Start, defaultTimeout) }

func secondsOr(seconds float64, fallback time.Duration) time.Duration {
	if seconds == 0 {
		return fallback
	}
	return time.Duration(seconds * float64(time.Second))
}

// reserved reports whether Loquat itself calls the tool with a name.
func (m Manifest) reserved(tool string) bool {
	return slices.Contains(m.UI, tool) || slices.Contains(m.Actions, tool) || slices.Contains(m.Transforms, tool)
}

// namePattern allows only names that can be names of folders.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func checkName(raw json.RawMessage) error {
	if name := decodeString(raw); !namePattern.MatchString(name) {
		return fmt.Errorf("is %q; must be 1 to 64 of letters, digits, dot, underscore and hyphen, and begin with a letter or digit", name)
	}
	return nil
}

const maxVersion = 64

func checkVersion(raw json.RawMessage) error {
	if len(decodeString(raw)) > maxVersion {
		return fmt.Errorf("is longer than %d bytes", maxVersion)
	}
	return nil
}

func checkCommand(raw json.RawMessage) error {
	command := decodeString(raw)
	switch {
	case strings.TrimSpace(command) == "":
		return errors.New("is empty; must name a program, or its path in the plugin's directory")
	case strings.ContainsRune(command, 0):
		return errors.New("holds U+0000")
	}
	return nil
}

func checkArgs(raw json.RawMessage) error {
	if strings.ContainsRune(strings.Join(decodeStrings(raw), ""), 0) {
		return errors.New("holds U+0000")
	}
	return nil
}

// cacheVariable is the environment variable with the path of the plugin's cache folder.
const cacheVariable = "LOQUAT_PLUGIN_CACHE"

func checkEnv(raw json.RawMessage) error {
	var env map[string]string
	_ = json.Unmarshal(raw, &env) // cannot fail: the kind was checked
	var bad []string
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) || name == cacheVariable {
			bad = append(bad, fmt.Sprintf("%q", name))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	slices.Sort(bad)
	return fmt.Errorf("cannot set %s; names are not empty, hold no = and no U+0000, and %s is set by Loquat", strings.Join(bad, ", "), cacheVariable)
}

func checkReserved(raw json.RawMessage) error {
	if slices.Contains(decodeStrings(raw), "") {
		return errors.New("holds an empty name; must be a list of names of tools")
	}
	return nil
}

// decodeString decodes JSON that is known to be a string.
func decodeString(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s)
	return s
}

// decodeStrings decodes JSON that is known to be a list of strings.
func decodeStrings(raw json.RawMessage) (l []string) {
	_ = json.Unmarshal(raw, &l)
	return l
}
