package ui

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Root is what a path starts from.
type Root string

// The roots. A path chooses another one with `$session.`, `$message.` or `$config.`
// in front.
const (
	RootSession  Root = "session"
	RootMessage  Root = "message" // of the status bar: the last assistant message
	RootConfig   Root = "config"  // the effective config
	RootMetadata Root = "session.metadata"
)

// Context is what paths look into: decoded JSON, as Decode makes it. A root that is
// nil is missing, and so is everything below it.
type Context struct {
	Session, Message, Config any
}

// RootOf returns the root of the condition of an element with this ui_type.
func RootOf(uiType string) Root {
	switch uiType {
	case "message_footer", "message_action", "status_bar":
		return RootMessage
	case "", uiConfig, "composer_attachment", "model_picker":
		return RootConfig
	}
	return RootSession
}

// DataRootOf returns the root of an element's `data`.
func DataRootOf(uiType string) Root {
	if uiType == "session_list_field" {
		return RootMetadata
	}
	return RootOf(uiType)
}

// Decode turns v into plain JSON values, numbers as they were written. What is no
// JSON becomes nil.
func Decode(v any) any {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	value, err := decode(raw)
	if err != nil {
		return nil
	}
	return value
}

func decode(raw json.RawMessage) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("is no JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("is more than one JSON value")
	}
	return v, nil
}

// Lookup finds the value at path. ok is false when it is missing or path is none.
func Lookup(path string, root Root, in Context) (value any, ok bool) {
	p, err := parsePath(path)
	if err != nil {
		return nil, false
	}
	return p.find(root, in)
}

// path is keys and indices below a root; without one it starts where its user says.
type path struct {
	root Root
	keys []string
}

// parsePath reads dotted keys with an optional root in front. A key cannot hold a
// dot itself.
func parsePath(s string) (path, error) {
	var p path
	if strings.HasPrefix(s, "$") {
		root, rest, _ := strings.Cut(s[1:], ".")
		switch Root(root) {
		case "", RootSession, RootMessage, RootConfig:
			p.root, s = Root(root), rest
		default:
			return path{}, fmt.Errorf("path %q starts with an unknown root; must start with $., $session., $message., $config. or a key", s)
		}
	}
	p.keys = strings.Split(s, ".")
	for _, key := range p.keys {
		if key == "" {
			return path{}, errors.New("path has an empty key; must be keys and indices with dots between them")
		}
	}
	return p, nil
}

func (p path) find(root Root, in Context) (value any, ok bool) {
	if p.root != "" {
		root = p.root
	}
	value, ok = in.root(root)
	for _, key := range p.keys {
		if !ok {
			break
		}
		value, ok = step(value, key)
	}
	return value, ok
}

func (in Context) root(root Root) (value any, ok bool) {
	switch root {
	case RootSession:
		value = in.Session
	case RootMessage:
		value = in.Message
	case RootConfig:
		value = in.Config
	case RootMetadata:
		value, _ = step(in.Session, "metadata")
	}
	return value, value != nil
}

func step(value any, key string) (any, bool) {
	switch v := value.(type) {
	case map[string]any:
		inner, ok := v[key]
		return inner, ok
	case []any:
		if i, ok := index(key); ok && i < len(v) {
			return v[i], true
		}
	}
	return nil, false
}

// index reads a list index: digits, without leading zeros.
func index(key string) (int, bool) {
	i, err := strconv.Atoi(key)
	return i, err == nil && strconv.Itoa(i) == key && i >= 0
}

// Render puts data into a template, which is plain text: each {{data}} is replaced
// and everything else stays. An empty template is the data alone.
func Render(template string, data any) string {
	if template == "" {
		return text(data)
	}
	return strings.ReplaceAll(template, "{{data}}", text(data))
}

// text writes a value as a browser would: numbers in their shortest form (integers as
// they are, whatever their size), lists and objects as JSON.
func text(data any) string {
	switch v := data.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			if f, err := v.Float64(); err == nil {
				return text(f)
			}
		}
		return v.String()
	}
	return jsonText(data)
}

// jsonText writes JSON that people read.
func jsonText(v any) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return ""
	}
	return strings.TrimSuffix(out.String(), "\n")
}
