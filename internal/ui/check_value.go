package ui

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"loquat"
)

// maxNamedOptions is the number of options that an error lists.
const maxNamedOptions = 20

// CheckValue returns an error if value is not valid for a config element. Null is valid for
// every element, because it removes an override. An element of unknown type accepts any
// value.
func CheckValue(element loquat.Object, value json.RawMessage) error {
	if isNull(value) {
		return nil
	}
	v, err := decode(value)
	if err != nil {
		return err
	}
	if err := checkType(element, v); err != nil {
		return err
	}
	if element.Bool("required") && isEmpty(v) {
		return errors.New("must not be empty")
	}
	return nil
}

// inputTypes are the types of config elements and dialog inputs, each with the check of its values.
var inputTypes = []struct {
	name  string
	check func(field loquat.Object, v any) error
}{
	{"text", checkText},
	{"checkbox", checkIs[bool]("must be true or false")},
	{"select", checkOption},
	{"dropdown", checkOption},
	{"multiline", checkText},
	{"number", checkIs[json.Number]("must be a number")},
}

// InputTypes returns the types of config elements and dialog inputs.
func InputTypes() (names []string) {
	for _, t := range inputTypes {
		names = append(names, t.name)
	}
	return names
}

func checkType(field loquat.Object, v any) error {
	kind := field.String("type")
	for _, t := range inputTypes {
		if t.name == kind {
			return t.check(field, v)
		}
	}
	return nil
}

func checkText(field loquat.Object, v any) error {
	if _, ok := v.(string); !ok && field.String("format") != "json" {
		return errors.New("must be a string")
	}
	return nil
}

// checkIs returns a check that fails with a message unless the value is a T.
func checkIs[T any](message string) func(loquat.Object, any) error {
	return func(_ loquat.Object, v any) error {
		if _, ok := v.(T); !ok {
			return errors.New(message)
		}
		return nil
	}
}

// checkOption checks that v is one of the options of a field. An option is a string or an object
// with a `value`. If options is not a list, any string is valid.
func checkOption(field loquat.Object, v any) error {
	given, _ := decode(field["options"]) // nil if it is not valid JSON
	list, ok := given.([]any)
	if !ok {
		if _, ok := v.(string); !ok {
			return errors.New("must be a string")
		}
		return nil
	}
	var named []string
	for _, option := range list {
		if labelled, ok := option.(map[string]any); ok {
			option = labelled["value"]
		}
		if equal(option, v) {
			return nil
		}
		if len(named) < maxNamedOptions {
			named = append(named, loquat.Clip(encodeText(option), loquat.Excerpt))
		}
	}
	switch {
	case len(list) == 0:
		return errors.New("has no options to choose from")
	case len(list) > len(named):
		return fmt.Errorf("must be one of %d options: %s, …", len(list), strings.Join(named, ", "))
	}
	return fmt.Errorf("must be one of %s", strings.Join(named, ", "))
}

// BuildActionParams returns the params of an action element: those that a client sent, and
// fixed_params, which win. It also checks the params that come from dialog inputs: those
// that param_map maps to an input, or else the param with the input's name. The locations
// of the errors begin with body.params.
func BuildActionParams(element loquat.Object, params loquat.Object) (loquat.Object, []loquat.FieldError) {
	merged := loquat.Object{}
	fixed := element.Object("fixed_params")
	maps.Copy(merged, params)
	maps.Copy(merged, fixed)
	inputs, err := dialogInputs(element)
	if err != nil { // cannot happen for elements that Normalize returned
		return merged, nil
	}
	var errs []loquat.FieldError
	for _, input := range inputs {
		for _, param := range paramsForInput(input.String("name"), element.Object("param_map")) {
			if _, ok := fixed[param]; ok {
				continue
			}
			if err := checkInputValue(input, params[param]); err != nil {
				errs = append(errs, loquat.FieldError{Location: "body.params." + param, Message: err.Error() + labelSuffix(input, param)})
			}
		}
	}
	return merged, errs
}

// paramsForInput returns the params that get the value of a dialog input. If mapping maps
// no param to the input, the param with the input's name gets it, unless mapping sets that
// param from something else.
func paramsForInput(input string, mapping loquat.Object) (params []string) {
	for _, param := range slices.Sorted(maps.Keys(mapping)) {
		if mapping.String(param) == "$dialog."+input {
			params = append(params, param)
		}
	}
	if _, taken := mapping[input]; input != "" && params == nil && !taken {
		params = []string{input}
	}
	return params
}

// dialogInputs returns the inputs of an action's dialog, if it has one.
func dialogInputs(element loquat.Object) (inputs []loquat.Object, err error) {
	var dialog struct {
		Inputs []loquat.Object `json:"inputs"`
	}
	if raw := element["dialog"]; len(raw) > 0 && json.Unmarshal(raw, &dialog) != nil {
		return nil, errors.New("dialog must be an object whose inputs are a list of objects")
	}
	return dialog.Inputs, nil
}

func checkInputValue(input loquat.Object, value json.RawMessage) error {
	if isNull(value) && input.Bool("required") {
		return errors.New("is required")
	}
	return CheckValue(input, value)
}

// labelSuffix returns the label of an input in parentheses, or "" if it equals param.
func labelSuffix(input loquat.Object, param string) string {
	label := cmp.Or(input.String("label"), input.String("name"))
	if label == param {
		return ""
	}
	return fmt.Sprintf(" (%s)", label)
}
