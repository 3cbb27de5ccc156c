// Checks that events and UI elements of a server are what its document says. Events have no
// other fields; elements may have those of their plugin:
// node validate.mjs openapi.json EVENTS UI-SCHEMA.
import { readFileSync } from "node:fs";
import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

const [document, events, schema] = process.argv.slice(2, 5).map((name) => JSON.parse(readFileSync(name, "utf8")));
const ajv = new Ajv2020({ strict: false, allErrors: true, logger: false });
addFormats.default(ajv, ["date-time", "uri"]);
ajv.addSchema({ ...document, $id: "openapi" });
const kinds = {};
const faults = [];
const check = (value, union, by) => {
  const { mapping } = document.components.schemas[union].discriminator;
  const ref = mapping[value[by]];
  if (!ref) return faults.push(`${union} has no ${value[by]}`);
  const one = document.components.schemas[ref.split("/").at(-1)];
  const valid = ajv.getSchema(`openapi${ref}`) ?? ajv.compile({ $ref: `openapi${ref}` });
  if (!valid(value)) faults.push(`${value[by]}: ${ajv.errorsText(valid.errors)}`);
  for (const field of union === "Event" ? Object.keys(value) : []) if (!(field in one.properties)) faults.push(`${value[by]} has ${field}`);
  kinds[value[by]] = true;
};
for (const e of events) check(e, "Event", "type");
for (const e of schema.elements) check(e, "UIElement", "ui_type");
console.log(JSON.stringify({ kinds: Object.keys(kinds).sort(), faults: [...new Set(faults)].slice(0, 20) }));
