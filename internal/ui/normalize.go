package ui

import (
	"encoding/json"
	"fmt"
	"slices"

	"loquat"
)

// The bounds of an answer.
const (
	MaxElements    = 500
	MaxElementSize = 16 << 10 // bytes of one element as JSON
)

// maxGiven is how many elements of one plugin are looked at: more than an answer holds,
// for some may be of one key, but not without end.
const maxGiven = 4 * MaxElements

// maxFaults is how many faults of one plugin are told one by one.
const maxFaults = 20

// Contribution is what one plugin gave. Owner is the action_owner that its actions
// get: provider_extension, feature, or "" for an application plugin (unset, which
// means application) and for others.
type Contribution struct {
	Plugin   string
	Owner    string
	Elements []loquat.Object
}

// Fault is why something that a plugin gave is left out.
type Fault struct {
	Plugin  string
	Element string // key or id, else the place in the plugin's list, as #0
	Message string // what is wrong, what is allowed
}

func (f Fault) String() string {
	if f.Element == "" {
		return fmt.Sprintf("%s: %s", f.Plugin, f.Message)
	}
	return fmt.Sprintf("%s: element %s: %s", f.Plugin, f.Element, f.Message)
}

// Normalize makes one list of what the plugins gave, in their order: actions get their
// owner, config elements come last and once for each key. A config element that is
// defined again keeps the place of the first definition and the content of the last.
// What is malformed, too large or too much is left out and told as a fault.
func Normalize(contributions []Contribution) (elements []loquat.Object, faults []Fault) {
	var settings []loquat.Object
	places := map[string]int{} // of the keys in settings
	for _, c := range contributions {
		var found []Fault
		for i, given := range c.Elements[:min(len(c.Elements), maxGiven)] {
			element, err := normalized(c, given)
			if err != nil {
				found = append(found, Fault{c.Plugin, nameOf(given, i), err.Error()})
				continue
			}
			if !isConfig(element) {
				elements = append(elements, element)
				continue
			}
			key := element.String("key")
			place, again := places[key]
			if !again {
				place = len(settings)
				places[key] = place
				settings = append(settings, nil)
			}
			settings[place] = element
		}
		faults = append(faults, shortened(c.Plugin, found)...)
		if more := len(c.Elements) - maxGiven; more > 0 {
			faults = append(faults, Fault{Plugin: c.Plugin, Message: fmt.Sprintf(
				"%d elements are left out: there are more than the %d of one plugin that are looked at", more, maxGiven)})
		}
	}
	elements = append(elements, settings...)
	if len(elements) > MaxElements {
		faults = append(faults, overflow(elements[MaxElements:])...)
		elements = slices.Clip(elements[:MaxElements])
	}
	return elements, faults
}

// normalized is one element as clients get it. The error says why there is none.
func normalized(c Contribution, given loquat.Object) (loquat.Object, error) {
	if given == nil {
		return nil, fmt.Errorf("is no object; an element must be a JSON object")
	}
	element := given.Clone()
	if falsy(element["ui_type"]) {
		element.Set("ui_type", uiConfig)
	}
	element.Set("plugin", c.Plugin)
	uiType := element.String("ui_type")
	switch uiType {
	case "":
		return nil, fmt.Errorf("ui_type must be a string")
	case uiConfig:
		if element.String("key") == "" {
			return nil, fmt.Errorf("has no key; a config element must have one, which is a string")
		}
		hideSecret(element)
	case "session_action", "message_action":
		if element.String("id") == "" || element.String("action_id") == "" {
			return nil, fmt.Errorf("lacks id or action_id; a %s must have both, as strings", uiType)
		}
		if _, err := dialogInputs(element); err != nil {
			return nil, err
		}
		if c.Owner == "" {
			delete(element, "action_owner")
		} else {
			element.Set("action_owner", c.Owner)
		}
	}
	if err := CheckCondition(element["condition"]); err != nil {
		return nil, fmt.Errorf("condition: %w", err)
	}
	if err := element.CheckDepth(); err != nil {
		return nil, err
	}
	if size := sizeOf(element); size > MaxElementSize {
		return nil, fmt.Errorf("has %d bytes; at most %d are allowed", size, MaxElementSize)
	}
	return element, nil
}

// hideSecret keeps the default of a secret out of what clients see. What is a secret by
// the name of its key says so, whether its plugin thought of it or not.
func hideSecret(element loquat.Object) {
	if slices.ContainsFunc(append(ConfigPath(element), element.String("key")), loquat.SecretName) {
		element.Set("secret", true)
	}
	if raw, ok := element["default"]; ok && element.Bool("secret") {
		element.Set("default", hidden(raw))
	}
}

// hidden is {"set": true} or, of nothing, {"set": false}. What is hidden stays so.
func hidden(raw json.RawMessage) json.RawMessage {
	v, err := decode(raw)
	if object, ok := v.(map[string]any); ok && len(object) == 1 {
		if _, was := object["set"].(bool); was {
			return raw
		}
	}
	if err != nil || empty(v) {
		return json.RawMessage(`{"set":false}`)
	}
	return json.RawMessage(`{"set":true}`)
}

func sizeOf(element loquat.Object) int {
	raw, err := json.Marshal(element)
	if err != nil { // what is no JSON cannot be sent
		return MaxElementSize + 1
	}
	return len(raw)
}

// nameOf tells an element from the others of its plugin.
func nameOf(element loquat.Object, i int) string {
	for _, field := range []string{"key", "id"} {
		if name := element.String(field); name != "" && len(name) <= 100 {
			return name
		}
	}
	return fmt.Sprintf("#%d", i)
}

// shortened keeps a plugin that gives nothing but faults from filling the log.
func shortened(plugin string, found []Fault) []Fault {
	if len(found) <= maxFaults {
		return found
	}
	more := Fault{Plugin: plugin, Message: fmt.Sprintf("%d more elements are left out for faults like these", len(found)-maxFaults)}
	return append(found[:maxFaults], more)
}

// overflow tells for each plugin how much of it an answer cannot hold.
func overflow(dropped []loquat.Object) (faults []Fault) {
	counts := map[string]int{}
	var plugins []string
	for _, element := range dropped {
		plugin := element.String("plugin")
		if counts[plugin]++; counts[plugin] == 1 {
			plugins = append(plugins, plugin)
		}
	}
	for _, plugin := range plugins {
		faults = append(faults, Fault{Plugin: plugin, Message: fmt.Sprintf(
			"%d elements are left out: there are more than the %d that an answer holds", counts[plugin], MaxElements)})
	}
	return faults
}
