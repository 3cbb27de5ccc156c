package httpapi

import "github.com/danielgtaylor/huma/v2"

const elementSchema = "UIElement"

// addElements describes the types of UI elements. docs/ui.md has the same table.
func (s schemas) addElements() {
	s.addConditions()
	s.addDialogs()
	action := []string{"label", "icon", "order", "action_owner", "fixed_params", "param_map", "dialog", "condition"}
	s.union(elementSchema, "ui_type", "What a plugin lets clients show. Clients ignore types and fields that they do not know.", elementFields(),
		[]string{"ui_type", "plugin"}, []variant{
			{value: "config", name: "ConfigElement", doc: "A setting.", required: []string{"key"},
				optional: []string{"type", "label", "description", "options", "default", "required", "placeholder", "config_path", "condition", "secret", "format"}},
			{value: "message_footer", name: "MessageFooterElement", doc: "Shown under each message.", optional: []string{"data", "template", "condition"}},
			{value: "status_bar", name: "StatusBarElement", doc: "Shown always, of the last assistant message.", optional: []string{"data", "template", "condition"}},
			{value: "session_action", name: "SessionActionElement", doc: "An action for the session.", required: []string{"id", "action_id"}, optional: action},
			{value: "message_action", name: "MessageActionElement", doc: "An action for each message.", required: []string{"id", "action_id"}, optional: action},
			{value: "session_list_field", name: "SessionListFieldElement", doc: "Shown in the list of sessions.",
				optional: []string{"key", "label", "data", "template", "order", "condition"}},
			{value: "composer_attachment", name: "ComposerAttachmentElement", doc: "An attachment that may be added where messages are written.",
				optional: []string{"key", "attachment_type", "supports_url", "supported_file_types", "label", "condition"}},
			{value: "model_picker", name: "ModelPickerElement", doc: "The choice of the model.", optional: []string{"key", "label", "order", "condition"}},
		})
	s.properties(uiSchema{})["elements"].Items = refTo(elementSchema)
}

func elementFields() map[string]*huma.Schema {
	text := func(doc string) *huma.Schema { return &huma.Schema{Type: huma.TypeString, Description: doc} }
	yes := func(doc string) *huma.Schema { return &huma.Schema{Type: huma.TypeBoolean, Description: doc} }
	return map[string]*huma.Schema{
		"plugin":               text("The plugin that the element is of."),
		"key":                  text("Of a setting, the key in metadata.overrides."),
		"type":                 inputType(),
		"label":                text(""),
		"description":          text(""),
		"options":              listOf(refTo("ElementOption")),
		"default":              {Description: "Shown while there is no value. Any JSON."},
		"required":             yes(""),
		"placeholder":          text(""),
		"config_path":          text("The dotted path of the value in the configuration, when it is not the key."),
		"condition":            refTo("Condition"),
		"secret":               yes("The value is secret: it shows as {\"set\": true}."),
		"format":               text("json: the value is any JSON, edited as such."),
		"data":                 text("The dotted path of what is shown."),
		"template":             text("The text in which {{data}} is replaced."),
		"id":                   text("Names the element in a call of its action."),
		"icon":                 text(""),
		"order":                {Type: huma.TypeNumber, Description: "Lower comes first."},
		"action_id":            text("The action that it runs."),
		"action_owner":         texts("application", "feature", "provider_extension"),
		"fixed_params":         {Type: huma.TypeObject, AdditionalProperties: true, Description: "Parameters that are sent as they are."},
		"param_map":            {Type: huma.TypeObject, AdditionalProperties: &huma.Schema{Type: huma.TypeString}, Description: "Parameters that are taken from an expression, such as $session.session_id."},
		"dialog":               refTo("ElementDialog"),
		"attachment_type":      text("Such as image."),
		"supports_url":         yes("Whether an attachment may be given by URL."),
		"supported_file_types": listOf(&huma.Schema{Type: huma.TypeString}),
	}
}

func inputType() *huma.Schema {
	return texts("text", "checkbox", "select", "dropdown", "multiline", "number")
}

func (s schemas) addConditions() {
	conditions := listOf(refTo("Condition"))
	s.registry.Map()["Condition"] = &huma.Schema{
		Type: huma.TypeObject, Description: "Holds when all that is in it holds.",
		Properties: map[string]*huma.Schema{
			"all": conditions, "any": conditions, "not": refTo("Condition"),
			"path": {Type: huma.TypeString, Description: "The dotted path of the value. Alone, the value has to be there and not be empty."},
			"eq":   {Description: "Any JSON that the value equals."}, "exists": {Type: huma.TypeBoolean}, "empty": {Type: huma.TypeBoolean},
		},
	}
}

func (s schemas) addDialogs() {
	text := &huma.Schema{Type: huma.TypeString}
	all := s.registry.Map()
	all["ElementOption"] = &huma.Schema{
		Description: "A choice: its value alone, or with a label.",
		AnyOf: []*huma.Schema{text, {Type: huma.TypeObject, Required: []string{"value"},
			Properties: map[string]*huma.Schema{"value": {Description: "Any JSON."}, "label": text}}},
	}
	all["ElementDialog"] = &huma.Schema{
		Type: huma.TypeObject, Description: "Asks for parameters before the action runs.",
		Properties: map[string]*huma.Schema{"kind": text, "title": text, "message": text, "inputs": listOf(refTo("DialogInput"))},
	}
	all["DialogInput"] = &huma.Schema{
		Type: huma.TypeObject, Properties: map[string]*huma.Schema{
			"name": {Type: huma.TypeString, Description: "$dialog.NAME in param_map."}, "type": inputType(), "label": text,
			"required": {Type: huma.TypeBoolean}, "placeholder": text, "options": listOf(refTo("ElementOption")),
		},
	}
}
