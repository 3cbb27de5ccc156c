package trace

import "go.opentelemetry.io/otel/attribute"

// The names of spans and attributes. Those with gen_ai are of OpenTelemetry's semantic conventions for generative AI,
// the others without a prefix of its general ones. Those with loquat are our own.
const (
	opRequest = "invoke_agent" // a request: the agent answers a message
	opModel   = "chat"         // a phase, or a relayed request: one answer of a model
	opTool    = "execute_tool"

	spanAttempt = "POST"   // one call of the backend over HTTP
	spanCommit  = "commit" // the wait for a transaction, and the transaction

	eventRetry = "loquat.retry" // the delay before the next attempt, or a recovery of a stream
)

const (
	keyOperation    = attribute.Key("gen_ai.operation.name")
	keyProvider     = attribute.Key("gen_ai.provider.name")
	keyModel        = attribute.Key("gen_ai.request.model")
	keyStream       = attribute.Key("gen_ai.request.stream")
	keyAgent        = attribute.Key("gen_ai.agent.id")
	keyConversation = attribute.Key("gen_ai.conversation.id") // the session
	keyFinish       = attribute.Key("gen_ai.response.finish_reasons")
	keyInputTokens  = attribute.Key("gen_ai.usage.input_tokens")
	keyOutputTokens = attribute.Key("gen_ai.usage.output_tokens")
	keyInput        = attribute.Key("gen_ai.input.messages")  // only with content
	keyOutput       = attribute.Key("gen_ai.output.messages") // only with content
	keyTool         = attribute.Key("gen_ai.tool.name")
	keyToolCall     = attribute.Key("gen_ai.tool.call.id")
	keyToolType     = attribute.Key("gen_ai.tool.type")
	keyArguments    = attribute.Key("gen_ai.tool.call.arguments") // only with content
	keyResult       = attribute.Key("gen_ai.tool.call.result")    // only with content

	keyError  = attribute.Key("error.type")
	keyMethod = attribute.Key("http.request.method")
	keyStatus = attribute.Key("http.response.status_code")
	keyResend = attribute.Key("http.request.resend_count")
	keyServer = attribute.Key("server.address")
	keyPort   = attribute.Key("server.port")

	keyRequest = attribute.Key("loquat.request.id")
	keyEnd     = attribute.Key("loquat.request.status")
	keyCause   = attribute.Key("loquat.retry.cause")
	keyAttempt = attribute.Key("loquat.retry.attempt")
	keyDelay   = attribute.Key("loquat.retry.delay_seconds")
	keyUpdates = attribute.Key("loquat.commit.updates") // transactions that were committed together
	keyEvents  = attribute.Key("loquat.commit.events")  // that they published
)

const toolFunction = "function"
