import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeHTMLStrict as whole, encodeHTML } from "entities";
import { decodeHTMLStrict, loadNames, missedNames } from "../../src/markdown/entities.ts";

/** The references of all characters that have a name. */
const references = Array.from({ length: 0xffff }, (_, i) => encodeHTML(String.fromCharCode(i))).filter((text) => /^&[a-z]\w*;$/i.test(text));

test("common named characters are decoded at once, and all others once their table is loaded", async () => {
  assert.ok(references.length > 1000);
  const known = references.filter((one) => decodeHTMLStrict(one) !== one);
  assert.ok(known.length > 200, `${known.length} names are known`);
  for (const one of known) assert.equal(decodeHTMLStrict(one), whole(one), one);
  for (const one of ["&quot;", "&amp;", "&lt;", "&auml;", "&Omega;", "&hellip;", "&there4;", "&zwj;", "&hearts;"]) assert.equal(decodeHTMLStrict(one), whole(one), one);
  const missed = missedNames();
  assert.equal(decodeHTMLStrict("&HilbertSpace;"), "&HilbertSpace;");
  assert.equal(missedNames(), missed + 1);
  assert.ok(await loadNames());
  for (const one of [...references, "&HilbertSpace;", "&ngE;", "&AMP;", "&nosuch;"]) assert.equal(decodeHTMLStrict(one), whole(one), one);
  assert.equal(missedNames(), missed + 1);
});
