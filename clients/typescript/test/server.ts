// A server for tests: the program of this repository with its scripted backend.

import { type ChildProcess, execFileSync, spawn } from "node:child_process"
import { once } from "node:events"
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { createServer, type AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"

const root = fileURLToPath(new URL("../../..", import.meta.url))

let built: string | undefined

/** Returns the path of the program. LOQUAT_BIN names one; otherwise it is built once for each process. */
function program(): string {
  if (process.env.LOQUAT_BIN) return process.env.LOQUAT_BIN
  if (!built) {
    const dir = mkdtempSync(join(tmpdir(), "loquat-client-"))
    process.on("exit", () => rmSync(dir, { recursive: true, force: true }))
    built = join(dir, "loquat")
    execFileSync(process.env.GO ?? "go", ["build", "-o", built, "./cmd/loquat"], { cwd: root, stdio: "inherit" })
  }
  return built
}

/** The configuration of a server that takes scripts for replies, has the tools of the clock, and lets pages of an origin call it. */
export const withClock = (origin: string): object => ({
  server: { allowed_origins: [origin] },
  plugins: ["loquat.providers.reference_generic_compatible", "loquat.features.request_options", `path:${fileURLToPath(new URL("clock", import.meta.url))}`],
})

export const hasServer = Boolean(process.env.LOQUAT_BIN) || existsSync(join(root, "go.mod"))

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1")
  await once(server, "listening")
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, "close")
  return port
}

/** A server that can be killed and started again at the same address, with the same data. */
export class TestServer {
  readonly #dir = mkdtempSync(join(tmpdir(), "loquat-client-"))

  #process: ChildProcess | undefined
  port = 0
  log = ""


  static async start(config: object = {}): Promise<TestServer> {
    const server = new TestServer()
    server.port = await freePort()
    writeFileSync(join(server.#dir, "loquat.json"), JSON.stringify(config))
    await server.restart()
    return server
  }

  get url(): string { return `http://127.0.0.1:${this.port}` }

  async restart(): Promise<void> {
    const config = ["--config", join(this.#dir, "loquat.json")]
    const child = spawn(program(), ["serve", "--demo", "--listen", `127.0.0.1:${this.port}`, "--data", join(this.#dir, "data"), ...config], {
      stdio: ["ignore", "pipe", "pipe"], env: { PATH: process.env.PATH, HOME: this.#dir },
    })
    this.#process = child
    child.stderr.on("data", (bytes: Buffer) => { this.log = (this.log + bytes.toString()).slice(-20_000) })
    let out = ""
    for await (const bytes of child.stdout) {
      out += (bytes as Buffer).toString()
      if (out.includes("listening on")) return
    }
    throw new Error(`the server did not start:\n${this.log}`)
  }

  async kill(signal: "SIGKILL" | "SIGTERM" = "SIGKILL"): Promise<void> {
    const child = this.#process
    this.#process = undefined
    if (!child || child.exitCode !== null || child.signalCode !== null) return
    const ended = once(child, "exit")
    child.kill(signal)
    await ended
  }

  pause(): void { this.#process?.kill("SIGSTOP") }
  resume(): void { this.#process?.kill("SIGCONT") }

  async close(): Promise<void> {
    this.resume()
    await this.kill()
    rmSync(this.#dir, { recursive: true, force: true })
  }
}

/** The overrides of a session whose model writes a text, `rate` chunks a second. */
export const scripted = (text: string, rate = 0): Record<string, unknown> => ({ overrides: { request_options: { loquat_script: { text, rate } } } })

export async function until(what: string, holds: () => unknown, ms = 20_000): Promise<void> {
  for (const end = Date.now() + ms; !(await holds());) {
    if (Date.now() > end) throw new Error(`not after ${ms / 1000} s: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}
