package fullscreen

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"charm.land/bubbles/v2/textarea"
	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"loquat"
	"loquat/internal/tui"
	"loquat/internal/tui/markdown"
	"loquat/internal/ui"
)

// form shows fields that a server describes: the settings of a session, or the dialog of an action.
// Settings are saved one by one. A dialog is submitted.
type form struct {
	title, message string
	settings       bool
	fields         []*field
	selected       int
	line           *textinput.Model // the text of a field that is edited
	area           *textarea.Model  // the same with several lines
	submit         func(*model, loquat.Object) tea.Cmd
}

// field is a setting, or an input of a dialog.
type field struct {
	element loquat.Object
	name    string // its key, or the name of the input
	value   json.RawMessage
	source  string
	fault   string
}

// showSettings opens the settings of the session.
func (m *model) showSettings() tea.Cmd {
	f := &form{title: "Settings of the chat", settings: true}
	f.take(m.session)
	return tea.Batch(m.show(f), m.loadSchema())
}

// take shows the settings as the server has them now. The dialog of an action stays as it is.
func (f *form) take(s *session) {
	if !f.settings {
		return
	}
	name := ""
	if f.selected < len(f.fields) {
		name = f.fields[f.selected].name
	}
	before := map[string]*field{}
	for _, old := range f.fields {
		before[old.name] = old
	}
	f.fields = nil
	for _, e := range s.shown("config", nil) {
		key := e.String("key")
		v := s.values[key]
		x := &field{element: e, name: key, value: v.Value, source: v.Source}
		if old := before[key]; old != nil {
			x.fault = old.fault
			if x.fault != "" { // what the server refuses stays, so that it can be corrected
				x.value = old.value
			}
		}
		if saving := s.saving[key]; saving.changes > 0 {
			x.value = saving.value
		}
		f.fields = append(f.fields, x)
	}
	at := slices.IndexFunc(f.fields, func(x *field) bool { return x.name == name })
	f.selected = min(max(at, 0), max(len(f.fields)-1, 0))
	if at < 0 {
		f.line, f.area = nil, nil // what was edited is not there any more
	}
}

// refuse shows why a setting was not saved.
func (f *form) refuse(key string, err error) {
	for _, x := range f.fields {
		if x.name == key {
			x.fault = err.Error()
		}
	}
}

// newDialogForm asks for the inputs of an action.
func newDialogForm(title, message string, inputs []loquat.Object, submit func(*model, loquat.Object) tea.Cmd) *form {
	f := &form{title: title, message: message, submit: submit}
	for _, in := range inputs {
		f.fields = append(f.fields, &field{element: in, name: in.String("name"), value: in["default"]})
	}
	return f
}

func (f *form) press(m *model, key tea.KeyPressMsg) tea.Cmd {
	if f.line != nil || f.area != nil {
		return f.pressText(m, key)
	}
	rows := len(f.fields)
	if !f.settings {
		rows++ // the last row submits
	}
	switch key.String() {
	case "esc":
		m.closeDialog()
		return nil
	case "up", "shift+tab":
		f.selected--
	case "down", "tab":
		f.selected++
	case "left":
		return f.step(m, -1)
	case "right":
		return f.step(m, 1)
	case "ctrl+s":
		return f.run(m)
	case "backspace", "delete":
		return f.set(m, json.RawMessage("null"))
	case "enter", "space":
		if f.selected == len(f.fields) && !f.settings {
			return f.run(m)
		}
		return f.edit(m)
	}
	f.selected = min(max(f.selected, 0), max(rows-1, 0))
	return nil
}

// current returns the selected field, or nil.
func (f *form) current() *field {
	if f.selected >= len(f.fields) {
		return nil
	}
	return f.fields[f.selected]
}

// edit begins to change the selected field.
func (f *form) edit(m *model) tea.Cmd {
	x := f.current()
	if x == nil {
		return nil
	}
	if x.element.Bool("secret") {
		x.fault = "a secret is set in the configuration of the server"
		return nil
	}
	options := optionsOf(x.element)
	switch kind := x.element.String("type"); {
	case kind == "checkbox":
		return f.set(m, json.RawMessage(fmt.Sprint(string(x.value) != "true")))
	case (kind == "select" || kind == "dropdown") && len(options) > 0:
		var items []item
		for _, o := range options {
			items = append(items, item{o.label, "", func(m *model) tea.Cmd { return f.set(m, o.value) }})
		}
		return m.show(newPicker(labelOf(x.element), items))
	case kind == "multiline" || x.isJSON():
		area := textarea.New()
		area.ShowLineNumbers, area.Prompt, area.CharLimit = false, "", 0
		area.MaxHeight, area.MaxContentHeight = 1000, math.MaxInt32
		styles := textarea.Styles{}
		area.SetStyles(styles)
		setArea(&area, x.text())
		area.Focus()
		f.area = &area
	default:
		line := newInput(lineText(x.text()))
		f.line = &line
	}
	return nil
}

