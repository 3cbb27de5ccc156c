package ui

import (
	"encoding/json"
	"fmt"
	"slices"

	"loquat"
)

// The bounds on the elements that clients get.
const (
	MaxElements    = 500
	MaxElementSize = 16 << 10 // bytes of one element as JSON
)

// maxElementsPerPlugin is the number of elements of one plugin that Normalize reads. It is
// larger than MaxElements, because several elements may define the same key.
const maxElementsPerPlugin = 4 * MaxElements

// maxElementErrors is the number of errors of one plugin that are reported one by one.
const maxElementErrors = 20

// Contribution holds the elements that one plugin returned. Owner becomes the action_owner
// of the plugin's actions: provider_extension, feature, or "" for all other plugins. An
// action without an action_owner belongs to the application.
type Contribution struct {
	Plugin   string
	Owner    string
	Elements []loquat.Object
}

// ElementError says what is wrong with an element of a plugin.
type ElementError struct {
	Plugin  string
	Element string // key or id, or the index in the plugin's list, such as #0
	Message string // what is wrong and what is allowed
}

func (f ElementError) String() string {
	if f.Element == "" {
		return fmt.Sprintf("%s: %s", f.Plugin, f.Message)
	}
	return fmt.Sprintf("%s: element %s: %s", f.Plugin, f.Element, f.Message)
}

// Normalize returns one list of the plugins' elements, in the order of the plugins. Actions
// get their owner. Config elements come last, one for each key: if a key is defined several
// times, the last definition appears at the place of the first. Elements that are malformed,
// too large or too many are left out, and errs says why.
func Normalize(contributions []Contribution) (elements []loquat.Object, errs []ElementError) {
	var settings []loquat.Object
	places := map[string]int{} // index in settings by key
	for _, c := range contributions {
		var found []ElementError
		for i, given := range c.Elements[:min(len(c.Elements), maxElementsPerPlugin)] {
			element, err := normalizeElement(c, given)
			if err != nil {
				found = append(found, ElementError{c.Plugin, elementName(given, i), err.Error()})
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
		errs = append(errs, limitErrors(c.Plugin, found)...)
		if more := len(c.Elements) - maxElementsPerPlugin; more > 0 {
			errs = append(errs, ElementError{Plugin: c.Plugin, Message: fmt.Sprintf(
				"%d elements are left out: a plugin may return at most %d", more, maxElementsPerPlugin)})
		}
	}
	elements = append(elements, settings...)
	if len(elements) > MaxElements {
		errs = append(errs, reportOverflow(elements[MaxElements:])...)
		elements = slices.Clip(elements[:MaxElements])
	}
	return elements, errs
}

// normalizeElement returns an element in the form that clients get, or an error that says
// why the element is left out.
func normalizeElement(c Contribution, given loquat.Object) (loquat.Object, error) {
	if given == nil {
		return nil, fmt.Errorf("is null; an element must be a JSON object")
	}
	element := given.Clone()
	if isFalsy(element["ui_type"]) {
		element.Set("ui_type", uiConfig)
	}
	element.Set("plugin", c.Plugin)
	uiType := element.String("ui_type")
	switch {
	case uiType == "":
		return nil, fmt.Errorf("ui_type must be a string")
	case uiType == uiConfig:
		if element.String("key") == "" {
			return nil, fmt.Errorf("has no key; the key of a config element must be a string")
		}
		redactSecretDefault(element)
	case hasAttribute(uiType, "action_id"):
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
	if size := encodedSize(element); size > MaxElementSize {
		return nil, fmt.Errorf("has %d bytes; at most %d are allowed", size, MaxElementSize)
	}
	return element, nil
}

// redactSecretDefault redacts the default of a secret, so that clients do not see it. If the
// name of the key marks a secret, it sets `secret` even if the plugin did not.
func redactSecretDefault(element loquat.Object) {
	if slices.ContainsFunc(append(ConfigPath(element), element.String("key")), loquat.SecretName) {
		element.Set("secret", true)
	}
	if raw, ok := element["default"]; ok && element.Bool("secret") {
		element.Set("default", redactValue(raw))
	}
}

// redactValue returns {"set": true}, or {"set": false} for an empty value. A redacted value
// stays unchanged.
func redactValue(raw json.RawMessage) json.RawMessage {
	v, _ := decode(raw) // nil if it is not valid JSON
	if object, ok := v.(map[string]any); ok && len(object) == 1 {
		if _, redacted := object["set"].(bool); redacted {
			return raw
		}
	}
	if isEmpty(v) {
		return json.RawMessage(`{"set":false}`)
	}
	return json.RawMessage(`{"set":true}`)
}

func encodedSize(element loquat.Object) int {
	raw, err := json.Marshal(element)
	if err != nil { // an element that is not valid JSON cannot be sent
		return MaxElementSize + 1
	}
	return len(raw)
}

// elementName returns a name that identifies an element among those of its plugin.
func elementName(element loquat.Object, i int) string {
	for _, field := range []string{"key", "id"} {
		if name := element.String(field); name != "" && len(name) <= 100 {
			return name
		}
	}
	return fmt.Sprintf("#%d", i)
}

// limitErrors bounds the errors of one plugin, so that they cannot fill the server's log.
func limitErrors(plugin string, found []ElementError) []ElementError {
	if len(found) <= maxElementErrors {
		return found
	}
	more := ElementError{Plugin: plugin, Message: fmt.Sprintf("%d more elements are left out because of similar errors", len(found)-maxElementErrors)}
	return append(found[:maxElementErrors], more)
}

// reportOverflow reports for each plugin how many of its elements exceed MaxElements.
func reportOverflow(dropped []loquat.Object) (errs []ElementError) {
	counts := map[string]int{}
	var plugins []string
	for _, element := range dropped {
		plugin := element.String("plugin")
		if counts[plugin]++; counts[plugin] == 1 {
			plugins = append(plugins, plugin)
		}
	}
	for _, plugin := range plugins {
		errs = append(errs, ElementError{Plugin: plugin, Message: fmt.Sprintf(
			"%d elements are left out: all plugins together may return at most %d", counts[plugin], MaxElements)})
	}
	return errs
}
