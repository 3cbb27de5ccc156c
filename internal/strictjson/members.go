package strictjson

import (
	"bytes"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"loquat"
)

// Member is a member of a JSON object. Value is a part of the text that the object is in.
type Member struct {
	Name  string
	Value []byte
	At    int // index of Value in the text
}

// Members returns the members of the JSON object that data is, without decoding their values. It
// refuses what Check refuses.
func Members(data []byte) ([]Member, *SyntaxError) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(data))
	start, err := dec.ReadToken()
	if err != nil || start.Kind() != '{' || loquat.CheckDepth(data) != nil {
		return nil, notMembers(data)
	}
	var out []Member
	for {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, notMembers(data)
		}
		if name.Kind() == '}' {
			break
		}
		m := Member{Name: name.String()}
		value, err := dec.ReadValue()
		if err != nil {
			return nil, notMembers(data)
		}
		m.At = int(dec.InputOffset()) - len(value)
		m.Value = data[m.At : m.At+len(value)]
		out = append(out, m)
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return nil, notMembers(data)
	}
	return out, nil
}

// notMembers returns the fault of a text, found by the slower Check.
func notMembers(data []byte) *SyntaxError {
	if err := Check(data); err != nil {
		return err
	}
	return newSyntaxError(data, 0, "", "is "+Kind(bytes.TrimSpace(data))+"; must be one JSON object")
}