func (x *field) isJSON() bool { return x.element.String("format") == "json" }

// text returns the value as it is edited.
func (x *field) text() string {
	if text, ok := loquat.StringOf(x.value); ok && !x.isJSON() {
		return text
	}
	if isNull(x.value) {
		return ""
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, x.value, "", "  ") != nil {
		return string(x.value)
	}
	return pretty.String()
}

// parse returns the value that a text stands for.
func (x *field) parse(text string) (json.RawMessage, error) {
	trimmed := strings.TrimSpace(text)
	number := x.element.String("type") == "number"
	switch {
	case text == "", trimmed == "" && (number || x.isJSON()):
		return json.RawMessage("null"), nil
	case number && json.Valid([]byte(trimmed)):
		return json.RawMessage(trimmed), nil
	case number:
		return nil, fmt.Errorf("%q is not a number; write it as 12 or 0.5", loquat.Clip(trimmed, 40))
	case x.isJSON() && !json.Valid([]byte(trimmed)):
		return nil, errors.New("this is not JSON; write it as {\"key\": \"value\"}")
	case x.isJSON():
		return json.RawMessage(trimmed), nil
	}
	return json.RawMessage(loquat.Quote(text)), nil
}

// pressText handles a key while a text is edited.
func (f *form) pressText(m *model, key tea.KeyPressMsg) tea.Cmd {
	name := key.String()
	switch {
	case name == "esc":
		f.line, f.area = nil, nil
		return nil
	case name == "enter" && f.line != nil, name == "ctrl+s":
		x := f.current()
		text := f.written()
		if text == x.text() && x.fault == "" { // an override with the same value would be a change
			f.line, f.area = nil, nil
			return nil
		}
		value, err := x.parse(text)
		if err == nil {
			err = ui.CheckValue(x.element, value)
		}
		if err != nil {
			x.fault = err.Error()
			return nil
		}
		f.line, f.area = nil, nil
		return f.set(m, value)
	case f.line != nil:
		*f.line, _ = f.line.Update(key)
	default:
		*f.area, _ = f.area.Update(key)
	}
	return nil
}

// written returns the text that is edited.
func (f *form) written() string {
	if f.line != nil {
		return writtenText(f.line.Value())
	}
	return writtenText(f.area.Value())
}

func (f *form) paste(_ *model, text string) tea.Cmd {
	var err error
	switch {
	case f.area != nil:
		err = insertInto(f.area, text)
	case f.line != nil:
		if err = checkInput(text, utf8.RuneCountInString(f.line.Value())); err == nil {
			*f.line, _ = f.line.Update(tea.PasteMsg{Content: lineText(lineFeeds(text))})
		}
	}
	if err != nil {
		f.current().fault = err.Error()
	}
	return nil
}

// step chooses the option before or after the one that is chosen.
func (f *form) step(m *model, by int) tea.Cmd {
	x := f.current()
	if x == nil {
		return nil
	}
	options := optionsOf(x.element)
	if len(options) == 0 {
		return nil
	}
	at := slices.IndexFunc(options, func(o option) bool { return bytes.Equal(o.value, x.value) })
	return f.set(m, options[min(max(at+by, 0), len(options)-1)].value)
}

// set changes the selected field. A setting is saved at once.
func (f *form) set(m *model, value json.RawMessage) tea.Cmd {
	x := f.current()
	if x == nil || x.element.Bool("secret") {
		return nil
	}
	if err := ui.CheckValue(x.element, value); err != nil {
		x.fault = err.Error()
		return nil
	}
	x.fault, x.value = "", value
	if f.settings {
		return m.override(x.name, value)
	}
	return nil
}

