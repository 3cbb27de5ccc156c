import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";
import { gist, pretty } from "../../src/model/pretty.ts";

test("pretty writes one member a line and keeps numbers as they are", () => {
  assert.equal(pretty('{"a":12345678901234567890,"b":[1,2],"c":{},"d":[ ],"e":"x:{,}\\""}'), '{\n  "a": 12345678901234567890,\n  "b": [\n    1,\n    2\n  ],\n  "c": {},\n  "d": [],\n  "e": "x:{,}\\""\n}');
});

test("pretty leaves what is not JSON as it is", () => {
  for (const text of ["", "hello", '{"a":', "[1, 2", "12"]) assert.equal(pretty(text), text);
});

test("pretty changes only white space", () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const json = JSON.stringify(value);
      assert.deepEqual(JSON.parse(pretty(json)), JSON.parse(json));
      if (typeof value === "object" && value !== null) assert.equal(pretty(json), JSON.stringify(value, null, 2));
    }),
  );
});

test("gist finds the first text or number of the arguments", () => {
  assert.equal(gist('{"options":{},"query":"two\\nlines","n":3}'), "two lines");
  assert.equal(gist('{"n":3}'), "3");
  for (const text of ["", "not json", "null", "{}", "[]"]) assert.equal(gist(text), "");
});
