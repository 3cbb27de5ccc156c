// Compares what OpenAI's SDK gives for recordings through a server and directly from the backend that
// replays them. The recordings' names are on the standard input, one a line. Prints a JSON object.
import OpenAI from 'openai'
import { readFileSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'

const [base, backend] = process.argv.slice(2)
const relay = new OpenAI({ baseURL: base + '/v1', apiKey: 'full-token', maxRetries: 0 })
const direct = new OpenAI({ baseURL: backend + '/v1', apiKey: 'x', maxRetries: 0 })

// All that a program sees: the values, the class of the error and its fields.
async function outcome(client, model, framing, stream) {
  const values = []
  try {
    const body = { model, stream, messages: [{ role: 'user', content: 'go' }], ...(framing && { loquat_script: { reframe: [framing] } }) }
    const answer = await client.chat.completions.create(body)
    if (!stream) values.push({ ...answer, _request_id: undefined })
    else for await (const chunk of answer) values.push(chunk)
  } catch (e) {
    return { values, error: { class: e.constructor.name, message: e.message, status: e.status, error: e.error, code: e.code, param: e.param, type: e.type } }
  }
  return { values }
}

const out = { compared: 0, empty: 0, differ: [] }
for (const name of readFileSync(0, 'utf8').trim().split('\n')) {
  for (const framing of ['', 'crlf', 'nospace', 'bytes', 'comments', 'nonewline']) {
    const stream = name.endsWith('.sse')
    const [got, want] = await Promise.all([outcome(relay, 'main/' + name, framing, stream), outcome(direct, name, framing, stream)])
    out.compared++
    if (!want.values.length && !want.error) out.empty++
    if (!isDeepStrictEqual(got, want)) out.differ.push(`${name} ${framing}: ${JSON.stringify(got).slice(-300)} and directly ${JSON.stringify(want).slice(-300)}`)
  }
}
console.log(JSON.stringify(out))
