// Package strictjson reads JSON that people and programs write for Loquat: configurations,
// manifests, request bodies, scripts and the answers of plugins. It refuses what a lenient
// decoder would silently drop or merge, and reports each fault with its place.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"loquat"
	"loquat/internal/nearest"
)

// SyntaxError reports that a text is not one JSON value, or that it has duplicate keys,
// invalid UTF-8 or too many levels.
type SyntaxError struct {
	Path         string // of the value, such as messages[0].role; "" for the text itself
	Message      string // follows the path
	Line, Column int    // from 1; columns count characters
}

func (e *SyntaxError) Error() string { return e.Position() + ": " + e.Text() }

// Position returns the place in the text.
func (e *SyntaxError) Position() string { return fmt.Sprintf("line %d, column %d", e.Line, e.Column) }

// PathIn returns the path of a value within another one, such as body.messages[0].
func (e *SyntaxError) PathIn(outer string) string {
	if e.Path == "" || e.Path[0] == '[' {
		return outer + e.Path
	}
	return outer + "." + e.Path
}

// Text returns the path and the message.
func (e *SyntaxError) Text() string { return strings.TrimSpace(e.Path + " " + e.Message) }

// Check returns nil if data is one JSON value in valid UTF-8, without duplicate keys, that
// nests at most loquat.MaxDepth levels deep.
func Check(data []byte) *SyntaxError { return checkWithin(data, loquat.MaxDepth) }

// checkWithin is Check with another limit of levels.
func checkWithin(data []byte, depth int) *SyntaxError {
	dec := jsontext.NewDecoder(bytes.NewBuffer(data)) // reads data without a copy
	for started := false; ; started = true {
		_, err := dec.ReadToken()
		switch {
		case err == io.EOF && !started:
			return newSyntaxError(data, 0, "", "is empty; must be JSON")
		case err == io.EOF:
			return nil
		case err != nil:
			return tokenError(data, dec, err)
		case dec.StackDepth() > depth:
			return newSyntaxError(data, dec.InputOffset()-1, pathOf(dec, dec.StackDepth()), fmt.Sprintf("is nested too deep; at most %d levels are allowed", depth))
		case dec.StackDepth() == 0:
			rest := bytes.TrimLeft(data[dec.InputOffset():], " \t\r\n")
			if len(rest) > 0 {
				return newSyntaxError(data, int64(len(data)-len(rest)), "", "has text after its end; must be one JSON value")
			}
		}
	}
}

// Object parses one JSON object.
func Object(data []byte) (loquat.Object, *SyntaxError) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, newSyntaxError(data, 0, "", "is empty; must be a JSON object, at least {}")
	}
	if err := Check(data); err != nil {
		return nil, err
	}
	var o loquat.Object
	if err := json.Unmarshal(data, &o); err != nil || o == nil {
		return nil, newSyntaxError(data, 0, "", "is "+Kind(bytes.TrimSpace(data))+"; must be one JSON object")
	}
	return o, nil
}

// tokenError returns the error of a token that cannot be read.
func tokenError(data []byte, dec *jsontext.Decoder, err error) *SyntaxError {
	syntax, ok := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) || !ok:
		return newSyntaxError(data, int64(len(data)), pathOf(dec, dec.StackDepth()), "ends too early; a brace, a bracket or a quote is open")
	case errors.Is(err, jsontext.ErrDuplicateName):
		path := Join(pathOf(dec, dec.StackDepth()-1), syntax.JSONPointer.LastToken())
		return newSyntaxError(data, syntax.ByteOffset, path, "is given twice; each key may be given once")
	}
	rest := data[min(syntax.ByteOffset, int64(len(data))):]
	return newSyntaxError(data, syntax.ByteOffset, pathOf(dec, dec.StackDepth()), fmt.Sprintf("is not valid JSON: %v%s", syntax.Err, remedy(rest)))
}

var trailingComma = regexp.MustCompile(`^,\s*[\]}]`)

// remedy explains errors that are valid in other notations, such as comments.
func remedy(rest []byte) string {
	switch {
	case bytes.HasPrefix(rest, []byte("'")):
		return "; strings need double quotes"
	case bytes.HasPrefix(rest, []byte("//")), bytes.HasPrefix(rest, []byte("#")), bytes.HasPrefix(rest, []byte("/*")):
		return "; JSON has no comments"
	case trailingComma.Match(rest):
		return "; JSON has no comma before a closing bracket or brace"
	}
	return ""
}

func newSyntaxError(data []byte, offset int64, path, message string) *SyntaxError {
	before := data[:min(max(offset, 0), int64(len(data)))]
	return &SyntaxError{
		Path: path, Message: message,
		Line:   bytes.Count(before, []byte("\n")) + 1,
		Column: utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1,
	}
}

// maxPath is the length, in bytes, from which a path is cut.
const maxPath = 400

// pathOf returns the path of the value that a decoder has reached. It uses the outer levels
// only, depth of them.
func pathOf(dec *jsontext.Decoder, depth int) string {
	path := ""
	names := strings.Split(strings.TrimPrefix(string(dec.StackPointer()), "/"), "/")
	for i := 1; i <= depth; i++ {
		kind, n := dec.StackIndex(i)
		switch {
		case kind == '[' && n > 0:
			path += "[" + strconv.FormatInt(n-1, 10) + "]"
		case kind == '{' && n > 0 && i-1 < len(names):
			path = Join(path, unescape.Replace(names[i-1]))
		}
		if len(path) > maxPath {
			return path[:loquat.CharacterStart(path, maxPath)] + "…"
		}
	}
	return path
}

// unescape reverses the escapes of a JSON pointer.
var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// Join adds a key to a path. A long key is cut.
func Join(path, key string) string {
	if key == "" {
		key = `""`
	}
	if path == "" {
		return loquat.Clip(key, loquat.Excerpt)
	}
	return path + "." + loquat.Clip(key, loquat.Excerpt)
}

// Kind describes a JSON value by its first character.
func Kind(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "missing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// maxKnown bounds the known keys that Unknown lists.
const maxKnown = 12

// Unknown returns the message for a key that is not one of the known ones: the nearest known
// key, or, if none is near and there are few, all of them.
func Unknown(key string, known []string) string {
	const unknown = "is not a known key here"
	if hint := Hint(key, known); hint != "" || len(known) == 0 || len(known) > maxKnown {
		return unknown + hint
	}
	return unknown + "; the keys are " + strings.Join(known, ", ")
}

// Hint asks whether the known key that is nearest to key is meant. It is "" if none is near.
func Hint(key string, known []string) string { return nearest.Hint(key, len(key)/3+1, known...) }
