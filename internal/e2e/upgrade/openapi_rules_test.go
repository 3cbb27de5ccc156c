package upgrade_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// What counts as a break of the API. In each row one part of a small document is replaced; the place is
// where the break is reported, and none means that clients notice nothing.
func TestRulesOfAPIComparison(t *testing.T) {
	const document = `{"paths": {"/things": {"post": {"operationId": "make",
		"parameters": [{"in": "query", "name": "q", "schema": {"type": "string", "maxLength": 9}}],
		"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/New"}}}},
		"responses": {"200": {"headers": {"ETag": {}}, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}}}}}},
		"components": {"schemas": {
			"New": {"type": "object", "additionalProperties": false, "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}},
			"Thing": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, "count": {"type": "number"}, "state": {"type": "string", "enum": ["new", "old"]}, "any": {},
				"of": {"oneOf": [{"$ref": "#/components/schemas/A"}], "discriminator": {"propertyName": "kind"}}}},
			"A": {"type": "object", "properties": {"kind": {"type": "string", "enum": ["a"]}, "n": {"type": "integer"}}}}}}`
	for _, row := range []struct{ what, old, now, place string }{
		{"nothing", "make", "make", ""},
		{"a route is gone", `"/things"`, `"/others"`, "POST /things"},
		{"a method is gone", `"post"`, `"put"`, "POST /things"},
		{"an operation has another name", `"make"`, `"create"`, "POST /things operationId"},
		{"a parameter is gone", `"name": "q"`, `"name": "r"`, "POST /things query q"},
		{"a parameter becomes required", `"name": "q"`, `"name": "q", "required": true`, "POST /things query q"},
		{"a new parameter", `"parameters": [`, `"parameters": [{"in": "query", "name": "new"},`, ""},
		{"a new parameter that is required", `"parameters": [`, `"parameters": [{"in": "query", "name": "new", "required": true},`, "POST /things query new"},
		{"a parameter may be shorter only", `"maxLength": 9`, `"maxLength": 8`, "POST /things query q maxLength"},
		{"a parameter may be longer", `"maxLength": 9`, `"maxLength": 10`, ""},
		{"a body becomes required", `"requestBody": {`, `"requestBody": {"required": true, `, "POST /things body"},
		{"a body of another type", `"requestBody": {"content": {"application/json"`, `"requestBody": {"content": {"text/plain"`, "POST /things body application/json"},
		{"a field of a body is gone", `"name": {"type": "string"}, `, "", "byClient New.name"},
		{"a field of a body becomes required", `"additionalProperties": false`, `"required": ["size"]`, "byClient New.size"},
		{"a field of a body takes less", `"size": {"type": "integer"}`, `"size": {"type": "integer", "minimum": 1}`, "byClient New.size minimum"},
		{"a field of a body takes more", `"size": {"type": "integer"}`, `"size": {"type": ["number", "null"]}`, ""},
		{"a field of a body has another type", `"size": {"type": "integer"}`, `"size": {"type": "string"}`, "byClient New.size type"},
		{"a field of a body takes some texts only", `"name": {"type": "string"}`, `"name": {"type": "string", "enum": ["a"]}`, "byClient New.name enum"},
		{"a new field of a body", `"size": {`, `"new": {"type": "string"}, "size": {`, ""},
		{"a status is gone", `"200"`, `"201"`, "POST /things 200"},
		{"a header is gone", `"ETag"`, `"Etag"`, "POST /things 200 ETag"},
		{"a field of an answer is gone", `"count": {"type": "number"}, `, "", "byServer Thing.count"},
		{"a field of an answer is new", `"any": {},`, `"any": {}, "new": {"type": "string"},`, ""},
		{"a field of an answer may be missing", `"required": ["id"], `, "", "byServer Thing.id"},
		{"a field of an answer may be null", `"count": {"type": "number"}`, `"count": {"type": ["number", "null"]}`, "byServer Thing.count type"},
		{"a field of an answer is narrower", `"count": {"type": "number"}`, `"count": {"type": "integer"}`, ""},
		{"a field of an answer gets a type", `"any": {}`, `"any": {"type": "string"}`, ""},
		{"an answer has a new text", `"old"]`, `"old", "lost"]`, "byServer Thing.state enum"},
		{"an answer has a text less", `"new", "old"]`, `"new"]`, ""},
		{"a new variant", `"oneOf": [`, `"oneOf": [{"type": "object", "properties": {"kind": {"enum": ["b"]}}}, `, ""},
		{"a variant is gone", `"enum": ["a"]`, `"enum": ["b"]`, "byServer Thing.of a"},
		{"a schema has another name", `New"`, `Newer"`, "schema New"},
		{"a field of a variant is gone", `, "n": {"type": "integer"}`, "", "byServer Thing.of a.n"},
		{"a union becomes one of its variants", `{"oneOf": [{"$ref": "#/components/schemas/A"}], "discriminator": {"propertyName": "kind"}}`, `{"$ref": "#/components/schemas/A"}`, "byServer Thing.of union"},
	} {
		now := strings.ReplaceAll(document, row.old, row.now)
		if row.old != row.now && now == document {
			t.Fatalf("%s: nothing is replaced", row.what)
		}
		breaks, err := breaksOfAPI(json.RawMessage(document), json.RawMessage(now))
		if err != nil {
			t.Fatalf("%s: %v", row.what, err)
		}
		if found := strings.Join(slices.Sorted(maps.Keys(breaks)), ", "); found != row.place {
			t.Errorf("%s: the breaks are at %q, not %q", row.what, found, row.place)
		}
	}
	// An object that becomes a union keeps what all variants have.
	union := strings.Replace(document, `"A": {"type": "object", "properties": {"kind": {"type": "string", "enum": ["a"]}, "n": {"type": "integer"}}}`,
		`"A": {"oneOf": [{"type": "object", "properties": {"kind": {"type": "string"}, "n": {"type": "integer"}}}, {"type": "object", "properties": {"kind": {"type": "string"}}}]}`, 1)
	single := strings.Replace(document, `{"oneOf": [{"$ref": "#/components/schemas/A"}], "discriminator": {"propertyName": "kind"}}`, `{"$ref": "#/components/schemas/A"}`, 1)
	both := strings.Replace(union, `{"oneOf": [{"$ref": "#/components/schemas/A"}], "discriminator": {"propertyName": "kind"}}`, `{"$ref": "#/components/schemas/A"}`, 1)
	if breaks, err := breaksOfAPI(json.RawMessage(single), json.RawMessage(both)); err != nil || len(breaks) > 0 {
		t.Errorf("an object that becomes a union: %v, %v", breaks, err)
	}
}
