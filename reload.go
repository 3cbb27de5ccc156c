package loquat

// ConfigReload answers POST /config/reload.
type ConfigReload struct {
	Changed  []ConfigChange `json:"changed" doc:"The keys whose values differ from those in use, sorted."`
	More     int            `json:"more,omitempty" doc:"How many further keys differ, which are not listed."`
	Warnings []FieldError   `json:"warnings,omitempty" doc:"What is odd about the configuration and was accepted."`
}

// ConfigChange is a key of the configuration whose value in the file differs from the one in use.
type ConfigChange struct {
	Key     string `json:"key" doc:"With dots, such as providers.main.model."`
	Restart bool   `json:"restart" doc:"Whether it counts only after a restart. The others count now."`
}
