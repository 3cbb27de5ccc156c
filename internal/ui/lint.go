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

// types are those of config elements and dialog inputs.
var types = []string{"text", "checkbox", "select", "dropdown", "multiline", "number"}

// attributes are those that each ui_type knows, beside ui_type and plugin. Elements
// may have others.
var attributes = map[string][]string{
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

// Lint says what in the elements of one plugin is likely not what its author means,
// though it is served as it stands. actions are those that the plugin itself runs.
// What Normalize leaves out is passed over: its faults say why.
func Lint(elements []loquat.Object, actions []string) []Fault {
	l := &linter{actions: actions}
	seen := map[string]bool{}
	for i, given := range elements {
		element, err := normalized(Contribution{}, given)
		if err != nil {
			continue
		}
		if secret, ok := given["default"]; ok {
			element["default"] = secret // Normalize hides some
		}
		l.at = nameOf(given, i)
		switch uiType := element.String("ui_type"); uiType {
		case uiConfig:
			l.config(element, seen)
		case "session_action", "message_action":
			l.action(element, seen)
		case "message_footer", "status_bar", "session_list_field":
			l.data(element)
		}
		l.names(element)
	}
	return l.faults
}

// linter gathers what Lint finds.
type linter struct {
	actions []string
	at      string // the element
	faults  []Fault
}

func (l *linter) fault(format string, args ...any) {
	l.faults = append(l.faults, Fault{Element: l.at, Message: fmt.Sprintf(format, args...)})
}

// config looks at a config element; seen are the keys before it.
func (l *linter) config(element loquat.Object, seen map[string]bool) {
	key := element.String("key")
	if seen["key "+key] {
		l.fault("key %q stands twice; the last element counts", key)
	}
	seen["key "+key] = true
	l.label(element)
	if l.input("", element) {
		if err := CheckValue(element, element["default"]); err != nil {
			l.fault("default %s", err)
		}
	}
	if raw, ok := element["config_path"]; ok && len(ConfigPath(element)) == 0 {
		l.fault("config_path is %s; must be keys of the configuration with dots between them", excerpt(raw))
	}
}

// action looks at an action; seen are the ids before it.
func (l *linter) action(element loquat.Object, seen map[string]bool) {
	id, action := element.String("id"), element.String("action_id")
	if seen["id "+id] {
		l.fault("id %q stands twice; a client cannot say which is meant", id)
	}
	seen["id "+id] = true
	l.label(element)
	if !slices.Contains(l.actions, action) {
		l.fault("action_id %q is not among the actions of this plugin%s", action, hint(action, l.actions))
	}
	inputs := l.dialog(element)
	l.paramMap(element, inputs)
}

// label wants an element to have a name for people.
func (l *linter) label(element loquat.Object) {
	if raw, ok := element["label"]; !ok {
		l.fault("has no label")
	} else if element.String("label") == "" {
		l.fault("label is %s; must be a text", excerpt(raw))
	}
}

// input looks at what config elements and dialog inputs have in common. It reports
// whether values can be held against the field. place stands before what it says.
func (l *linter) input(place string, field loquat.Object) bool {
	kind := field.String("type")
	if raw, ok := field["type"]; !ok {
		l.fault("%shas no type; there are %s", place, strings.Join(types, ", "))
	} else if !slices.Contains(types, kind) {
		l.fault("%stype %s is none of %s%s", place, excerpt(raw), strings.Join(types, ", "), hint(kind, types))
	}
	if kind == "select" || kind == "dropdown" {
		return l.options(place, kind, field)
	}
	return slices.Contains(types, kind)
}

// options looks at what can be chosen, and reports whether there is anything.
func (l *linter) options(place, kind string, field loquat.Object) bool {
	var options []json.RawMessage
	if json.Unmarshal(field["options"], &options) != nil || len(options) == 0 {
		l.fault("%sis a %s without options; must have a list of texts or {value, label}", place, kind)
		return false
	}
	for i, option := range options {
		var labelled loquat.Object
		if json.Unmarshal(option, &labelled) == nil && labelled["value"] == nil {
			l.fault("%soptions[%d] has no value; must be a text or {value, label}", place, i)
			return false
		}
	}
	return true
}

// dialog looks at the form of an action, and returns the names of its inputs.
func (l *linter) dialog(element loquat.Object) (names []string) {
	dialog := element.Object("dialog")
	if dialog == nil {
		return nil
	}
	if dialog.String("kind") != "form" {
		l.fault("dialog.kind is %s; there is only \"form\"", excerpt(dialog["kind"]))
	}
	inputs, _ := dialogInputs(element) // of what is normalised they can be read
	if len(inputs) == 0 && dialog.String("message") == "" {
		l.fault("dialog has neither inputs nor a message")
	}
	for i, input := range inputs {
		place := fmt.Sprintf("dialog.inputs[%d] ", i)
		name := input.String("name")
		switch {
		case name == "":
			l.fault("%shas no name", place)
		case slices.Contains(names, name):
			l.fault("%shas the name %q of another input", place, name)
		default:
			names = append(names, name)
		}
		l.input(place, input)
		l.slips(place, input, []string{"name", "type", "label", "required", "placeholder", "options", "format", "description", "default"})
	}
	return names
}

// paramMap looks at where the params of an action come from.
func (l *linter) paramMap(element loquat.Object, inputs []string) {
	mapping := element.Object("param_map")
	if raw, ok := element["param_map"]; ok && mapping == nil {
		l.fault("param_map is %s; must be an object of expressions such as $dialog.NAME", excerpt(raw))
		return
	}
	used := map[string]bool{}
	for _, param := range slices.Sorted(maps.Keys(mapping)) {
		expression := mapping.String(param)
		root, rest, _ := strings.Cut(expression, ".")
		switch {
		case !slices.Contains(expressionRoots, root) || rest == "":
			l.fault("param_map.%s is %s; must start with one of %s%s", param, excerpt(mapping[param]),
				strings.Join(expressionRoots, "., ")+".", hint(root, expressionRoots))
		case root == "$dialog" && !slices.Contains(inputs, rest):
			l.fault("param_map.%s is %q, and the dialog has no input %q%s", param, expression, rest, hint(rest, inputs))
		case root == "$message" && element.String("ui_type") == "session_action":
			l.fault("param_map.%s is %q, and a session_action is about no message", param, expression)
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
			l.fault("input %q reaches no parameter; param_map has to name $dialog.%s", name, name)
		default:
			l.fault("input %q is not in param_map; it is sent as the parameter %q, which not every client does", name, name)
		}
	}
}

// expressionRoots are what the expressions of a param_map start with.
var expressionRoots = []string{"$session", "$message", "$dialog", "$config"}

// hole is what looks as if a template had a value there.
var hole = regexp.MustCompile(`\{\{[^{}]*\}\}`)

// data looks at an element that shows a value.
func (l *linter) data(element loquat.Object) {
	data := element.String("data")
	if raw, ok := element["data"]; !ok {
		l.fault("has no data; must be the path of what it shows")
	} else if data == "" {
		l.fault("data is %s; must be a path", excerpt(raw))
	} else if _, err := parsePath(data); err != nil {
		l.fault("data: %v", err)
	}
	if raw, ok := element["template"]; ok && element.String("template") == "" {
		l.fault("template is %s; must be a text with {{data}} in it", excerpt(raw))
	}
	for _, h := range hole.FindAllString(element.String("template"), -1) {
		if h != "{{data}}" {
			l.fault("template has %s, which stays as it is; only {{data}} is replaced", h)
		}
	}
}

// names looks for slips in the ui_type and the attributes of an element.
func (l *linter) names(element loquat.Object) {
	uiType := element.String("ui_type")
	known, ok := attributes[uiType]
	if !ok {
		if meant := hint(uiType, slices.Sorted(maps.Keys(attributes))); meant != "" {
			l.fault("ui_type %q is unknown to clients%s", uiType, meant)
		}
		return
	}
	l.slips("", element, append(slices.Clone(known), "ui_type", "plugin", "action_owner"))
}

// slips names attributes that are near to known ones.
func (l *linter) slips(place string, o loquat.Object, known []string) {
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if slices.Contains(known, name) {
			continue
		}
		if meant := hint(name, known); meant != "" {
			l.fault("%s%s is no attribute here%s", place, name, meant)
		}
	}
}

// hint names what is meant where a name is a slip of the pen, no other word.
func hint(name string, known []string) string {
	return nearest.Hint(name, min((len(name)+1)/3, 3), known...)
}

// excerpt returns the beginning of a value.
func excerpt(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "missing"
	}
	return loquat.Clip(string(raw), loquat.Excerpt)
}
