package route

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// Schemas are the JSON Schemas of all bodies. They are made from the Go types, so that what
// is validated, what is documented and what is decoded cannot differ.
type Schemas struct{ registry huma.Registry }

// SchemaPrefix begins the reference to a schema in the document.
const SchemaPrefix = "#/components/schemas/"

// NewSchemas returns schemas without content.
func NewSchemas() Schemas { return Schemas{huma.NewMapRegistry(SchemaPrefix, schemaName)} }

// Alias gives the type of noun the schema of the type of written.
func (s Schemas) Alias(noun, written any) {
	s.registry.RegisterTypeAlias(reflect.TypeOf(noun), reflect.TypeOf(written))
}

// Map returns the schemas by name. The caller may add to the map.
func (s Schemas) Map() map[string]*huma.Schema { return s.registry.Map() }

// schemaName writes `problem` and `toolCallText` as loquat.Problem and ToolCall.
func schemaName(t reflect.Type, hint string) string {
	return strings.Replace(strings.TrimSuffix(huma.DefaultSchemaNamer(t, hint), "Text"), "Ui", "UI", 1)
}

// of returns the schema of v's type, a reference where it is a struct.
func (s Schemas) of(v any) *huma.Schema {
	return s.registry.Schema(reflect.TypeOf(v), true, "")
}

// requiresBody reports whether a body of v's type has fields that cannot be left out.
func (s Schemas) requiresBody(v any) bool {
	schema := s.of(v)
	if schema.Ref != "" {
		schema = s.registry.SchemaFromRef(schema.Ref)
	}
	return len(schema.Required) > 0
}

// open allows unlisted fields in all schemas except closed ones, because later versions add
// fields to answers. It also declares that no list is ever null.
func (s Schemas) open(closed map[string]bool) {
	for name, schema := range s.Map() {
		if !closed[SchemaPrefix+name] && schema.AdditionalProperties == false {
			schema.AdditionalProperties = nil
		}
		for _, p := range schema.Properties {
			if p.Type == huma.TypeArray {
				p.Nullable = false
			}
			describeDefault(p)
		}
	}
}

// describeDefault puts the default of a field into its description. Generators of clients
// take a field with the keyword `default` for one that is always there.
func describeDefault(field *huma.Schema) {
	if field.Default == nil {
		return
	}
	if text, err := json.Marshal(field.Default); err == nil {
		field.Description = strings.TrimSpace(fmt.Sprintf("%s Default: %s.", field.Description, text))
	}
	field.Default = nil
}

// Variant is one form of a value. The value of one field selects the form.
type Variant struct {
	Value    string // of that field
	Name     string // of the schema
	Doc      string
	Required []string
	Optional []string
	Fields   map[string]*huma.Schema // of this variant alone, or narrower than usual
}

// Union registers the schema name, which is one of the variants. The field by selects the
// variant. usual has the schemas of the fields, and always names those that all variants have.
func (s Schemas) Union(name, by, doc string, usual map[string]*huma.Schema, always []string, variants []Variant) {
	out := &huma.Schema{Description: doc, Discriminator: &huma.Discriminator{PropertyName: by, Mapping: map[string]string{}}}
	for _, v := range variants {
		properties := map[string]*huma.Schema{}
		for _, field := range slices.Concat(always, v.Required, v.Optional) {
			properties[field] = usual[field]
		}
		maps.Copy(properties, v.Fields)
		properties[by] = OneText(v.Value)
		s.Map()[v.Name] = &huma.Schema{
			Type: huma.TypeObject, Description: v.Doc, Properties: properties, Required: slices.Concat(always, v.Required),
		}
		ref := SchemaPrefix + v.Name
		out.OneOf = append(out.OneOf, &huma.Schema{Ref: ref})
		out.Discriminator.Mapping[v.Value] = ref
	}
	s.Map()[name] = out
}

// OneText is the schema of a text that has one value, as a list, which more generators know
// than `const`.
func OneText(value string) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: []any{value}}
}

// RefTo is a reference to a schema.
func RefTo(name string) *huma.Schema { return &huma.Schema{Ref: SchemaPrefix + name} }

// ListOf is the schema of a list.
func ListOf(items *huma.Schema) *huma.Schema { return &huma.Schema{Type: huma.TypeArray, Items: items} }

// Texts is the schema of a text that has one of some values.
func Texts(values ...string) *huma.Schema {
	out := &huma.Schema{Type: huma.TypeString}
	for _, v := range values {
		out.Enum = append(out.Enum, v)
	}
	return out
}

// Properties returns the fields of the schema of v's type, to be changed.
func (s Schemas) Properties(v any) map[string]*huma.Schema {
	return s.registry.SchemaFromRef(s.of(v).Ref).Properties
}

// Require says that values of v's type always have fields which its Go type may leave out.
func (s Schemas) Require(v any, fields ...string) {
	schema := s.registry.SchemaFromRef(s.of(v).Ref)
	schema.Required = append(schema.Required, fields...)
}
