// Runs OpenAI's SDK against a server, and the same calls against the backend itself. Prints a JSON list
// of the cases that failed.
import OpenAI from 'openai'
import { zodResponseFormat, zodFunction } from 'openai/helpers/zod'
import { z } from 'zod'
import assert from 'node:assert/strict'

const [base, backend] = process.argv.slice(2)
const relay = new OpenAI({ baseURL: base + '/v1', apiKey: 'full-token', maxRetries: 0 })
const direct = new OpenAI({ baseURL: backend + '/v1', apiKey: 'x', maxRetries: 0 })
const user = (content) => [{ role: 'user', content }]
const script = (s, more = {}) => ({ model: 'demo', messages: user('hi'), loquat_script: s, ...more })

// The ids and times of two calls differ.
const same = (v) => JSON.parse(JSON.stringify(v), (k, x) => (['created', '_request_id'].includes(k) || (k === 'id' && /^chatcmpl|^call_/.test(x)) ? 0 : x))
const collect = async (client, body) => {
  const out = []
  for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) out.push(same(chunk))
  return out
}
const asDirect = (body) => async () => {
  assert.deepEqual(same(await relay.chat.completions.create(body)), same(await direct.chat.completions.create(body)))
  assert.deepEqual(await collect(relay, body), await collect(direct, body))
}
const fails = (kind, status, call, check = () => {}) => async () => {
  await assert.rejects(call, (e) => {
    assert.ok(e instanceof kind, `${e.constructor.name}: ${e.message}`)
    assert.equal(e.status, status)
    check(e)
    return true
  })
}
const text = (r) => r.choices[0].message.content
const weather = { type: 'function', function: { name: 'weather', parameters: { type: 'object', properties: { city: { type: 'string' } } } } }
const clock = { type: 'function', function: { name: 'clock', parameters: { type: 'object', properties: {} } } }
const completion = (choices, more = {}) => ({ status: 200, body: { id: 'chatcmpl-1', object: 'chat.completion', created: 1, model: 'm', choices, ...more } })

