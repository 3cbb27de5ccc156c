package loquat

import "encoding/json"

// UISchemaVersion is the version of the UI schema. Within a version there are only additions.
const UISchemaVersion = 1

// UISchema is a list of UI elements. The attributes of an element are its plugin's.
type UISchema struct {
	SchemaVersion int      `json:"schema_version"`
	Elements      []Object `json:"elements"`
}

// ConfigValue is the effective value of a setting with its source.
type ConfigValue struct {
	Value  json.RawMessage `json:"value" doc:"Any JSON; of a secret {\"set\": true} or {\"set\": false}."`
	Source string          `json:"source" enum:"override,config,ui_default,schema_default,none"`
}

// ConfigValues answers GET /sessions/{session_id}/config.
type ConfigValues struct {
	Values map[string]ConfigValue `json:"values" doc:"By key of the config element."`
}

// Action describes a call of an action: which plugin runs it, and with what.
type Action struct {
	ActionOwner string `json:"action_owner,omitempty" enum:"application,feature,provider_extension" doc:"Any when left out."`
	Plugin      string `json:"plugin,omitempty" doc:"Name of the plugin; any when left out."`
	ElementID   string `json:"element_id,omitempty" doc:"Id of the element it comes from, whose fixed_params and dialog inputs then count."`
	Params      Object `json:"params,omitempty"`
}

// ActionResult answers a call of an action.
type ActionResult struct {
	Result json.RawMessage `json:"result" doc:"Any JSON; null when the action has nothing to say."`
}
