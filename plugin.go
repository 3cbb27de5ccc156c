package loquat

// Plugin is a loaded plugin and its state.
type Plugin struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	PluginStatus
	Tools   []string `json:"tools"`
	Actions []string `json:"actions"`
}

// PluginStatus is the state of a plugin.
type PluginStatus struct {
	State    string   `json:"state"`              // running, starting or failed
	Required bool     `json:"required,omitempty"` // requests fail without it
	Detail   string   `json:"detail,omitempty"`   // why it is not running
	Version  string   `json:"version,omitempty"`
	Restarts int      `json:"restarts,omitempty"`
	Problems []string `json:"problems,omitempty"` // parts that are left out, with the reason
}

// PluginList answers GET /plugins.
type PluginList struct {
	Plugins []Plugin `json:"plugins"`
}
