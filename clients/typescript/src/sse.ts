// Server-Sent Events: bytes to events.

export interface SseEvent {
  /** The name of the event, or "". */
  name: string
  data: string
  /** The last id that the stream has set, or "". */
  id: string
}

/** The stream is longer without an end of an event than the parser accepts. */
export class SseTooLarge extends Error {
  override readonly name = "SseTooLarge"
}

/**
 * A parser of `text/event-stream`. It takes bytes in pieces of any size and returns the events
 * that became complete. Unlike an EventSource, it also returns blocks that have only an id.
 */
export class SseParser {
  readonly #decoder = new TextDecoder() // it removes a byte order mark at the beginning
  readonly #limit: number
  #line: string[] = [] // the pieces of the line that is not complete
  #afterCR = false
  #size = 0
  #name = ""
  #data: string[] = []
  #id = ""
  #hasId = false

  /** `limit` is the largest size of an event, in UTF-16 code units. */
  constructor(limit = 64 << 20) {
    this.#limit = limit
  }

  push(bytes: Uint8Array): SseEvent[] {
    const events: SseEvent[] = []
    let text = this.#decoder.decode(bytes, { stream: true })
    if (text === "") return events
    if (this.#afterCR && text[0] === "\n") text = text.slice(1)
    this.#afterCR = text.endsWith("\r")
    const lines = text.split(/\r\n|\n|\r/)
    for (let i = 0; i < lines.length; i++) {
      this.#size += lines[i]!.length
      if (this.#size > this.#limit) throw new SseTooLarge(`an event of the stream is larger than ${this.#limit} characters`)
      this.#line.push(lines[i]!)
      if (i === lines.length - 1) break
      const line = this.#line.length === 1 ? this.#line[0]! : this.#line.join("")
      this.#line = []
      const event = this.#endLine(line)
      if (event) events.push(event)
    }
    return events
  }

  #endLine(line: string): SseEvent | undefined {
    if (line === "") return this.#dispatch()
    const colon = line.indexOf(":")
    if (colon === 0) { // a comment
      this.#size -= line.length
      return undefined
    }
    const field = colon < 0 ? line : line.slice(0, colon)
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1)
    switch (field) {
      case "event": this.#name = value; break
      case "data": this.#data.push(value); break
      case "id":
        if (!value.includes("\0")) {
          this.#id = value
          this.#hasId = true
        }
    }
    return undefined
  }

  #dispatch(): SseEvent | undefined {
    const event = { name: this.#name, data: this.#data.join("\n"), id: this.#id }
    const given = this.#data.length > 0 || this.#hasId
    this.#name = ""
    this.#data = []
    this.#hasId = false
    this.#size = 0
    return given ? event : undefined
  }
}
