package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"loquat"
)

// expander replaces references in string values: ${NAME}, ${NAME:-default},
// ${file:/path}, and $$ for a dollar. Any other dollar is kept. Inserted values are not
// expanded again.
type expander struct {
	env      Environment
	problems problemList
	secrets  []string // contents of files, and the values that contain them
}

func (x *expander) object(path string, o loquat.Object) loquat.Object {
	out := make(loquat.Object, len(o))
	for _, key := range slices.Sorted(maps.Keys(o)) {
		out[key] = x.value(join(path, key), o[key])
	}
	return out
}

func (x *expander) value(path string, raw json.RawMessage) json.RawMessage {
	switch raw[0] {
	case '{':
		var o loquat.Object
		mustDecode(raw, &o)
		return encode(x.object(path, o))
	case '[':
		var list []json.RawMessage
		mustDecode(raw, &list)
		for i := range list {
			list[i] = x.value(fmt.Sprintf("%s[%d]", path, i), list[i])
		}
		return encode(list)
	case '"':
		var s string
		mustDecode(raw, &s)
		if strings.Contains(s, "$") {
			return loquat.Quote(x.text(path, s))
		}
	}
	return raw
}

func (x *expander) text(path, s string) string {
	var out strings.Builder
	files := len(x.secrets)
	for {
		before, after, found := strings.Cut(s, "$")
		out.WriteString(before)
		switch {
		case !found:
			if len(x.secrets) > files {
				x.secrets = append(x.secrets, out.String())
			}
			return out.String()
		case strings.HasPrefix(after, "$"):
			out.WriteByte('$')
			s = after[1:]
		case strings.HasPrefix(after, "{"):
			reference, rest, closed := strings.Cut(after[1:], "}")
			if !closed {
				x.fault(path, "has ${ without }; a dollar itself is written $$")
				return out.String()
			}
			out.WriteString(x.resolve(path, reference))
			s = rest
		default:
			out.WriteByte('$')
			s = after
		}
	}
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// resolve returns the value of a reference. As in a shell, a default also replaces an empty
// variable.
func (x *expander) resolve(path, reference string) string {
	if file, ok := strings.CutPrefix(reference, "file:"); ok {
		return x.file(path, file)
	}
	name, fallback, hasDefault := strings.Cut(reference, ":-")
	if !variableName.MatchString(name) || strings.Contains(fallback, "${") {
		shown := loquat.Clip(name, loquat.Excerpt)
		if hasDefault {
			shown += ":-…" // it may be a secret
		}
		x.fault(path, "has ${%s}, which is not a reference; write ${NAME}, ${NAME:-default} or ${file:/path}, and $$ for a dollar", shown)
		return ""
	}
	value, set := x.env.Lookup(name)
	switch {
	case hasDefault && value == "":
		return fallback
	case !set:
		x.fault(path, "the environment variable %s is not set; set it, or write ${%s:-default}", name, name)
	case !utf8.ValidString(value):
		x.fault(path, "the environment variable %s is not UTF-8", name)
	}
	return value
}

func (x *expander) file(path, file string) string {
	if !filepath.IsAbs(file) {
		x.fault(path, "${file:%s} does not name an absolute path; write ${file:/path}", file)
		return ""
	}
	b, err := x.env.ReadFile(file)
	if err != nil {
		x.fault(path, "the file %s cannot be read: %v", file, err)
		return ""
	}
	if !utf8.Valid(b) {
		x.fault(path, "the file %s is not UTF-8", file)
		return ""
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	if value != "" {
		x.secrets = append(x.secrets, value)
	}
	return value
}

func (x *expander) fault(path, format string, args ...any) {
	x.problems.fault(path, format, args...)
}

// join adds a key to a key path. An empty key is shown as "".
func join(path, key string) string {
	if key == "" {
		key = `""`
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// mustDecode decodes JSON that ParseObject has checked.
func mustDecode(raw json.RawMessage, v any) {
	if err := json.Unmarshal(raw, v); err != nil {
		panic("config: a checked value does not decode: " + err.Error())
	}
}

// encode leaves <, > and & as they came, unlike json.Marshal.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("config: a checked value does not encode: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
