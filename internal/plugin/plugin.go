// Package plugin defines the interfaces between the service and its plugins, and the
// registry of the loaded plugins. A plugin is a value with a name and a kind. For each of
// its capabilities it implements a small interface, which type assertions find.
//
// Plugins keep the order of the configuration, and each name is loaded once. The package
// does not manage processes: a plugin process implements the same interfaces.
package plugin

import (
	"context"
	"encoding/json"
	"io"
	"iter"

	"loquat"
	"loquat/internal/ui"
)

// Plugin is implemented by every plugin.
type Plugin interface {
	// Name returns the reference by which the configuration's `plugins` names it, or the
	// name in its manifest.
	Name() string
	// Kind returns one of the kinds below. The kind decides which schema
	// shows its elements and who owns its actions.
	Kind() string
}

// The kinds of plugins.
const (
	KindProvider    = "provider"
	KindExtension   = "provider_extension"
	KindFeature     = "feature"
	KindTool        = "tool"
	KindApplication = "application"
	KindUnknown     = "unknown" // the manifest of the plugin process names no kind
)

// Extension is a plugin that belongs to another plugin and is loaded with it.
type Extension interface {
	BroughtBy() string
}

// Process is a plugin that must be started. It starts in the background and offers
// nothing until it runs.
type Process interface {
	// Start starts the plugin and returns at once. The plugin runs until Stop.
	Start(ctx context.Context)
	// Stop ends the plugin with all its processes and returns when they have ended.
	Stop()
	// FirstStart returns a channel that is closed when the first start has ended: the
	// plugin runs, the start failed, or it took longer than a start may take.
	FirstStart() <-chan struct{}
	// AwaitRunning waits briefly for a plugin that restarts. An error names the plugin,
	// its state and the reason.
	AwaitRunning(ctx context.Context) error
}

// Reporter is a plugin that reports its state.
type Reporter interface {
	Status() Status
}

// Notifier is a plugin that reports when its elements, or its tools, may have changed.
type Notifier interface {
	// OnChange registers a function that is called after each change. changed must return at once.
	OnChange(changed func())
}

// The values of Status.State.
const (
	StateRunning  = "running"
	StateStarting = "starting" // the first start, or a restart after a failure
	StateFailed   = "failed"   // no more restarts follow
)

// Status is the state of a plugin.
type Status = loquat.PluginStatus

// StatusOf returns the status that a plugin reports. A plugin that is not a Reporter is running.
func StatusOf(p Plugin) Status {
	if v, ok := p.(Reporter); ok {
		return v.Status()
	}
	return Status{State: StateRunning}
}

// InFirstStart reports whether the first start of a plugin has not ended yet.
func InFirstStart(p Plugin) bool {
	v, ok := p.(Process)
	if !ok {
		return false
	}
	select {
	case <-v.FirstStart():
		return false
	default:
		return true
	}
}

// Provider is a plugin that runs models.
type Provider interface {
	// Selector returns the value of a provider config's `provider` that selects the plugin.
	Selector() string
	// Chat runs one phase, including retries and recoveries. The last chunk has a Reply,
	// or comes with an error. A cancelled ctx closes the connection at once. Chat must not
	// change the messages of req, which other calls share.
	Chat(ctx context.Context, req loquat.LLMRequest) iter.Seq2[loquat.Chunk, error]
	// Models returns the models that the backend lists. If the backend cannot list
	// models, Models returns none and no error.
	Models(ctx context.Context, config loquat.Object) ([]loquat.Model, error)
}

// Relayer is a Provider that passes requests of the chat-completions convention to its backend as
// they are, and the backend's answers back byte for byte.
type Relayer interface {
	// Relay makes one call, including retries. If it returns an error before the answer has begun,
	// nothing was passed on. An error status of the backend is a *loquat.BackendRefusal. A cancelled
	// ctx closes the connection at once.
	Relay(ctx context.Context, req loquat.RelayRequest) error
}

// RequestEditor is a feature that edits model calls before they are made. An error fails
// the request, because a call must not be sent without the edit.
type RequestEditor interface {
	EditRequest(ctx context.Context, req *loquat.LLMRequest) error
}

// ParamsEditor is a RequestEditor that may leave the messages of a call alone. Then the
// messages need not be read for it.
type ParamsEditor interface {
	// EditsMessages reports whether the plugin reads or edits messages.
	EditsMessages() bool
}

// EarlierReader is a Provider that reads the Earlier messages of a call itself.
type EarlierReader interface{ ReadsEarlier() }

// AttemptCounter is a Provider that reports each of its calls of the backend to Attempted. What it does not report
// was not called.
type AttemptCounter interface{ CountsAttempts() }

