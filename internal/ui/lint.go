package ui

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"loquat"
	"loquat/internal/nearest"
)

// Attributes are the known attributes of each ui_type, without ui_type and plugin. Elements
// may have others.
var Attributes = map[string][]string{
	uiConfig: {"key", "type", "label", "description", "options", "default", "required", "placeholder",
		"config_path", "condition", "secret", "format"},
	"message_footer":      {"data", "template", "condition"},
	"status_bar":          {"data", "template", "condition"},
	"session_action":      actionAttributes,
	"message_action":      actionAttributes,
	"session_list_field":  {"key", "label", "data", "template", "order", "condition"},
	"composer_attachment": {"key", "attachment_type", "supports_url", "supported_file_types", "label", "condition"},
	"model_picker":        {"key", "label", "order", "condition"},
}

var actionAttributes = []string{"id", "label", "icon", "order", "action_id", "action_owner", "fixed_params", "param_map",
	"dialog", "condition"}

// InputAttributes are the known attributes of a dialog's input.
var InputAttributes = []string{"name", "type", "label", "description", "options", "default", "required", "placeholder", "format"}

// hasAttribute reports whether elements with this ui_type have an attribute.
func hasAttribute(uiType, name string) bool { return slices.Contains(Attributes[uiType], name) }

// Lint reports likely mistakes in the elements of one plugin. Unlike the elements that
// Normalize leaves out, these elements are served. actions are the actions that the plugin
// itself runs.
func Lint(elements []loquat.Object, actions []string) []ElementError {
	l := &linter{actions: actions}
	seen := map[string]bool{}
	for i, given := range elements {
		element, err := normalizeElement(Contribution{}, given)
		if err != nil {
			continue
		}
		if secret, ok := given["default"]; ok {
			element["default"] = secret // normalizeElement redacts the defaults of secrets
		}
		l.at = elementName(given, i)
		switch uiType := element.String("ui_type"); {
		case uiType == uiConfig:
			l.checkConfig(element, seen)
		case hasAttribute(uiType, "action_id"):
			l.checkAction(element, seen)
		case hasAttribute(uiType, "data"):
			l.checkData(element)
		}
		l.checkNames(element)
	}
	return l.errs
}

// linter collects the results of Lint.
type linter struct {
	actions []string
	at      string // name of the current element
	errs    []ElementError
}

func (l *linter) report(format string, args ...any) {
	l.errs = append(l.errs, ElementError{Element: l.at, Message: fmt.Sprintf(format, args...)})
}

// checkConfig checks a config element. seen contains the keys of the elements before it.
func (l *linter) checkConfig(element loquat.Object, seen map[string]bool) {
	key := element.String("key")
	if seen["key "+key] {
		l.report("key %q is used twice; the last element counts", key)
	}
	seen["key "+key] = true
	l.checkLabel(element)
	l.checkInput("", element)
	if raw, ok := element["config_path"]; ok && len(ConfigPath(element)) == 0 {
		l.report("config_path is %s; must be keys of the configuration with dots between them", clipValue(raw))
	}
}

// checkAction checks an action element. seen contains the ids of the elements before it.
func (l *linter) checkAction(element loquat.Object, seen map[string]bool) {
	id, action := element.String("id"), element.String("action_id")
	if seen["id "+id] {
		l.report("id %q is used twice; a client cannot tell the elements apart", id)
	}
	seen["id "+id] = true
	l.checkLabel(element)
	if !slices.Contains(l.actions, action) {
		l.report("action_id %q is not among the actions of this plugin%s", action, suggestName(action, l.actions))
	}
	inputs := l.checkDialog(element)
	l.checkParamMap(element, inputs)
}

// checkLabel checks that an element has a label.
func (l *linter) checkLabel(element loquat.Object) {
	if raw, ok := element["label"]; !ok {
		l.report("has no label")
	} else if element.String("label") == "" {
		l.report("label is %s; must be a text", clipValue(raw))
	}
}

// checkInput checks the attributes that config elements and dialog inputs have in common.
// Messages begin with place.
func (l *linter) checkInput(place string, field loquat.Object) {
	kind, types := field.String("type"), InputTypes()
	if raw, ok := field["type"]; !ok {
		l.report("%shas no type; must be one of %s", place, strings.Join(types, ", "))
	} else if !slices.Contains(types, kind) {
		l.report("%stype %s is none of %s%s", place, clipValue(raw), strings.Join(types, ", "), suggestName(kind, types))
	}
	if (kind == "select" || kind == "dropdown") && !l.checkOptions(place, kind, field) {
		return
	}
	if err := CheckValue(field, field["default"]); err != nil {
		l.report("%sdefault %s", place, err)
	}
}

// checkOptions checks the options of a field, and reports whether all are well-formed.
func (l *linter) checkOptions(place, kind string, field loquat.Object) bool {
	var options []json.RawMessage
	if json.Unmarshal(field["options"], &options) != nil || len(options) == 0 {
		l.report("%sis a %s without options; must have a list of texts or {value, label}", place, kind)
		return false
	}
	for i, option := range options {
		var labelled loquat.Object
		if json.Unmarshal(option, &labelled) == nil && labelled["value"] == nil {
			l.report("%soptions[%d] has no value; must be a text or {value, label}", place, i)
			return false
		}
	}
	return true
}

