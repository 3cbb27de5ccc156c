package httpapi

import (
	"fmt"
	"maps"

	"loquat"

	"github.com/danielgtaylor/huma/v2"

	"loquat/internal/httpapi/route"
	"loquat/internal/ui"
)

const elementSchema = "UIElement"

// addElements describes the types of UI elements, with the attributes that package ui knows.
// docs/ui.md has the same table.
func addElements(s route.Schemas) {
	addConditions(s)
	addDialogs(s)
	elements := []route.Variant{
		{Value: "config", Name: "ConfigElement", Doc: "A setting.", Required: []string{"key"}},
		{Value: "message_footer", Name: "MessageFooterElement", Doc: "Shown under each message."},
		{Value: "status_bar", Name: "StatusBarElement", Doc: "Always shown, for the last assistant message."},
		{Value: "session_action", Name: "SessionActionElement", Doc: "An action for the session.", Required: []string{"id", "action_id"}},
		{Value: "message_action", Name: "MessageActionElement", Doc: "An action for each message.", Required: []string{"id", "action_id"}},
		{Value: "session_list_field", Name: "SessionListFieldElement", Doc: "Shown in the list of sessions."},
		{Value: "composer_attachment", Name: "ComposerAttachmentElement", Doc: "An attachment that may be added where messages are written."},
		{Value: "model_picker", Name: "ModelPickerElement", Doc: "The choice of the model."},
	}
	fields := attributeSchemas("plugin")
	for i, e := range elements {
		elements[i].Optional = ui.Attributes[e.Value]
		maps.Copy(fields, attributeSchemas(ui.Attributes[e.Value]...))
	}
	s.Union(elementSchema, "ui_type", "What a plugin lets clients show. Clients ignore types and fields that they do not know.", fields,
		[]string{"ui_type", "plugin"}, elements)
	s.Properties(loquat.UISchema{})["elements"].Items = route.RefTo(elementSchema)
}

// attributeSchemas returns the schemas of some attributes. It panics if one of them has no schema.
func attributeSchemas(names ...string) map[string]*huma.Schema {
	all, out := elementFields(), map[string]*huma.Schema{}
	for _, name := range names {
		if all[name] == nil {
			panic(fmt.Sprintf("the attribute %q of internal/ui/lint.go has no schema: add one to elementFields in internal/httpapi/element_schemas.go", name))
		}
		out[name] = all[name]
	}
	return out
}

// elementFields has the schemas of the attributes of elements and of dialog inputs.
func elementFields() map[string]*huma.Schema {
	text := func(doc string) *huma.Schema { return &huma.Schema{Type: huma.TypeString, Description: doc} }
	yes := func(doc string) *huma.Schema { return &huma.Schema{Type: huma.TypeBoolean, Description: doc} }
	return map[string]*huma.Schema{
		"plugin":               text("The plugin of the element."),
		"key":                  text("Of a setting, the key in metadata.overrides."),
		"name":                 text("Of a dialog's input: $dialog.NAME in param_map."),
		"type":                 route.Texts(ui.InputTypes()...),
		"label":                text(""),
		"description":          text(""),
		"options":              route.ListOf(route.RefTo("ElementOption")),
		"default":              {Description: "Any JSON. Clients show the default of a setting that has no value. An input of a dialog has its default until the user changes it."},
		"required":             yes(""),
		"placeholder":          text(""),
		"config_path":          text("The dotted path of the value in the configuration, if it differs from the key."),
		"condition":            route.RefTo("Condition"),
		"secret":               yes("The value is secret: it shows as {\"set\": true}."),
		"format":               text("json: the value is any JSON, and clients edit it as JSON."),
		"data":                 text("The dotted path of what is shown."),
		"template":             text("The text in which {{data}} is replaced."),
		"id":                   text("Names the element in a call of its action."),
		"icon":                 text(""),
		"order":                {Type: huma.TypeNumber, Description: "Lower comes first."},
		"action_id":            text("The action that it runs."),
		"action_owner":         route.Texts("application", "feature", "provider_extension"),
		"fixed_params":         {Type: huma.TypeObject, AdditionalProperties: true, Description: "Parameters that are sent as they are."},
		"param_map":            {Type: huma.TypeObject, AdditionalProperties: &huma.Schema{Type: huma.TypeString}, Description: "Parameters that are taken from an expression, such as $session.session_id."},
		"dialog":               route.RefTo("ElementDialog"),
		"attachment_type":      text("Such as image."),
		"supports_url":         yes("Whether an attachment may be given by URL."),
		"supported_file_types": route.ListOf(&huma.Schema{Type: huma.TypeString}),
	}
}

func addConditions(s route.Schemas) {
	conditions := route.ListOf(route.RefTo("Condition"))
	s.Map()["Condition"] = &huma.Schema{
		Type: huma.TypeObject, Description: "Holds if all of its operators hold.",
		Properties: map[string]*huma.Schema{
			"all": conditions, "any": conditions, "not": route.RefTo("Condition"),
			"path": {Type: huma.TypeString, Description: "The dotted path of the value. Alone, the value has to be there and not be empty."},
			"eq":   {Description: "Any JSON that the value equals."}, "exists": {Type: huma.TypeBoolean}, "empty": {Type: huma.TypeBoolean},
		},
	}
}

func addDialogs(s route.Schemas) {
	text := &huma.Schema{Type: huma.TypeString}
	all := s.Map()
	all["ElementOption"] = &huma.Schema{
		Description: "A choice: a value, or a value with a label.",
		AnyOf: []*huma.Schema{text, {Type: huma.TypeObject, Required: []string{"value"},
			Properties: map[string]*huma.Schema{"value": {Description: "Any JSON."}, "label": text}}},
	}
	all["ElementDialog"] = &huma.Schema{
		Type: huma.TypeObject, Description: "Asks for parameters before the action runs.",
		Properties: map[string]*huma.Schema{"kind": text, "title": text, "message": text, "inputs": route.ListOf(route.RefTo("DialogInput"))},
	}
	all["DialogInput"] = &huma.Schema{Type: huma.TypeObject, Properties: attributeSchemas(ui.InputAttributes...)}
}
