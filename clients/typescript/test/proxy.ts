// A TCP proxy that breaks connections in the ways that networks do.

import { once } from "node:events"
import { type AddressInfo, type Server, type Socket, connect, createServer } from "node:net"

export class Proxy {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #frozen = false
  #refuses = false
  /** The connections so far. */
  connections = 0

  /** The port of the server. */
  target = 0

  private constructor() {
    this.#server = createServer((client) => {
      this.connections++
      if (this.#refuses) return void client.destroy()
      const server = connect(this.target, "127.0.0.1")
      for (const [from, to] of [[client, server], [server, client]] as const) {
        this.#sockets.add(from)
        from.on("data", (bytes) => { if (!to.destroyed) to.write(bytes) })
        from.on("close", () => { this.#sockets.delete(from); to.destroy() })
        from.on("error", () => to.destroy())
        if (this.#frozen) from.pause()
      }
    })
  }

  static async start(): Promise<Proxy> {
    const proxy = new Proxy()
    proxy.#server.listen(0, "127.0.0.1")
    await once(proxy.#server, "listening")
    return proxy
  }

  get url(): string { return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}` }

  /** Ends all connections at once. */
  cut(): void { for (const s of this.#sockets) s.destroy() }

  /** Lets nothing through, while connections stay open. */
  freeze(frozen: boolean): void {
    this.#frozen = frozen
    for (const s of this.#sockets) frozen ? s.pause() : s.resume()
  }

  refuse(refuses: boolean): void {
    this.#refuses = refuses
    if (refuses) this.cut()
  }

  async close(): Promise<void> {
    this.cut()
    this.#server.close()
    await once(this.#server, "close")
  }
}
