package upgrade_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// apiComparison compares two OpenAPI documents of the HTTP API: what a client or a generated client of
// the older document relies on must be in the newer one. The rules are in TestRulesOfAPIComparison.
type apiComparison struct {
	older, newer object
	breaks       map[string]string // what is wrong, by its place
	compared     map[string]bool   // pairs of schemas, with their direction
}

// object is a JSON object.
type object = map[string]any

// direction says who writes a value of a schema.
type direction string

const (
	byClient direction = "byClient"
	byServer direction = "byServer"
)

// breaksOfAPI returns what breaks clients of the older document, by its place.
func breaksOfAPI(older, newer json.RawMessage) (map[string]string, error) {
	c := &apiComparison{breaks: map[string]string{}, compared: map[string]bool{}}
	if err := json.Unmarshal(older, &c.older); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(newer, &c.newer); err != nil {
		return nil, err
	}
	for path, item := range field(c.older, "paths") {
		for method, operation := range item.(object) {
			if old, ok := operation.(object); ok {
				c.operation(strings.ToUpper(method)+" "+path, old, field(field(field(c.newer, "paths"), path), method))
			}
		}
	}
	for name := range field(field(c.older, "components"), "schemas") {
		if field(field(field(c.newer, "components"), "schemas"), name) == nil { // generated clients name their types by it
			c.broken("schema "+name, "is gone")
		}
	}
	return c.breaks, nil
}

func (c *apiComparison) broken(place, format string, args ...any) {
	c.breaks[place] = fmt.Sprintf(format, args...)
}

func (c *apiComparison) operation(place string, older, newer object) {
	if newer == nil {
		c.broken(place, "is gone")
		return
	}
	if older["operationId"] != newer["operationId"] {
		c.broken(place+" operationId", "was %v and is %v", older["operationId"], newer["operationId"])
	}
	c.parameters(place, parametersOf(older), parametersOf(newer))
	c.body(place+" body", field(older, "requestBody"), field(newer, "requestBody"))
	answers := field(newer, "responses")
	for status, response := range field(older, "responses") {
		at := place + " " + status
		now := field(answers, status)
		if now == nil {
			c.broken(at, "is gone")
			continue
		}
		c.medias(at, byServer, field(response.(object), "content"), field(now, "content"))
		for header := range field(response.(object), "headers") {
			if field(field(now, "headers"), header) == nil {
				c.broken(at+" "+header, "is gone")
			}
		}
	}
	if len(list(older, "security")) > 0 && !reflect.DeepEqual(older["security"], newer["security"]) {
		c.broken(place+" security", "was %v and is %v", older["security"], newer["security"])
	}
}

func (c *apiComparison) parameters(place string, older, newer map[string]object) {
	for name, old := range older {
		now := newer[name]
		switch {
		case now == nil:
			c.broken(place+" "+name, "is gone")
			continue
		case now["required"] == true && old["required"] != true:
			c.broken(place+" "+name, "is required now")
		}
		c.schema(place+" "+name, byClient, field(old, "schema"), field(now, "schema"))
	}
	for name, now := range newer {
		if older[name] == nil && now["required"] == true {
			c.broken(place+" "+name, "is new and required")
		}
	}
}

func (c *apiComparison) body(place string, older, newer object) {
	switch {
	case older != nil && newer == nil:
		c.broken(place, "is gone")
	case newer["required"] == true && older["required"] != true:
		c.broken(place, "is required now")
	}
	c.medias(place, byClient, field(older, "content"), field(newer, "content"))
}

func (c *apiComparison) medias(place string, by direction, older, newer object) {
	for media, content := range older {
		now := field(newer, media)
		if now == nil {
			c.broken(place+" "+media, "is gone")
			continue
		}
		c.schema(place, by, field(content.(object), "schema"), field(now, "schema"))
	}
}

// schema compares the schemas of one value. A value of the client that the older schema allows must
// be allowed by the newer one; a value of the server must be as the older schema says, apart from
// fields, variants and texts that are new.
func (c *apiComparison) schema(place string, by direction, older, newer object) {
	refs := fmt.Sprint(by, " ", older["$ref"], " ", newer["$ref"])
	if older["$ref"] != nil && newer["$ref"] != nil {
		if c.compared[refs] {
			return
		}
		c.compared[refs] = true
	}
	if name, ok := older["$ref"].(string); ok {
		place = string(by) + " " + name[strings.LastIndex(name, "/")+1:]
	}
	older, newer = resolve(c.older, older), resolve(c.newer, newer)
	if merged := c.variants(place, by, older, newer); merged != nil {
		newer = merged
	}
	c.types(place, by, older, newer)
	c.bounds(place, by, older, newer)
	if items := field(older, "items"); len(items) > 0 {
		c.schema(place+"[]", by, items, field(newer, "items"))
	}
	was, is := field(older, "properties"), field(newer, "properties")
	for name, old := range was {
		if is[name] == nil {
			c.broken(place+"."+name, "is gone")
			continue
		}
		c.schema(place+"."+name, by, old.(object), is[name].(object))
	}
	for _, name := range list(newer, "required") {
		if by == byClient && !slices.Contains(list(older, "required"), name) {
			c.broken(place+"."+name, "is required now")
		}
	}
	for _, name := range list(older, "required") {
		if by == byServer && is[name] != nil && !slices.Contains(list(newer, "required"), name) {
			c.broken(place+"."+name, "may be missing now")
		}
	}
}

