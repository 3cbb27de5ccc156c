import assert from "node:assert/strict"
import { existsSync, readFileSync } from "node:fs"
import { test } from "node:test"
import { type ElementContext, type Root, actionParams, effectiveConfig, elementText, isValidCondition, shownElements, visible } from "../src/index.ts"

const root = new URL("../../../", import.meta.url)
const shared = process.env.LOQUAT_SHARED ?? new URL("../shared", root).pathname

interface Table {
  context: ElementContext
  cases: { name: string; root: Root; condition: unknown; expect: { visible: boolean; valid: boolean } }[]
}

for (const [name, file] of [["own", new URL("internal/ui/testdata/conditions.json", root).pathname], ["shared", `${shared}/conformance/conditions.json`]] as const) {
  test(`conditions: the ${name} table`, { skip: !existsSync(file) && `there is no ${file}` }, (t) => {
    const { context, cases } = JSON.parse(readFileSync(file, "utf8")) as Table
    assert.ok(cases.length > 10)
    for (const c of cases) {
      const got = { visible: visible(c.condition, c.root, context), valid: isValidCondition(c.condition) }
      assert.deepEqual(got, { visible: c.expect.visible, valid: c.expect.valid }, c.name)
    }
    t.diagnostic(`${cases.length} cases`)
  })
}

test("elements: text, order, params and config", () => {
  const context = { session: { session_id: "s", metadata: { project: "p", n: null } }, message: { index: 3, role: "user" }, config: {} }
  assert.equal(elementText({ ui_type: "session_list_field", data: "project", template: "<{{data}}> $&" }, context), "<p> $&")
  assert.equal(elementText({ ui_type: "session_list_field", data: "n" }, context), undefined)
  assert.deepEqual({ ...actionParams({ param_map: { index: "$message.index", lang: "$dialog.language" }, fixed_params: { format: "text" } }, context, { language: "de", other: 1, format: "x" }) },
    { other: 1, format: "text", index: 3, lang: "de" })
  const actions = [{ ui_type: "session_action", id: "b", order: 2 }, { ui_type: "session_action", id: "a", order: 1 }, { ui_type: "session_action", id: "c", condition: { path: "none" } }, { ui_type: "new_type" }]
  assert.deepEqual(shownElements(actions as never, "session_action", context).map((e) => e.id), ["a", "b"])
  const config = effectiveConfig([{ ui_type: "config", key: "mode", config_path: "stream_recovery.mode" }, { ui_type: "config", key: "d", config_path: "__proto__.x" }] as never,
    { mode: { value: "on", source: "override" }, shown: { value: 1, source: "ui_default" }, d: { value: 1, source: "config" } } as never)
  assert.equal(JSON.stringify(config), '{"mode":"on","d":1,"stream_recovery":{"mode":"on"},"__proto__":{"x":1}}')
  assert.equal(({} as { x?: unknown }).x, undefined)
})
