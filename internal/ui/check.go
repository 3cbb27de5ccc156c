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

// maxNamedOptions is how many options an error names.
const maxNamedOptions = 20

// CheckValue says what keeps value from being written to a config element. Null fits
// every element: it takes an override back. An element whose type is unknown takes any
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
	if element.Bool("required") && empty(v) {
		return errors.New("must not be empty")
	}
	return nil
}

func checkType(field loquat.Object, v any) error {
	switch field.String("type") {
	case "text", "multiline":
		if _, ok := v.(string); !ok && field.String("format") != "json" {
			return errors.New("must be a string")
		}
	case "checkbox":
		if _, ok := v.(bool); !ok {
			return errors.New("must be true or false")
		}
	case "number":
		if _, ok := v.(json.Number); !ok {
			return errors.New("must be a number")
		}
	case "select", "dropdown":
		return checkOption(field["options"], v)
	}
	return nil
}

// checkOption wants v among options: strings, or objects whose `value` it is. When
// they are not given, any string will do.
func checkOption(options json.RawMessage, v any) error {
	given, err := decode(options)
	list, ok := given.([]any)
	if err != nil || !ok {
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
			named = append(named, loquat.Clip(jsonText(option), loquat.Excerpt))
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

// CheckInputs makes the params of an action element: fixed_params win over what a
// client sent. What it sent for a dialog input is checked against that input, under
// each parameter that param_map takes from it, else under its own name; the errors are
// at body.params.
func CheckInputs(element loquat.Object, params loquat.Object) (loquat.Object, []loquat.FieldError) {
	merged := loquat.Object{}
	fixed := element.Object("fixed_params")
	maps.Copy(merged, params)
	maps.Copy(merged, fixed)
	inputs, err := dialogInputs(element)
	if err != nil { // Normalize leaves such elements out
		return merged, nil
	}
	var faults []loquat.FieldError
	for _, input := range inputs {
		for _, param := range paramsOf(input.String("name"), element.Object("param_map")) {
			if _, ok := fixed[param]; ok {
				continue
			}
			if err := checkInput(input, params[param]); err != nil {
				faults = append(faults, loquat.FieldError{Location: "body.params." + param, Message: err.Error() + labelled(input, param)})
			}
		}
	}
	return merged, faults
}

// paramsOf are the parameters that take the value of a dialog input: its own name, when
// mapping neither leads to the input nor gives this name to something else.
func paramsOf(input string, mapping loquat.Object) (params []string) {
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

// dialogInputs returns the inputs of an action's dialog; none when it has no dialog.
func dialogInputs(element loquat.Object) (inputs []loquat.Object, err error) {
	var dialog struct {
		Inputs []loquat.Object `json:"inputs"`
	}
	if raw := element["dialog"]; len(raw) > 0 && json.Unmarshal(raw, &dialog) != nil {
		return nil, errors.New("dialog must be an object whose inputs are a list of objects")
	}
	return dialog.Inputs, nil
}

func checkInput(input loquat.Object, value json.RawMessage) error {
	if isNull(value) && input.Bool("required") {
		return errors.New("is required")
	}
	return CheckValue(input, value)
}

// labelled names an input as people see it, where that is not the parameter's name.
func labelled(input loquat.Object, param string) string {
	label := cmp.Or(input.String("label"), input.String("name"))
	if label == param {
		return ""
	}
	return fmt.Sprintf(" (%s)", label)
}