// variants compares the variants of a union. If only the newer schema is a union, it returns the
// union as one schema, in which only what all variants require is required.
func (c *apiComparison) variants(place string, by direction, older, newer object) object {
	was, is := variantsOf(c.older, older), variantsOf(c.newer, newer)
	if len(was) > 0 && len(is) == 0 {
		c.broken(place+" union", "is no union any more")
		return nil
	}
	for selected, old := range was {
		if is[selected] == nil {
			c.broken(place+" "+selected, "is gone")
			continue
		}
		c.schema(place+" "+selected, by, old, is[selected])
	}
	if len(is) == 0 || len(was) > 0 {
		return nil
	}
	properties, required, first := object{}, []any{}, true
	for _, variant := range is {
		for name, s := range field(variant, "properties") {
			if one, taken := properties[name]; !taken {
				properties[name] = s
			} else if !reflect.DeepEqual(one, s) { // the values that select a variant, or a narrower schema in one of them
				properties[name] = object{"type": resolve(c.newer, s.(object))["type"]}
			}
		}
		if names, _ := variant["required"].([]any); first {
			required = slices.Clone(names)
		} else {
			required = slices.DeleteFunc(required, func(name any) bool { return !slices.Contains(names, name) })
		}
		first = false
	}
	return object{"type": "object", "properties": properties, "required": required}
}

// types compares the types of a value and the texts that it may be.
func (c *apiComparison) types(place string, by direction, older, newer object) {
	was, is := typesOf(older), typesOf(newer)
	narrow, wide := was, is // what narrow has, wide must have
	if by == byServer {
		narrow, wide = is, was
	}
	if len(was)+len(is) > 0 && len(wide) > 0 && (len(narrow) == 0 || slices.ContainsFunc(narrow, func(s string) bool {
		return !slices.Contains(wide, s) && !(s == "integer" && slices.Contains(wide, "number"))
	})) {
		c.broken(place+" type", "was %v and is %v", was, is)
	}
	texts, now := list(older, "enum"), list(newer, "enum")
	gone := slices.ContainsFunc(texts, func(s string) bool { return !slices.Contains(now, s) })
	switch {
	case by == byClient && len(now) > 0 && (len(texts) == 0 || gone):
		c.broken(place+" enum", "was %v and is %v", texts, now)
	case by == byServer && len(texts) > 0 && slices.ContainsFunc(now, func(s string) bool { return !slices.Contains(texts, s) }):
		c.broken(place+" enum", "was %v and is %v", texts, now)
	}
}

// bounds compares what limits a value of a client, and how a text is written.
func (c *apiComparison) bounds(place string, by direction, older, newer object) {
	for _, key := range []string{"format", "pattern", "contentEncoding"} {
		if older[key] != newer[key] && (by == byServer && older[key] != nil || by == byClient && newer[key] != nil) {
			c.broken(place+" "+key, "was %v and is %v", older[key], newer[key])
		}
	}
	if by == byServer {
		return
	}
	for key, most := range map[string]bool{"maximum": true, "maxLength": true, "maxItems": true, "minimum": false, "minLength": false, "minItems": false} {
		was, bounded := older[key].(float64)
		is, now := newer[key].(float64)
		if now && (!bounded || most && is < was || !most && is > was) {
			c.broken(place+" "+key, "was %v and is %v", older[key], is)
		}
	}
	if newer["additionalProperties"] == false && older["additionalProperties"] != false && len(typesOf(older)) > 0 {
		c.broken(place+" additionalProperties", "are refused now")
	}
}

// variantsOf returns the variants of a union, by the value that selects them or by their fields.
func variantsOf(document, union object) map[string]object {
	found := map[string]object{}
	for _, key := range []string{"oneOf", "anyOf"} {
		variants, _ := union[key].([]any)
		for _, v := range variants {
			variant := resolve(document, v.(object))
			selected := strings.Join(slices.Sorted(maps.Keys(field(variant, "properties"))), " ")
			if by, ok := field(union, "discriminator")["propertyName"].(string); ok {
				selected = strings.Join(list(field(field(variant, "properties"), by), "enum"), " ")
			}
			found[selected] = variant
		}
	}
	return found
}

func resolve(document, schema object) object {
	for {
		ref, ok := schema["$ref"].(string)
		if !ok {
			return schema
		}
		schema = document
		for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			schema = field(schema, name)
		}
	}
}

// typesOf returns the types that a value may have; none means any.
func typesOf(schema object) []string {
	if one, ok := schema["type"].(string); ok {
		return []string{one}
	}
	return list(schema, "type")
}

func field(o object, name string) object {
	value, _ := o[name].(object)
	return value
}

// list returns a list as texts.
func list(o object, name string) (texts []string) {
	values, _ := o[name].([]any)
	for _, v := range values {
		texts = append(texts, fmt.Sprint(v))
	}
	return texts
}

func parametersOf(operation object) map[string]object {
	found := map[string]object{}
	values, _ := operation["parameters"].([]any)
	for _, v := range values {
		p := v.(object)
		found[fmt.Sprint(p["in"], " ", p["name"])] = p
	}
	return found
}