// run submits a dialog, if its values are allowed.
func (f *form) run(m *model) tea.Cmd {
	if f.settings {
		return nil
	}
	values, good := loquat.Object{}, true
	for i, x := range slices.Backward(f.fields) {
		x.fault = ""
		if isNull(x.value) {
			if x.element.Bool("required") {
				x.fault = "is required"
			}
		} else if err := ui.CheckValue(x.element, x.value); err != nil {
			x.fault = err.Error()
		} else {
			values[x.name] = x.value
		}
		if x.fault != "" {
			f.selected, good = i, false
		}
	}
	if !good {
		return nil
	}
	m.closeDialog()
	return f.submit(m, values)
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func labelOf(e loquat.Object) string {
	return cmp.Or(e.String("label"), e.String("key"), e.String("name"))
}

// option is a choice of a select or a dropdown.
type option struct {
	label string
	value json.RawMessage
}

// optionsOf returns the options of an element: texts, or objects with value and label.
func optionsOf(e loquat.Object) (options []option) {
	var list []json.RawMessage
	if json.Unmarshal(e["options"], &list) != nil {
		return nil
	}
	for _, raw := range list {
		o := option{value: raw}
		var object loquat.Object
		if json.Unmarshal(raw, &object) == nil && object != nil {
			o.value, o.label = object["value"], object.String("label")
		}
		if o.label == "" {
			o.label = plainValue(o.value)
		}
		options = append(options, o)
	}
	return options
}

func plainValue(raw json.RawMessage) string {
	if text, ok := loquat.StringOf(raw); ok {
		return text
	}
	return compactJSON(string(raw))
}

// shownValue returns the value of a field for its line.
func (x *field) shownValue() string {
	var secret struct{ Set bool }
	switch {
	case x.element.Bool("secret"):
		_ = json.Unmarshal(x.value, &secret) // what is no object is not set
		return map[bool]string{true: "(set)", false: "(not set)"}[secret.Set]
	case x.element.String("type") == "checkbox":
		return map[bool]string{true: "[x]", false: "[ ]"}[string(x.value) == "true"]
	case isNull(x.value):
		if p := x.element.String("placeholder"); p != "" {
			return "(" + p + ")"
		}
		return "–"
	}
	for _, o := range optionsOf(x.element) {
		if bytes.Equal(o.value, x.value) {
			return o.label
		}
	}
	return plainValue(x.value)
}

// sourceWords say where the value of a setting comes from.
var sourceWords = map[string]string{
	ui.SourceOverride: "this chat", ui.SourceConfig: "configuration", ui.SourceUIDefault: "default", ui.SourceSchemaDefault: "default",
}

func (f *form) view(m *model, width, height int) (string, []string) {
	var lines []string
	if f.message != "" {
		lines = append(markdown.Lines(tui.Clean(f.message), width, m.cells), "")
	}
	if len(f.fields) == 0 && f.settings {
		lines = append(lines, "This chat has no settings.")
	}
	at := 0
	for i, x := range f.fields {
		if i == f.selected {
			at = len(lines)
		}
		lines = append(lines, f.fieldView(m, x, i == f.selected, width)...)
	}
	if !f.settings {
		run := "  [ Run ]"
		if f.selected == len(f.fields) {
			at, run = len(lines), m.theme.selected.Render("> [ Run ]")
		}
		lines = append(lines, run)
	}
	room := max(height-2, 1)
	from := min(max(0, at-room/3), max(0, len(lines)-room))
	lines = lines[from:min(len(lines), from+room)]
	return f.title, append(lines[:len(lines):len(lines)], "", m.theme.dim.Render(m.oneLine(f.hint(), width)))
}

func (f *form) hint() string {
	switch {
	case f.area != nil:
		return "Ctrl-S keeps the text · Esc leaves it"
	case f.line != nil:
		return "Enter keeps the text · Esc leaves it"
	case f.settings:
		return "Enter changes · ← → choose · Backspace takes a choice back · Esc closes"
	}
	return "Enter changes · Ctrl-S runs the action · Esc closes"
}

// fieldView returns the lines of a field: its value, and more about the one that is selected.
func (f *form) fieldView(m *model, x *field, selected bool, width int) []string {
	label := m.oneLine(labelOf(x.element), width*2/5-2)
	if x.element.Bool("required") {
		label += " *"
	}
	mark := "  "
	if selected {
		mark = "> "
	}
	line := m.sides(mark+m.fit(label, width*2/5)+" "+m.oneLine(x.shownValue(), width), sourceWords[x.source], width)
	if !selected {
		return append([]string{line}, f.faultView(m, x, width)...)
	}
	lines := []string{m.theme.selected.Render(line)}
	switch {
	case f.line != nil:
		lines = append(lines, "  "+inputView(f.line, width-2))
	case f.area != nil:
		f.area.SetWidth(width - 4)
		f.area.SetHeight(8)
		for _, l := range strings.Split(f.area.View(), "\n") {
			lines = append(lines, m.theme.dim.Render("  │ ")+visibleInput(l))
		}
	default:
		if d := x.element.String("description"); d != "" {
			for _, l := range markdown.Lines(tui.Clean(d), width-4, m.cells) {
				lines = append(lines, "    "+m.theme.dim.Render(l))
			}
		}
		if options := optionsOf(x.element); x.element.String("type") == "select" && len(options) > 0 {
			var labels []string
			for _, o := range options {
				labels = append(labels, o.label)
			}
			lines = append(lines, "    "+m.theme.dim.Render(m.oneLine("one of: "+strings.Join(labels, ", "), width-4)))
		}
	}
	return append(lines, f.faultView(m, x, width)...)
}

func (f *form) faultView(m *model, x *field, width int) (lines []string) {
	if x.fault == "" {
		return nil
	}
	for _, l := range markdown.Lines(tui.OneLine("✗ "+x.fault), width-4, m.cells) {
		lines = append(lines, "    "+m.theme.failure.Render(l))
	}
	return lines
}
