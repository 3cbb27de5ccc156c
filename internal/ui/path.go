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

// The service does not resolve paths: clients do. Lookup and Render are the reference for
// them, as Visible is for conditions, and tests compare the web client with them.

// Root is the value at which a path starts.
type Root string

// The roots. A path that begins with `$session.`, `$message.` or `$config.` selects its
// root itself.
const (
	RootSession  Root = "session"
	RootMessage  Root = "message" // for the status bar: the last assistant message
	RootConfig   Root = "config"  // the resolved settings
	RootMetadata Root = "session.metadata"
)

// Context holds the values that paths refer to: decoded JSON, as Decode returns it. A root
// that is nil is missing, and so is every value below it.
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

// Decode converts v to plain JSON values. Numbers keep all their digits. If v cannot be
// encoded as JSON, Decode returns nil.
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
		return nil, fmt.Errorf("is not valid JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("is more than one JSON value")
	}
	return v, nil
}

// Lookup returns the value at path. ok is false if there is no value or path is malformed.
func Lookup(path string, root Root, in Context) (value any, ok bool) {
	p, err := parsePath(path)
	if err != nil {
		return nil, false
	}
	return p.find(root, in)
}

// path is a list of keys and indices below a root.
type path struct {
	root Root // "": the caller of find chooses the root
	keys []string
}

// parsePath parses keys with dots between them, with an optional root in front. A key
// cannot contain a dot.
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
		value, ok = childOf(value, key)
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
		value, _ = childOf(in.Session, "metadata")
	}
	return value, value != nil
}

func childOf(value any, key string) (any, bool) {
	switch v := value.(type) {
	case map[string]any:
		inner, ok := v[key]
		return inner, ok
	case []any:
		if i, ok := parseIndex(key); ok && i < len(v) {
			return v[i], true
		}
	}
	return nil, false
}

// parseIndex parses a list index: digits without leading zeros.
func parseIndex(key string) (int, bool) {
	i, err := strconv.Atoi(key)
	return i, err == nil && strconv.Itoa(i) == key && i >= 0
}

// Render replaces each {{data}} in a template with data. The result is plain text. If the
// template is empty, the result is the data alone.
func Render(template string, data any) string {
	if template == "" {
		return formatValue(data)
	}
	return strings.ReplaceAll(template, "{{data}}", formatValue(data))
}

// formatValue formats a value as a browser would: lists and objects as JSON, and numbers in
// their shortest form. Unlike in a browser, integers of any size keep all their digits.
func formatValue(data any) string {
	switch v := data.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			if f, err := v.Float64(); err == nil {
				return formatValue(f)
			}
		}
		return v.String()
	}
	return encodeText(data)
}

// encodeText encodes a value as JSON for people, without escaping HTML characters.
func encodeText(v any) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return ""
	}
	return strings.TrimSuffix(out.String(), "\n")
}
