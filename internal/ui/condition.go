package ui

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// maxConditionDepth is how deep conditions may stand in each other.
const maxConditionDepth = 32

// Visible reports whether a condition holds. No condition, which is nothing or null,
// holds. The error is that of CheckCondition; visible is then false.
func Visible(condition json.RawMessage, root Root, in Context) (visible bool, err error) {
	test, err := parseCondition(condition)
	if err != nil {
		return false, err
	}
	return test(root, in), nil
}

// CheckCondition says what is malformed in a condition, whatever it would be asked
// about.
func CheckCondition(condition json.RawMessage) error {
	_, err := parseCondition(condition)
	return err
}

// test is a condition that was understood.
type test func(root Root, in Context) bool

func parseCondition(raw json.RawMessage) (test, error) {
	if len(raw) == 0 {
		return all(nil), nil
	}
	v, err := decode(raw)
	switch {
	case err != nil:
		return nil, err
	case v == nil:
		return all(nil), nil
	}
	return newTest(v, 1)
}

// newTest reads one condition: all of its keys hold together.
func newTest(v any, depth int) (test, error) {
	object, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("a condition must be an object")
	}
	if depth > maxConditionDepth {
		return nil, fmt.Errorf("conditions are nested too deep; at most %d levels are allowed", maxConditionDepth)
	}
	var tests []test
	asks := false // something is asked of the value at path
	for _, operator := range slices.Sorted(maps.Keys(object)) {
		operand := object[operator]
		var t test
		var err error
		switch operator {
		case "all", "any":
			t, err = newGroup(operator, operand, depth)
		case "not":
			t, err = newTest(operand, depth+1)
			t = not(t)
		case "path":
			continue
		case "eq", "exists", "empty":
			asks = true
			t, err = newQuestion(operator, operand, object["path"])
		default:
			err = fmt.Errorf("unknown operator %q; there are all, any, not, path, eq, exists and empty", operator)
		}
		if err != nil {
			return nil, err
		}
		tests = append(tests, t)
	}
	if p, ok := object["path"]; ok && !asks {
		t, err := newQuestion("path", nil, p)
		if err != nil {
			return nil, err
		}
		tests = append(tests, t)
	}
	return all(tests), nil
}

func newGroup(operator string, operand any, depth int) (test, error) {
	list, ok := operand.([]any)
	if !ok {
		return nil, fmt.Errorf("%s must be a list of conditions", operator)
	}
	tests := make([]test, len(list))
	for i, v := range list {
		t, err := newTest(v, depth+1)
		if err != nil {
			return nil, err
		}
		tests[i] = t
	}
	if operator == "any" {
		return anyOf(tests), nil
	}
	return all(tests), nil
}

// newQuestion reads what is asked of the value at a path. With operator path, it is
// whether something is there that is not false.
func newQuestion(operator string, operand, at any) (test, error) {
	s, ok := at.(string)
	if !ok {
		return nil, fmt.Errorf("%s needs a path, which must be a string", operator)
	}
	p, err := parsePath(s)
	if err != nil {
		return nil, err
	}
	want, isBool := operand.(bool)
	switch operator {
	case "path":
		return func(root Root, in Context) bool {
			v, _ := p.find(root, in)
			return !empty(v) && v != false
		}, nil
	case "eq":
		return func(root Root, in Context) bool {
			v, ok := p.find(root, in)
			return ok && equal(v, operand)
		}, nil
	}
	if !isBool {
		return nil, fmt.Errorf("%s must be true or false", operator)
	}
	return func(root Root, in Context) bool {
		v, ok := p.find(root, in)
		if operator == "exists" {
			return ok == want
		}
		return empty(v) == want
	}, nil
}

func all(tests []test) test {
	return func(root Root, in Context) bool {
		for _, t := range tests {
			if !t(root, in) {
				return false
			}
		}
		return true
	}
}

func anyOf(tests []test) test {
	return func(root Root, in Context) bool {
		for _, t := range tests {
			if t(root, in) {
				return true
			}
		}
		return false
	}
}

func not(t test) test {
	return func(root Root, in Context) bool { return !t(root, in) }
}

// empty is true of null, which also stands for what is missing, and of what holds
// nothing. 0 and false are values.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}
