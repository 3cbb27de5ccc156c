import assert from "node:assert/strict"
import { execFile } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { test } from "node:test"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { TestServer, hasServer } from "./server.ts"

const here = new URL(".", import.meta.url)
const run = promisify(execFile)

// The examples of README.md work against a server. They are the files that a user would write: they
// import the package by its name.
test("the examples of README.md", { skip: !hasServer && "there is no server", timeout: 180_000 }, async () => {
  const blocks = [...readFileSync(new URL("../README.md", here), "utf8").matchAll(/```ts\n(.*?)```/gs)].map((m) => m[1]!)
  assert.ok(blocks.length >= 5)
  const server = await TestServer.start()
  const dir = mkdtempSync(fileURLToPath(new URL("readme-", here)))
  try {
    const outputs: string[] = []
    for (const [i, block] of blocks.entries()) {
      const file = `${dir}/example${i}.ts`
      writeFileSync(file, block.replaceAll("http://127.0.0.1:8787", server.url))
      const { stdout } = await run(process.execPath, ["--import", "tsx", "--conditions=source", file], { timeout: 60_000 })
      outputs.push(stdout)
    }
    assert.match(outputs[0]!, /scripted backend|loquat/i)
    assert.match(outputs[1]!, /none/)
    assert.match(outputs[2]!, /live/)
    assert.match(outputs[4]!, /'sent'/)
    assert.match(outputs[5]!, /state: 'done'/)
  } finally {
    rmSync(dir, { recursive: true })
    await server.close()
  }
})