// Tagger is a plugin that reports capabilities of itself or of its backend, such as
// supports_reasoning.
type Tagger interface {
	// Tags returns the capabilities, without blocking. config is the effective config
	// without secrets. models are those that the backend lists, if it can.
	Tags(config loquat.Object, models []loquat.Model) []string
}

// Elements is a plugin that describes elements of a user interface.
type Elements interface {
	// UIElements returns the elements in the form of the specification's get_ui_elements.
	// The caller normalises them.
	UIElements(ctx context.Context, in ui.Input) ([]loquat.Object, error)
}

// Actor is a plugin that runs actions.
type Actor interface {
	// Actions returns the action_ids that the plugin runs.
	Actions() []string
	// Act runs an action. An error with a code reaches the client unchanged.
	Act(ctx context.Context, call ActionCall) (ActionResult, error)
}

// ActionCall describes one call of an action.
type ActionCall struct {
	ActionID  string
	SessionID string        // "" when the action is not about a session
	Params    loquat.Object // fixed_params applied, dialog inputs checked
	Config    loquat.Object // effective config of the session, secrets as {"set": true}; nil without a session
	State     loquat.Object // the state of an application plugin
	Host      Host
}

// ActionResult holds the result of an action.
type ActionResult struct {
	Result json.RawMessage // any JSON; nil is null
	State  loquat.Object   // the new state of the application plugin; nil keeps the old one
}

// Host gives an action access to the service.
type Host struct {
	Sessions Sessions
	Assets   Assets
}

// Sessions gives an action access to sessions.
type Sessions interface {
	// Messages returns a session's current messages.
	Messages(ctx context.Context, sessionID string) ([]loquat.Message, error)
	// Ask sends messages to the session's model and returns the reply. It stores nothing.
	Ask(ctx context.Context, sessionID string, messages []loquat.Message) (loquat.Reply, error)
	// RequireIdle returns a busy error while a request of the session runs or is queued.
	RequireIdle(ctx context.Context, sessionID string) error
	// Compact replaces messages with one system message, in one transaction. It returns a
	// conflict error if the messages, or the session's requests, changed since they were
	// read.
	Compact(ctx context.Context, sessionID string, c Compaction) error
}

// Compaction describes a range of messages to replace with one system message.
type Compaction struct {
	Start, End int              // indices, both included
	Was        []loquat.Message // the messages of the range when they were read
	Content    string           // the content of the new system message at Start
}

// Assets gives an action access to the images of a session.
type Assets interface {
	// StoreAsset stores an image. It returns an invalid error if the bytes are not an image of mediaType.
	StoreAsset(ctx context.Context, sessionID, name, mediaType string, content io.Reader) (loquat.Asset, error)
	// OpenAsset returns an image and a reader of its bytes, which the caller must close.
	OpenAsset(ctx context.Context, sessionID, assetID string) (loquat.Asset, io.ReadSeekCloser, error)
	// DeleteAsset deletes an image. It returns a conflict error while a message uses the image.
	DeleteAsset(ctx context.Context, sessionID, assetID string) error
}

// Toolbox is a plugin that offers tools.
type Toolbox interface {
	// Tools returns the tools that can be called now. A plugin that restarts keeps its
	// tools, and their calls wait briefly for the restart.
	Tools() []Tool
}

// Tool is a function that a model may call.
type Tool interface {
	// Name returns function.name of the tool's schema.
	Name() string
	// Schema returns the tool's schema in the chat-completions convention:
	// {type: "function", function: {name, description, parameters}}.
	Schema() json.RawMessage
	// Call runs the tool. An error does not fail the request: its text becomes the tool message.
	Call(ctx context.Context, call ToolCall) (ToolResult, error)
}

// ToolCall describes one call of a tool.
type ToolCall struct {
	ID        string
	Name      string
	Arguments json.RawMessage // a JSON object
	Config    loquat.Object   // effective config of the request
	Redacted  loquat.Object   // Config with secrets as {"set": true}
	SessionID string
	RequestID string

	// Progress reports a part of the output while the tool runs. It may be nil. After
	// Call has returned it does nothing.
	Progress func(part string, progress, total *float64)
}

// ToolResult holds the result of a tool call.
type ToolResult struct {
	Content  string
	Metadata loquat.Object // metadata for the tool message, such as display; may be nil
	Images   []Image       // stored as assets of the session and attached to the tool message
	IsError  bool
}

// Image holds an image that a tool returned.
type Image struct {
	MediaType string // as the tool reports it; the service detects the type from the bytes
	Data      []byte
}
