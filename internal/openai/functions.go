package openai

import "encoding/json"

// Tools of type namespace are groups of functions. A chat-completions backend has no groups, so the
// model calls a function of one by both names, and clients get them apart again.

const (
	toolFunction  = "function"
	toolNamespace = "namespace"
)

// function is a function that the caller runs.
type function struct{ Namespace, Name string }

// called returns the name by which the model calls the function.
func (f function) called() string {
	if f.Namespace == "" {
		return f.Name
	}
	return f.Namespace + "__" + f.Name
}

// setIn sets the names in an item.
func (f function) setIn(item map[string]any) {
	item["name"] = f.Name
	if f.Namespace != "" {
		item["namespace"] = f.Namespace
	}
}

// functions are those of a response by the names by which the model calls them.
type functions map[string]function

// find returns the function that a choice means. The choice may leave out the namespace if only one has
// a function of this name.
func (f functions) find(namespace, name string) function {
	chosen := function{namespace, name}
	if _, known := f[chosen.called()]; known || namespace != "" {
		return chosen
	}
	for _, other := range f {
		if other.Name != name {
			continue
		}
		if chosen.Namespace != "" {
			return function{Name: name}
		}
		chosen = other
	}
	return chosen
}

// functionsOf returns the functions of the tools that a response repeats.
func functionsOf(tools json.RawMessage) functions {
	out := functions{}
	var list []struct {
		Type, Name string
		Tools      []struct{ Name string }
	}
	if json.Unmarshal(tools, &list) != nil {
		return out
	}
	for _, tool := range list {
		if tool.Type != toolNamespace {
			out[tool.Name] = function{Name: tool.Name}
			continue
		}
		for _, inner := range tool.Tools {
			f := function{tool.Name, inner.Name}
			out[f.called()] = f
		}
	}
	return out
}
