// Lets the AI SDK and LangChain run an agent with two tools through a server. Prints what each called
// and answered.
import { createOpenAI } from '@ai-sdk/openai'
import { generateText, streamText, tool, stepCountIs } from 'ai'
import { ChatOpenAI } from '@langchain/openai'
import { tool as langTool } from '@langchain/core/tools'
import { HumanMessage } from '@langchain/core/messages'
import { z } from 'zod'

const [base] = process.argv.slice(2)
const out = {}

const openai = createOpenAI({ baseURL: base + '/v1', apiKey: 'full-token' })
const runs = {
  'ai generate': [generateText, openai.chat('two-tools')],
  'ai stream': [streamText, openai.chat('two-tools')],
  'ai responses generate': [generateText, openai('two-tools')],
  'ai responses stream': [streamText, openai('two-tools')],
}
for (const [name, [run, model]] of Object.entries(runs)) {
  const called = []
  const tools = {
    weather: tool({ inputSchema: z.object({ city: z.string() }), execute: async (args) => { called.push(['weather', args]); return '21 degrees' } }),
    clock: tool({ inputSchema: z.object({}), execute: async (args) => { called.push(['clock', args]); return 'noon' } }),
  }
  const result = await run({ model, prompt: 'What is the weather?', tools, stopWhen: stepCountIs(4) })
  out[name] = { called, text: await result.text }
}

{
  const called = []
  const schema = { weather: z.object({ city: z.string() }), clock: z.object({}) }
  const tools = Object.entries(schema).map(([name, schema]) => langTool(async (args) => { called.push([name, args]); return 'done' }, { name, description: name, schema }))
  const model = new ChatOpenAI({ model: 'two-tools', apiKey: 'full-token', configuration: { baseURL: base + '/v1' }, maxRetries: 0 }).bindTools(tools)
  const messages = [new HumanMessage('What is the weather?')]
  for (let step = 0; step < 4; step++) {
    let reply
    for await (const chunk of await model.stream(messages)) reply = reply ? reply.concat(chunk) : chunk
    messages.push(reply)
    if (!reply.tool_calls?.length) break
    for (const call of reply.tool_calls) messages.push(await tools.find((t) => t.name === call.name).invoke(call))
  }
  out.langchain = { called, text: messages.at(-1).content }
}
console.log(JSON.stringify(out))
