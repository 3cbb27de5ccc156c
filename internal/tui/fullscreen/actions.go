package fullscreen

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"loquat"
	"loquat/internal/ui"
)

// actionItems returns the actions of plugins for the session, or for a message.
func (m *model) actionItems(uiType string, msg *loquat.Message) (items []item) {
	var message any
	if msg != nil {
		message = decodedMessage(m.transcript.selected, *msg)
	}
	elements := m.session.shown(uiType, message)
	slices.SortStableFunc(elements, func(a, b loquat.Object) int { return cmp.Compare(orderOf(a), orderOf(b)) })
	for _, e := range elements {
		if kind := e.Object("dialog").String("kind"); kind != "" && kind != "form" {
			continue // of a later version
		}
		at := target{index: m.transcript.selected}
		if msg != nil {
			at.messageID = msg.ID
		}
		items = append(items, item{cmp.Or(e.String("label"), e.String("id")), e.String("plugin"), func(m *model) tea.Cmd { return m.act(e, at) }})
	}
	return items
}

// target is the message of an action. An action for the session has no id of one.
type target struct {
	index     int
	messageID string
}

func orderOf(e loquat.Object) (order float64) {
	_ = json.Unmarshal(e["order"], &order) // without a number it is 0
	return order
}

// act runs an action. If it has a dialog, the dialog comes first.
func (m *model) act(e loquat.Object, at target) tea.Cmd {
	dialog := e.Object("dialog")
	if dialog == nil {
		return m.runAction(e, at, nil, nil)
	}
	var inputs []loquat.Object
	_ = json.Unmarshal(dialog["inputs"], &inputs) // the server has checked it
	title := cmp.Or(dialog.String("title"), e.String("label"), e.String("id"))
	var f *form
	f = newDialogForm(title, dialog.String("message"), inputs, func(m *model, values loquat.Object) tea.Cmd {
		return m.runAction(e, at, values, f)
	})
	return m.show(f)
}

// runAction calls the server. values are those of the dialog, if there was one.
func (m *model) runAction(e loquat.Object, at target, values loquat.Object, asked *form) tea.Cmd {
	var message any
	if at.messageID != "" {
		msg, ok := m.session.message(at.index)
		if !ok || msg.ID != at.messageID {
			return m.fail(errMoved)
		}
		message = decodedMessage(at.index, msg)
	}
	id, actionID := m.session.id, e.String("action_id")
	action := loquat.Action{ActionOwner: e.String("action_owner"), Plugin: e.String("plugin"), ElementID: e.String("id"), Params: m.actionParams(e, message, values)}
	label := cmp.Or(e.String("label"), actionID)
	m.say("%s …", label)
	m.notice.at = m.now().Add(callTimeout)
	ctx, c, from := m.ctx, m.server.Client, m.here()
	return func() tea.Msg { // the server bounds it: a model may have to write something
		res, err := c.Act(ctx, id, actionID, action)
		return answered(func(m *model) tea.Cmd {
			if err == nil {
				return m.acted(label, res.Result)
			}
			m.fail(fmt.Errorf("%s: %w", label, err))
			if asked == nil {
				return nil
			}
			asked.refuseInputs(e.Object("param_map"), err)
			return m.askAgain(asked, from)
		})
	}
}

// askAgain opens the dialog of an action that was refused, when the user types nothing, unless they have gone elsewhere.
func (m *model) askAgain(f *form, from string) tea.Cmd {
	switch {
	case m.here() != from:
		return nil
	case m.now().Sub(m.typed) < typingPause:
		return m.later(typingPause, func(m *model) tea.Cmd { return m.askAgain(f, from) })
	}
	return m.show(f)
}

// refuseInputs shows what the server says about params at the inputs that they come from.
func (f *form) refuseInputs(mapping loquat.Object, err error) {
	refusal, _ := errors.AsType[*loquat.Error](err)
	if refusal == nil {
		return
	}
	first := len(f.fields)
	for _, fault := range refusal.Fields {
		if at := f.inputAt(mapping, fault.Location); at >= 0 {
			f.fields[at].fault = strings.TrimSpace(f.fields[at].fault + " " + fault.Message)
			first = min(first, at)
		}
	}
	f.selected = first
}

// inputAt returns the index of the input of which a place in the params speaks, or -1. A param may have a dot in its name.
func (f *form) inputAt(mapping loquat.Object, place string) int {
	param, ok := strings.CutPrefix(place, "body.params.")
	if !ok {
		return -1
	}
	outer, _, _ := strings.Cut(strings.ReplaceAll(param, "[", "."), ".")
	for _, name := range []string{param, outer} {
		if input, ok := strings.CutPrefix(mapping.String(name), "$dialog."); ok {
			name = input
		}
		if at := slices.IndexFunc(f.fields, func(x *field) bool { return x.name == name }); at >= 0 {
			return at
		}
	}
	return -1
}

// actionParams builds the params of an action from its param_map, its fixed_params and a dialog. message is decoded; nil
// for an action of the session.
func (m *model) actionParams(e loquat.Object, message any, values loquat.Object) loquat.Object {
	params, mapping := loquat.Object{}, e.Object("param_map")
	in := ui.Context{Session: m.session.decoded(), Message: message, Config: m.session.config}
	mapped := map[string]bool{}
	for param := range mapping {
		source := mapping.String(param)
		if input, ok := strings.CutPrefix(source, "$dialog."); ok {
			mapped[input] = true
			if values[input] != nil {
				params[param] = values[input]
			}
		} else if value, ok := ui.Lookup(source, "", in); ok {
			params.Set(param, value)
		}
	}
	for input, value := range values { // an input that is not mapped is the param of its own name
		if _, taken := mapping[input]; !taken && !mapped[input] {
			params[input] = value
		}
	}
	maps.Copy(params, e.Object("fixed_params"))
	return params
}

// acted shows the result of an action.
func (m *model) acted(label string, result json.RawMessage) tea.Cmd {
	text, ok := loquat.StringOf(result)
	if !ok && !isNull(result) {
		var pretty bytes.Buffer
		if json.Indent(&pretty, result, "", "  ") == nil {
			text = pretty.String()
		}
	}
	if strings.TrimSpace(text) == "" {
		return m.say("%s: done", label)
	}
	m.say("%s: done", label)
	return m.showText(label, text)
}

// typingPause is how long nothing was typed when a dialog opens by itself.
const typingPause = 2 * time.Second

// showText shows a text of a plugin, when the user types nothing that would go to it.
func (m *model) showText(title, text string) tea.Cmd {
	if m.top() == nil && m.now().Sub(m.typed) >= typingPause {
		return m.show(newText(title, text))
	}
	return m.later(typingPause, func(m *model) tea.Cmd { return m.showText(title, text) })
}