const cases = {
  'an answer': asDirect({ model: 'echo', messages: user('Hello') }),
  'a long answer': asDirect({ model: 'lorem', messages: user('x') }),
  'reasoning': asDirect(script({ reasoning: 'Hm, so.', text: 'Yes.' })),
  'the other field of reasoning': asDirect(script({ reasoning: 'Hm.', reasoning_field: 'reasoning', text: 'Yes.' })),
  'a tool call': asDirect(script({ tool_calls: [{ name: 'weather', arguments: { city: 'Oslo' } }] }, { tools: [weather] })),
  'parallel tool calls': asDirect(script({ tool_calls: [{ name: 'weather', arguments: { city: 'Oslo' } }, { name: 'clock', arguments: {} }] }, { tools: [weather, clock] })),
  'a forced tool': asDirect({ model: 'demo-tools', messages: user('x'), tools: [weather, clock], tool_choice: { type: 'function', function: { name: 'clock' } } }),
  'arguments that are not JSON': asDirect(script({ tool_calls: [{ name: 'weather', arguments: '{"city": ' }] }, { tools: [weather] })),
  'results of tools': asDirect({ model: 'demo', messages: [...user('x'), { role: 'assistant', content: null, tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '{}' } }] }, { role: 'tool', tool_call_id: 'a', content: '3' }] }),
  'images': asDirect({ model: 'echo', messages: [{ role: 'user', content: [{ type: 'text', text: 'What is it?' }, { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=', detail: 'low' } }] }] }),
  'a refusal': asDirect(script({ text: '', refusal: 'I will not.' })),
  'a finish_reason': asDirect(script({ text: 'cut', finish_reason: 'length' })),
  'a custom finish_reason': asDirect(script({ text: 'cut', finish_reason: 'insufficient_system_resource' })),
  'usage of the backend': asDirect(script({ text: 'a', usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3, prompt_tokens_details: { cached_tokens: 1 }, cost: 0.5 } })),
  'usage in a stream': asDirect({ model: 'echo', messages: user('x'), stream_options: { include_usage: true } }),
  'no usage': asDirect(script({ text: 'a', no_usage: true })),
  'fields that nobody knows': asDirect({ model: 'echo', messages: user('x'), reasoning_effort: 'low', seed: 7, x_unknown: { a: [1.50, null] }, metadata: { a: 'b' } }),
  'user, n and sampling': asDirect({ model: 'echo', messages: user('x'), user: 'u-1', n: 1, temperature: 0, top_p: 0.5, stop: ['END'], max_completion_tokens: 5 }),
  'unicode': asDirect(script({ text: 'Grüße, 世界, 👩‍👩‍👧, \u2028, "quoted" \\ back' })),
  'bytes at a time': asDirect(script({ text: 'Grüße, 世界', reframe: ['bytes'] })),
  'CRLF': asDirect(script({ text: 'One two three', reframe: ['crlf'] })),
  'comments': asDirect(script({ text: 'One two three', comment_every: 1, reframe: ['comments'] })),
  'no [DONE]': asDirect(script({ text: 'One two', no_done: true })),
  'a compressed answer': asDirect(script({ text: 'One two', content_encoding: 'gzip' })),
  'several choices': asDirect(script(completion([0, 1].map((index) => ({ index, finish_reason: 'stop', message: { role: 'assistant', content: 'c' + index, refusal: null } }))), { n: 2, stream: false })),
  'logprobs': asDirect(script(completion([{ index: 0, finish_reason: 'stop', logprobs: { content: [{ token: 'a', logprob: -0.25, bytes: [97], top_logprobs: [] }], refusal: null }, message: { role: 'assistant', content: 'a' } }]), { logprobs: true, stream: false })),
  'audio': asDirect(script(completion([{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: null, audio: { id: 'audio_1', data: 'AAAA', expires_at: 9, transcript: 'a' } } }]), { modalities: ['audio'], stream: false })),
  'annotations and more': asDirect(script(completion([{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'a', annotations: [{ type: 'url_citation', url_citation: { url: 'https://a.example' } }], provider_metadata: { a: 1 } } }], { service_tier: 'default', system_fingerprint: 'fp', citations: ['https://a.example'] }))),

  'withResponse': async () => {
    const { data, response, request_id } = await relay.chat.completions.create({ model: 'echo', messages: user('x') }).withResponse()
    assert.equal(text(data), 'x')
    assert.equal(response.status, 200)
    assert.match(request_id, /^req_/)
    assert.equal(data._request_id, request_id)
  },
  'stream helper': async () => {
    const stream = relay.chat.completions.stream({ model: 'echo', messages: user('one two three') })
    let seen = ''
    stream.on('content', (delta) => { seen += delta })
    assert.equal(text(await stream.finalChatCompletion()), 'one two three')
    assert.equal(seen, 'one two three')
  },
  'stream helper with tools': async () => {
    const stream = relay.chat.completions.stream(script({ tool_calls: [{ name: 'weather', arguments: { city: 'Oslo' } }] }, { tools: [weather] }))
    const done = []
    stream.on('tool_calls.function.arguments.done', (e) => done.push(e.name + e.arguments))
    const final = await stream.finalChatCompletion()
    assert.equal(final.choices[0].finish_reason, 'tool_calls')
    assert.deepEqual(done, ['weather{"city":"Oslo"}'])
  },
  'runTools': async () => {
    const called = []
    const tool = (name) => ({ type: 'function', function: { name, parse: JSON.parse, parameters: { type: 'object', properties: {} }, function: (args) => { called.push([name, args]); return '21 degrees' } } })
    const runner = relay.chat.completions.runTools(script({ tool_calls: [{ name: 'weather', arguments: { city: 'Oslo' } }, { name: 'clock', arguments: {} }] }, { tools: [tool('weather'), tool('clock')] }))
    assert.match(await runner.finalContent(), /The tools have answered/)
    assert.deepEqual(called, [['weather', { city: 'Oslo' }], ['clock', {}]])
  },
  'runTools, streamed': async () => {
    let called = 0
    const tool = { type: 'function', function: { name: 'weather', parse: JSON.parse, parameters: { type: 'object', properties: {} }, function: () => { called++; return '21' } } }
    const runner = relay.chat.completions.runTools({ ...script({ tool_calls: [{ name: 'weather', arguments: {} }] }, { tools: [tool] }), stream: true })
    assert.match(await runner.finalContent(), /The tools have answered/)
    assert.equal(called, 1)
  },
  'structured output': async () => {
    const Answer = z.object({ steps: z.array(z.string()), total: z.number() })
    const got = await relay.chat.completions.parse(script({ text: '{"steps":["a","b"],"total":3}' }, { response_format: zodResponseFormat(Answer, 'answer') }))
    assert.deepEqual(got.choices[0].message.parsed, { steps: ['a', 'b'], total: 3 })
  },
  'structured output, streamed': async () => {
    const Answer = z.object({ total: z.number() })
    const stream = relay.chat.completions.stream(script({ text: '{"total":3}' }, { response_format: zodResponseFormat(Answer, 'answer') }))
    assert.deepEqual((await stream.finalChatCompletion()).choices[0].message.parsed, { total: 3 })
  },
  'parsed tool arguments': async () => {
    const got = await relay.chat.completions.parse(script({ tool_calls: [{ name: 'weather', arguments: { city: 'Oslo' } }] }, { tools: [zodFunction({ name: 'weather', parameters: z.object({ city: z.string() }) })] }))
    assert.deepEqual(got.choices[0].message.tool_calls[0].function.parsed_arguments, { city: 'Oslo' })
  },
  'tee and toReadableStream': async () => {
    const [a, b] = (await relay.chat.completions.create({ model: 'echo', messages: user('one two'), stream: true })).tee()
    const read = async (s) => { let out = ''; for await (const c of s) out += c.choices[0]?.delta?.content ?? ''; return out }
    assert.deepEqual(await Promise.all([read(a), read(b)]), ['one two', 'one two'])
  },

  'an agent, with its options': async () => {
    const got = await relay.chat.completions.create({ model: 'poet', messages: user('x') })
    assert.equal(text(got), 'From the options of the agent.')
    const own = await relay.chat.completions.create({ model: 'poet', messages: user('x'), loquat_script: { text: 'mine' } })
    assert.equal(text(own), 'mine')
  },
  'provider_id/model': async () => assert.equal((await relay.chat.completions.create({ model: 'main/echo', messages: user('x') })).model, 'echo'),
  'a model with slashes': async () => assert.equal((await relay.chat.completions.create({ model: 'main/org/name:7b', messages: user('x') })).model, 'org/name:7b'),
  'a plain model with slashes': async () => assert.equal((await relay.chat.completions.create({ model: 'org/name', messages: user('x') })).model, 'org/name'),
  'the other provider': async () => assert.equal(text(await relay.chat.completions.create({ model: 'retrying/echo', messages: user('two') })), 'two'),
  'list of models': async () => {
    const all = []
    for await (const m of relay.models.list()) all.push(m)
    const owner = Object.fromEntries(all.map((m) => [m.id, m.owned_by]))
    assert.equal(owner.default, 'loquat')
    assert.equal(owner.poet, 'loquat')
    assert.equal(owner.echo, 'main')
    assert.equal(owner['main/echo'], 'main')
    assert.equal(owner['retrying/echo'], 'retrying')
    assert.ok(all.every((m) => m.object === 'model' && Number.isInteger(m.created)))
    assert.equal(new Set(all.map((m) => m.id)).size, all.length)
  },
  'a model': async () => assert.equal((await relay.models.retrieve('main/echo')).id, 'main/echo'),
  'a program without settings of its own, and a model that an agent replaces': async () => {
    Object.assign(process.env, { OPENAI_BASE_URL: base + '/v1', OPENAI_API_KEY: 'full-token' })
    const got = await new OpenAI().chat.completions.create({ model: 'gpt-4.1-mini', messages: user('Hello') })
    assert.equal(text(got), 'Hello')
  },
  'an agent as a model': async () => assert.equal((await relay.models.retrieve('poet')).owned_by, 'loquat'),

  'no such model in the list': fails(OpenAI.NotFoundError, 404, () => relay.models.retrieve('none')),
  'no such route': fails(OpenAI.NotFoundError, 404, () => relay.embeddings.create({ model: 'm', input: 'x' })),
  'wrong token': fails(OpenAI.AuthenticationError, 401, () => new OpenAI({ baseURL: base + '/v1', apiKey: 'wrong', maxRetries: 0 }).models.list(), (e) => assert.equal(e.code, 'invalid_api_key')),
  'a token that only reads': fails(OpenAI.PermissionDeniedError, 403, () => new OpenAI({ baseURL: base + '/v1', apiKey: 'read-token', maxRetries: 0 }).chat.completions.create({ model: 'echo', messages: user('x') })),
  'a token that reads lists models': async () => assert.ok((await new OpenAI({ baseURL: base + '/v1', apiKey: 'read-token' }).models.list()).data.length > 3),
  'no model': fails(OpenAI.BadRequestError, 400, () => relay.chat.completions.create({ messages: user('x') }), (e) => {
    assert.equal(e.param, 'model')
    assert.equal(e.type, 'invalid_request_error')
  }),
  'wrong types': fails(OpenAI.BadRequestError, 400, () => relay.chat.completions.create({ model: 'echo', stream: 'yes', messages: user('x') }), (e) => assert.equal(e.param, 'stream')),
  'what the backend refuses': fails(OpenAI.BadRequestError, 400, () => relay.chat.completions.create({ model: 'echo', messages: 'x' }), (e) => assert.ok(e.message)),
  'a status of the backend': async () => {
    for (const [status, kind] of [[400, 'BadRequestError'], [401, 'AuthenticationError'], [403, 'PermissionDeniedError'], [404, 'NotFoundError'], [409, 'ConflictError'], [422, 'UnprocessableEntityError'], [429, 'RateLimitError'], [500, 'InternalServerError'], [503, 'InternalServerError']]) {
      for (const stream of [false, true]) {
        const body = script({ status, body: { error: { message: 'said ' + status, type: 't', param: 'p', code: 'c' + status } } }, { stream })
        await fails(OpenAI[kind], status, () => relay.chat.completions.create(body), (e) => {
          assert.deepEqual([e.code, e.type, e.param], ['c' + status, 't', 'p'])
          assert.match(e.message, new RegExp('said ' + status))
        })()
      }
    }
  },
  'an error page of the backend': fails(OpenAI.InternalServerError, 502, () => relay.chat.completions.create(script({ status: 502, body: '<html>Bad gateway</html>' })), (e) => {
    assert.equal(e.type, 'server_error')
    assert.match(e.message, /Bad gateway/)
  }),
  'no connection to the backend': fails(OpenAI.InternalServerError, 502, () => relay.chat.completions.create(script({ drop_after: -1 }))),
  'a timeout of the backend': fails(OpenAI.InternalServerError, 502, () => relay.chat.completions.create({ ...script({ delay_ms: 20000 }), model: 'hasty/demo' }), (e) => assert.match(e.message, /in time/)),
  'Retry-After': fails(OpenAI.RateLimitError, 429, () => relay.chat.completions.create(script({ status: 429, retry_after: 7, body: { error: { message: 'slow' } } })), (e) => assert.equal(e.headers.get('retry-after'), '7')),
  'retries of the server': async () => {
    const got = await relay.chat.completions.create({ ...script({ id: 'r1-' + process.pid, text: 'at last', attempts: [{ status: 503 }, { status: 429 }, {}] }), model: 'retrying/demo' })
    assert.equal(text(got), 'at last')
  },
  'retries of the SDK': async () => {
    const eager = new OpenAI({ baseURL: base + '/v1', apiKey: 'full-token', maxRetries: 2 })
    assert.equal(text(await eager.chat.completions.create(script({ id: 'r2-' + process.pid, text: 'at last', attempts: [{ status: 503 }, {}] }))), 'at last')
  },
  'recovery before any content': async () => {
    const body = { ...script({ id: 'r3-' + process.pid, text: 'One two', attempts: [{ drop_after: 0 }, {}] }), model: 'retrying/demo' }
    assert.equal((await collect(relay, body)).map((c) => c.choices[0]?.delta?.content ?? '').join(''), 'One two')
  },
  'a stream that breaks': async () => {
    for (const how of ['reset', 'short', 'clean']) {
      const seen = []
      await assert.rejects(async () => {
        for await (const c of await relay.chat.completions.create({ ...script({ text: 'One two three', drop_after: 2, drop: how }), stream: true })) seen.push(c.choices[0].delta.content)
      }, (e) => {
        assert.ok(e instanceof OpenAI.APIError, `${how}: ${e}`)
        assert.match(e.message, /middle of the stream/)
        assert.equal(e.code, 'backend_error')
        return true
      })
      assert.deepEqual(seen, ['One ', 'two '])
    }
  },
  'an error in the stream': async () => {
    const said = async (client) => { try { await collect(client, script({ text: 'One two three', error_after: 1 })) } catch (e) { return [e.message, e.code, e.type] } }
    const got = await said(relay)
    assert.ok(got)
    assert.deepEqual(got, await said(direct))
  },
  'an abort': async () => {
    const id = 'abort-' + process.pid
    const stream = await relay.chat.completions.create({ ...script({ id, text: 'One two three', stall_after: 1 }), stream: true })
    for await (const _ of stream) stream.controller.abort()
    await ended(id)
  },
  'an abort before the answer': async () => {
    const id = 'abort2-' + process.pid
    const stop = new AbortController()
    setTimeout(() => stop.abort(), 100)
    await assert.rejects(() => relay.chat.completions.create(script({ id, delay_ms: 60000 }), { signal: stop.signal }), OpenAI.APIUserAbortError)
    await ended(id)
  },
  'a timeout of the SDK': async () => {
    await assert.rejects(() => relay.chat.completions.create(script({ id: 'late-' + process.pid, delay_ms: 60000 }), { timeout: 100 }), OpenAI.APIConnectionTimeoutError)
    await ended('late-' + process.pid)
  },
  'twenty at once': async () => {
    const all = await Promise.all(Array.from({ length: 20 }, (_, i) => collect(relay, { model: 'echo', messages: user('caller ' + i) })))
    all.forEach((chunks, i) => assert.equal(chunks.map((c) => c.choices[0]?.delta?.content ?? '').join(''), 'caller ' + i))
  },
}

// ended waits until the backend has seen that its caller went away.
async function ended(key) {
  for (let i = 0; i < 100; i++) {
    const { requests } = await (await fetch(backend + '/_requests')).json()
    if (requests.some((r) => r.key === key && r.end === 'client_closed')) return
    await new Promise((r) => setTimeout(r, 20))
  }
  assert.fail('the backend was not told')
}

const failed = []
for (const [name, run] of Object.entries(cases)) {
  try {
    await run()
  } catch (e) {
    failed.push(`${name}: ${e.stack ?? e}`)
  }
}
console.log(JSON.stringify({ cases: Object.keys(cases).length, failed }))
