import assert from "node:assert/strict";
import { test } from "node:test";
import hosts from "../../src/markdown/hosts.ts";

test("names of hosts are written in ASCII", () => {
  const names: Readonly<Record<string, string>> = {
    "": "", "example.com": "example.com", "EXAMPLE.com": "EXAMPLE.com", "127.1": "127.1", "xn--mnchen-3ya.de": "xn--mnchen-3ya.de",
    "münchen.de": "xn--mnchen-3ya.de", "例え.テスト": "xn--r8jz45g.xn--zckzah", "пример.испытание": "xn--e1afmkfd.xn--80akhbyknj4f", "☃.net": "xn--n3h.net",
  };
  for (const [name, ascii] of Object.entries(names)) assert.equal(hosts.toASCII(name), ascii, name);
});

test("what cannot be a host is an error, which the parser catches", () => {
  assert.throws(() => hosts.toASCII("ä b"));
});
