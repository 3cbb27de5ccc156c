package ui

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// maxConditionDepth is the number of levels to which conditions may nest.
const maxConditionDepth = 32

// Visible reports whether a condition holds. A missing condition, and null, always hold. If
// the condition is malformed, Visible returns false and the error of CheckCondition.
// The service leaves conditions to clients; Visible is the reference for them.
func Visible(condition json.RawMessage, root Root, in Context) (visible bool, err error) {
	predicate, err := parseCondition(condition)
	if err != nil {
		return false, err
	}
	return predicate(root, in), nil
}

// CheckCondition returns an error if a condition is malformed. The result does not depend
// on the values that the condition is about.
func CheckCondition(condition json.RawMessage) error {
	_, err := parseCondition(condition)
	return err
}

// predicate evaluates a parsed condition.
type predicate func(root Root, in Context) bool

func parseCondition(raw json.RawMessage) (predicate, error) {
	if len(raw) == 0 {
		return allOf(nil), nil
	}
	v, err := decode(raw)
	switch {
	case err != nil:
		return nil, err
	case v == nil:
		return allOf(nil), nil
	}
	return parseObject(v, 1)
}

// parseObject parses one condition object. The condition holds if all of its keys hold.
func parseObject(v any, depth int) (predicate, error) {
	object, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("a condition must be an object")
	}
	if depth > maxConditionDepth {
		return nil, fmt.Errorf("conditions are nested too deep; at most %d levels are allowed", maxConditionDepth)
	}
	var predicates []predicate
	hasOperator := false // there is an operator on the value at path
	for _, operator := range slices.Sorted(maps.Keys(object)) {
		operand := object[operator]
		var t predicate
		var err error
		switch operator {
		case "all", "any":
			t, err = parseGroup(operator, operand, depth)
		case "not":
			t, err = parseObject(operand, depth+1)
			t = not(t)
		case "path":
			continue
		case "eq", "exists", "empty":
			hasOperator = true
			t, err = parseComparison(operator, operand, object["path"])
		default:
			err = fmt.Errorf("unknown operator %q; there are all, any, not, path, eq, exists and empty", operator)
		}
		if err != nil {
			return nil, err
		}
		predicates = append(predicates, t)
	}
	if p, ok := object["path"]; ok && !hasOperator {
		t, err := parseComparison("path", nil, p)
		if err != nil {
			return nil, err
		}
		predicates = append(predicates, t)
	}
	return allOf(predicates), nil
}

func parseGroup(operator string, operand any, depth int) (predicate, error) {
	list, ok := operand.([]any)
	if !ok {
		return nil, fmt.Errorf("%s must be a list of conditions", operator)
	}
	predicates := make([]predicate, len(list))
	for i, v := range list {
		t, err := parseObject(v, depth+1)
		if err != nil {
			return nil, err
		}
		predicates[i] = t
	}
	if operator == "any" {
		return anyOf(predicates), nil
	}
	return allOf(predicates), nil
}

// parseComparison parses an operator on the value at a path. The operator path itself holds
// if the value is neither empty nor false.
func parseComparison(operator string, operand, at any) (predicate, error) {
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
			return !isEmpty(v) && v != false
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
		return isEmpty(v) == want
	}, nil
}

func allOf(predicates []predicate) predicate {
	return func(root Root, in Context) bool {
		for _, t := range predicates {
			if !t(root, in) {
				return false
			}
		}
		return true
	}
}

func anyOf(predicates []predicate) predicate {
	return func(root Root, in Context) bool {
		for _, t := range predicates {
			if t(root, in) {
				return true
			}
		}
		return false
	}
}

func not(t predicate) predicate {
	return func(root Root, in Context) bool { return !t(root, in) }
}

// isEmpty reports whether a value is missing, null, or an empty string, list or object. 0
// and false are not empty.
func isEmpty(v any) bool {
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
