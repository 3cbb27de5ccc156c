// Runs the responses and conversations of OpenAI's SDK against a server. Prints the cases that failed.
import OpenAI from 'openai'
import { ResponsesWS } from 'openai/resources/responses/ws'
import assert from 'node:assert/strict'

const [base] = process.argv.slice(2)
const openai = new OpenAI({ baseURL: base + '/v1', apiKey: 'full-token', maxRetries: 0 })
const weather = { type: 'function', name: 'weather', parameters: { type: 'object', properties: { city: { type: 'string' } } }, strict: false }
const clock = { type: 'function', name: 'clock', parameters: { type: 'object', properties: {} }, strict: false }
const gone = (call) => assert.rejects(call, (e) => e instanceof OpenAI.NotFoundError)

const cases = {
  'an answer': async () => {
    const r = await openai.responses.create({ model: 'poet', input: 'Hello', metadata: { a: 'b' } })
    assert.equal(r.output_text, 'From the options of the agent.')
    assert.deepEqual(r.metadata, { a: 'b' })
    assert.equal((await openai.responses.retrieve(r.id)).output_text, r.output_text)
    assert.ok(r.usage.total_tokens > 0)
  },
  'a stream': async () => {
    let text = ''
    const stream = await openai.responses.create({ model: 'poet', input: 'Hello', stream: true })
    for await (const e of stream) if (e.type === 'response.output_text.delta') text += e.delta
    assert.equal(text, 'From the options of the agent.')
  },
  'the helper of streams': async () => {
    const r = await openai.responses.stream({ model: 'poet', input: 'Hello' }).finalResponse()
    assert.equal(r.output_text, 'From the options of the agent.')
  },
  'functions': async () => {
    const first = await openai.responses.stream({ model: 'two-tools', input: 'x', tools: [weather, clock] }).finalResponse()
    const calls = first.output.filter((item) => item.type === 'function_call')
    assert.deepEqual(calls.map((c) => [c.name, JSON.parse(c.arguments)]), [['weather', { city: 'Oslo' }], ['clock', {}]])
    const input = calls.map((c) => ({ type: 'function_call_output', call_id: c.call_id, output: 'done' }))
    const second = await openai.responses.create({ model: 'two-tools', previous_response_id: first.id, input, tools: [weather, clock] })
    assert.match(second.output_text, /tools have answered/)
  },
  'a response in the background': async () => {
    let r = await openai.responses.create({ model: 'poet', input: 'x', background: true })
    assert.equal(r.status, 'in_progress')
    while (r.status === 'in_progress') {
      await new Promise((done) => setTimeout(done, 50))
      r = await openai.responses.retrieve(r.id)
    }
    assert.equal(r.status, 'completed')
  },
  'a stream that resumes': async () => {
    const stream = await openai.responses.create({ model: 'poet', input: 'x', stream: true, background: true })
    let last, id
    for await (const e of stream) {
      last = e.sequence_number
      id ??= e.response?.id
      if (e.type === 'response.output_text.delta') break
    }
    const types = []
    for await (const e of await openai.responses.retrieve(id, { stream: true, starting_after: last })) {
      assert.ok(e.sequence_number > last)
      types.push(e.type)
    }
    assert.equal(types.at(-1), 'response.completed')
    assert.ok(!types.includes('response.created'))
  },
  'a deletion': async () => {
    const r = await openai.responses.create({ model: 'poet', input: 'x' })
    await openai.responses.delete(r.id)
    await gone(() => openai.responses.retrieve(r.id))
  },
  'nothing that is stored': async () => {
    const r = await openai.responses.create({ model: 'poet', input: 'x', store: false })
    assert.equal(r.output_text, 'From the options of the agent.')
    await gone(() => openai.responses.retrieve(r.id))
  },
  'a cancel after the end': async () => {
    const r = await openai.responses.create({ model: 'poet', input: 'x' })
    assert.equal((await openai.responses.cancel(r.id)).status, 'completed')
  },
  'items of input': async () => {
    const r = await openai.responses.create({ model: 'poet', input: [{ role: 'system', content: 'a' }, { role: 'user', content: 'b' }] })
    const texts = []
    for await (const item of openai.responses.inputItems.list(r.id, { order: 'asc', limit: 1 })) texts.push(item.content[0].text)
    assert.deepEqual(texts, ['a', 'b'])
  },
  'a hosted tool': async () => {
    await assert.rejects(() => openai.responses.create({ model: 'poet', input: 'x', tools: [{ type: 'web_search' }] }), (e) => e instanceof OpenAI.BadRequestError && e.param === 'tools[0].type')
  },
  'a conversation': async () => {
    const c = await openai.conversations.create({ metadata: { a: '1' }, items: [{ type: 'message', role: 'user', content: 'one' }, { type: 'message', role: 'assistant', content: 'two' }] })
    assert.deepEqual((await openai.conversations.update(c.id, { metadata: { b: '2' } })).metadata, { b: '2' })
    const r = await openai.responses.create({ model: 'poet', conversation: c.id, input: 'three' })
    await openai.conversations.items.create(c.id, { items: [{ type: 'message', role: 'user', content: 'four' }] })
    const list = []
    for await (const item of openai.conversations.items.list(c.id, { order: 'asc', limit: 2 })) list.push(item)
    assert.deepEqual(list.map((i) => i.content[0].text), ['one', 'two', 'three', r.output_text, 'four'])
    assert.equal(list[3].id, r.output[0].id)
    assert.deepEqual((await openai.conversations.items.retrieve(list[3].id, { conversation_id: c.id })).content, list[3].content)
    await openai.conversations.items.delete(list[4].id, { conversation_id: c.id })
    await gone(() => openai.conversations.items.retrieve(list[4].id, { conversation_id: c.id }))
    await openai.conversations.delete(c.id)
    await gone(() => openai.conversations.retrieve(c.id))
  },
  'a compaction': async () => {
    const first = await openai.responses.create({ model: 'poet', input: 'one' })
    const second = await openai.responses.create({ model: 'poet', previous_response_id: first.id, input: 'two' })
    await openai.responses.create({ model: 'poet', previous_response_id: second.id, input: 'after' })
    const c = await openai.responses.compact({ model: 'poet', previous_response_id: second.id, input: 'three' })
    assert.equal(c.object, 'response.compaction')
    assert.deepEqual(c.output.map((item) => item.content?.[0].text ?? item.type), ['one', 'two', 'three', 'compaction'])
    assert.ok(c.usage.total_tokens > 0)
    const next = await openai.responses.create({ model: 'poet', input: [...c.output, { role: 'user', content: 'four' }] })
    const items = await openai.responses.inputItems.list(next.id, { order: 'asc' })
    assert.deepEqual(items.data.map((item) => [item.role, item.content[0].text]), [
      ['user', 'one'], ['user', 'two'], ['user', 'three'], ['system', 'From the options of the agent.'], ['user', 'four'],
    ])
    const refused = (body, param) => assert.rejects(() => openai.responses.compact({ model: 'poet', ...body }), (e) => e instanceof OpenAI.BadRequestError && e.param === param)
    await refused({}, 'input')
    await refused({ previous_response_id: 'resp_none' }, 'previous_response_id')
    await refused({ input: [{ type: 'compaction', encrypted_content: 'of another service' }] }, 'input[0].encrypted_content')
  },
  'a WebSocket': async () => {
    const ws = new ResponsesWS(openai)
    let text = '', first, second
    ws.on('error', () => {}) // the loop gets them, too
    ws.send({ type: 'response.create', model: 'poet', input: 'one' })
    for await (const m of ws) {
      if (m.type === 'error') {
        assert.match(JSON.stringify(m.error.error), /"previous_response_not_found"/)
        break
      }
      if (m.type !== 'message') continue
      const e = m.message
      if (e.type === 'response.output_text.delta' && !first) text += e.delta
      if (e.type === 'response.completed' && first) {
        second = e.response
        ws.send({ type: 'response.create', model: 'poet', input: 'x', previous_response_id: 'resp_none' })
      } else if (e.type === 'response.completed') {
        first = e.response
        ws.send({ type: 'response.create', model: 'poet', input: 'two', previous_response_id: first.id })
      }
    }
    ws.close()
    assert.equal(text, 'From the options of the agent.')
    assert.equal(second.previous_response_id, first.id)
  },
  'an item by its id': async () => {
    const r = await openai.responses.create({ model: 'poet', input: 'x' })
    const again = await openai.responses.create({ model: 'poet', input: [{ type: 'item_reference', id: r.output[0].id }, { role: 'user', content: 'y' }] })
    const items = await openai.responses.inputItems.list(again.id, { order: 'asc' })
    assert.equal(items.data[0].content[0].text, r.output_text)
  },
}

const failed = []
for (const [name, check] of Object.entries(cases)) {
  try {
    await check()
  } catch (e) {
    failed.push(`${name}: ${e.stack}`)
  }
}
console.log(JSON.stringify({ cases: Object.keys(cases).length, failed }))