// checkDialog checks the dialog of an action, and returns the names of its inputs.
func (l *linter) checkDialog(element loquat.Object) (names []string) {
	dialog := element.Object("dialog")
	if dialog == nil {
		return nil
	}
	if dialog.String("kind") != "form" {
		l.report("dialog.kind is %s; there is only \"form\"", clipValue(dialog["kind"]))
	}
	inputs, _ := dialogInputs(element) // fails only for elements that are not normalized
	if len(inputs) == 0 && dialog.String("message") == "" {
		l.report("dialog has neither inputs nor a message")
	}
	for i, input := range inputs {
		place := fmt.Sprintf("dialog.inputs[%d] ", i)
		name := input.String("name")
		switch {
		case name == "":
			l.report("%shas no name", place)
		case slices.Contains(names, name):
			l.report("%shas the name %q of another input", place, name)
		default:
			names = append(names, name)
		}
		l.checkInput(place, input)
		l.checkSpelling(place, input, InputAttributes)
	}
	return names
}

// checkParamMap checks the expressions of an action's param_map.
func (l *linter) checkParamMap(element loquat.Object, inputs []string) {
	mapping := element.Object("param_map")
	if raw, ok := element["param_map"]; ok && mapping == nil {
		l.report("param_map is %s; must be an object of expressions such as $dialog.NAME", clipValue(raw))
		return
	}
	used := map[string]bool{}
	for _, param := range slices.Sorted(maps.Keys(mapping)) {
		expression := mapping.String(param)
		root, rest, _ := strings.Cut(expression, ".")
		switch {
		case !slices.Contains(expressionRoots, root) || rest == "":
			l.report("param_map.%s is %s; must start with one of %s%s", param, clipValue(mapping[param]),
				strings.Join(expressionRoots, "., ")+".", suggestName(root, expressionRoots))
		case root == "$dialog" && !slices.Contains(inputs, rest):
			l.report("param_map.%s is %q, but the dialog has no input %q%s", param, expression, rest, suggestName(rest, inputs))
		case root == "$message" && element.String("ui_type") == "session_action":
			l.report("param_map.%s is %q, but a session_action has no message", param, expression)
		}
		used[expression] = true
	}
	fixed := element.Object("fixed_params")
	for _, name := range inputs {
		_, mapped := mapping[name]
		_, set := fixed[name]
		switch {
		case used["$dialog."+name]:
		case mapped || set:
			l.report("input %q is not sent; param_map must contain $dialog.%s", name, name)
		default:
			l.report("input %q is not in param_map; not every client sends it as the parameter %q", name, name)
		}
	}
}

// expressionRoots are the possible starts of the expressions in a param_map.
var expressionRoots = []string{"$session", "$message", "$dialog", "$config"}

// placeholder matches text that looks like a placeholder of a template.
var placeholder = regexp.MustCompile(`\{\{[^{}]*\}\}`)

// checkData checks an element that shows a value.
func (l *linter) checkData(element loquat.Object) {
	data := element.String("data")
	if raw, ok := element["data"]; !ok {
		l.report("has no data; must be the path of the value to show")
	} else if data == "" {
		l.report("data is %s; must be a path", clipValue(raw))
	} else if _, err := parsePath(data); err != nil {
		l.report("data: %v", err)
	}
	if raw, ok := element["template"]; ok && element.String("template") == "" {
		l.report("template is %s; must be a text with {{data}} in it", clipValue(raw))
	}
	for _, h := range placeholder.FindAllString(element.String("template"), -1) {
		if h != "{{data}}" {
			l.report("template has %s, which is not replaced; only {{data}} is", h)
		}
	}
}

// checkNames looks for misspelled names: the ui_type and the attributes of an element.
func (l *linter) checkNames(element loquat.Object) {
	uiType := element.String("ui_type")
	known, ok := Attributes[uiType]
	if !ok {
		if meant := suggestName(uiType, slices.Sorted(maps.Keys(Attributes))); meant != "" {
			l.report("ui_type %q is unknown to clients%s", uiType, meant)
		}
		return
	}
	l.checkSpelling("", element, append(slices.Clone(known), "ui_type", "plugin", "action_owner"))
}

// checkSpelling reports attributes that are probably misspelled known ones.
func (l *linter) checkSpelling(place string, o loquat.Object, known []string) {
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if slices.Contains(known, name) {
			continue
		}
		if meant := suggestName(name, known); meant != "" {
			l.report("%s%s is not a known attribute%s", place, name, meant)
		}
	}
}

// suggestName suggests a known name if name is probably a misspelling of it. It allows
// fewer differences than nearest.Hint alone, because other attributes are allowed.
func suggestName(name string, known []string) string {
	return nearest.Hint(name, min((len(name)+1)/3, 3), known...)
}

// clipValue returns the beginning of a value.
func clipValue(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "missing"
	}
	return loquat.Clip(string(raw), loquat.Excerpt)
}
