package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"loquat"
)

// ParseObject parses one JSON object strictly: it refuses duplicate keys, invalid UTF-8,
// trailing text and nesting that is too deep.
func ParseObject(data []byte) (loquat.Object, *Problem) {
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	for started := false; ; started = true {
		_, err := dec.ReadToken()
		switch {
		case errors.Is(err, io.EOF) && !started:
			return nil, syntaxProblem(data, 0, "is empty; must be a JSON object, at least {}")
		case errors.Is(err, io.EOF):
			return decodeObject(data)
		case err != nil:
			return nil, tokenProblem(data, err)
		case dec.StackDepth() > loquat.MaxDepth:
			return nil, syntaxProblem(data, dec.InputOffset()-1, fmt.Sprintf("is nested too deep; at most %d levels are allowed", loquat.MaxDepth))
		}
		if dec.StackDepth() == 0 {
			if end := int(dec.InputOffset()); len(bytes.TrimSpace(data[end:])) > 0 {
				at := end + len(data[end:]) - len(bytes.TrimLeft(data[end:], " \t\r\n"))
				return nil, syntaxProblem(data, int64(at), "is text after the end; must be one JSON object")
			}
		}
	}
}

func decodeObject(data []byte) (loquat.Object, *Problem) {
	var raw loquat.Object
	if err := json.Unmarshal(data, &raw); err != nil || raw == nil {
		return nil, syntaxProblem(data, 0, "is "+describe(bytes.TrimSpace(data))+"; must be one JSON object")
	}
	return raw, nil
}

// tokenProblem returns the decoder's error with its place in the file.
func tokenProblem(data []byte, err error) *Problem {
	syntax, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok {
		return syntaxProblem(data, 0, err.Error())
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return syntaxProblem(data, syntax.ByteOffset, fmt.Sprintf("the key %s stands twice; each key may stand once", pointerPath(syntax.JSONPointer)))
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return syntaxProblem(data, int64(len(data)), "the file ends too early; a brace, a bracket or a quote is open")
	}
	return syntaxProblem(data, syntax.ByteOffset, fmt.Sprintf("is no JSON: %v%s", syntax.Err, habit(data[min(syntax.ByteOffset, int64(len(data))):])))
}

var trailingComma = regexp.MustCompile(`^,\s*[\]}]`)

// habit explains errors that are valid in other notations, such as comments.
func habit(rest []byte) string {
	switch {
	case bytes.HasPrefix(rest, []byte("'")):
		return "; strings stand in double quotes"
	case bytes.HasPrefix(rest, []byte("//")), bytes.HasPrefix(rest, []byte("#")), bytes.HasPrefix(rest, []byte("/*")):
		return "; there are no comments in JSON"
	case trailingComma.Match(rest):
		return "; no comma stands before a closing bracket or brace"
	}
	return ""
}

func syntaxProblem(data []byte, offset int64, message string) *Problem {
	before := data[:min(max(offset, 0), int64(len(data)))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return &Problem{Path: fmt.Sprintf("line %d, column %d", line, column), Message: message}
}

// pointerPath writes a JSON pointer as the key paths of this package.
func pointerPath(p jsontext.Pointer) string {
	var parts []string
	for token := range p.Tokens() {
		parts = append(parts, token)
	}
	return strings.Join(parts, ".")
}
