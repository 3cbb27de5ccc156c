// Package plugin holds the contracts between the service and what plugs into it,
// and the registry of what is loaded. A plugin is a value with a name and a kind; each
// of its powers is an interface of one or two methods, found by assertion.
//
// It promises that the order of plugins is the order of the configuration, and that
// a name is loaded once. It knows nothing of processes: a plugin that runs as one
// stands behind the same contracts.
package plugin

import (
	"context"
	"encoding/json"
	"io"
	"iter"

	"loquat"
	"loquat/internal/ui"
)

// Plugin is what every plugin is.
type Plugin interface {
	// Name is the reference by which the configuration's `plugins` names it, or the
	// name in its manifest.
	Name() string
	// Kind is one of the kinds below: what the plugin is for. It decides which schema
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
	KindUnknown     = "unknown" // of a process whose manifest does not tell
)

// Extension is a plugin that comes with another one: it is loaded when that one is.
type Extension interface {
	BroughtBy() string
}

// Process is a plugin that has to be started. It comes up in the background, and offers
// nothing before that.
type Process interface {
	// Start returns at once. The plugin runs until Stop.
	Start(ctx context.Context)
	// Stop ends all of it and returns when nothing of it is left.
	Stop()
	// FirstStart is closed when the first start has come to an end: the plugin runs,
	// the start has failed, or it took longer than a start may take.
	FirstStart() <-chan struct{}
	// AwaitRunning waits a moment for a plugin that restarts. An error names the plugin,
	// its state and the reason.
	AwaitRunning(ctx context.Context) error
}

// Reporter is a plugin that has something to say about how it is.
type Reporter interface {
	Status() Status
}

// Notifier is a plugin that reports when its elements, or its tools, may have changed.
type Notifier interface {
	// OnChange registers a function that is called after each change. It returns at once.
	OnChange(changed func())
}

// The values of Status.State.
const (
	StateRunning  = "running"
	StateStarting = "starting" // for the first time, or again after it failed
	StateFailed   = "failed"   // given up
)

// Status is the state of a plugin.
type Status = loquat.PluginStatus

// StatusOf returns what a plugin reports. One that reports nothing is running.
func StatusOf(p Plugin) Status {
	if v, ok := p.(Reporter); ok {
		return v.Status()
	}
	return Status{State: StateRunning}
}

// InFirstStart reports whether the first start of a plugin has not come to an end.
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
	// Selector is the value of a provider config's `provider` that chooses it.
	Selector() string
	// Chat runs one phase. It ends with a chunk whose Reply is set, or an error;
	// waits and recoveries are its own. A cancelled ctx closes its connection at once.
	Chat(ctx context.Context, req loquat.LLMRequest) iter.Seq2[loquat.Chunk, error]
	// Models asks the backend what it offers; none, without an error, when the
	// backend cannot say.
	Models(ctx context.Context, config loquat.Object) ([]loquat.Model, error)
}

// RequestEditor is a feature that edits the calls of models before they are made. An
// error fails the request: what was to be edited must not go out as it is.
type RequestEditor interface {
	EditRequest(ctx context.Context, req *loquat.LLMRequest) error
}

// Tagger is a plugin that names what it, or its backend, can do, like
// supports_reasoning.
type Tagger interface {
	// Tags is given the effective config, secrets left out, and the models that the
	// backend lists, none when it cannot say. It returns at once.
	Tags(config loquat.Object, models []loquat.Model) []string
}

// Elements is a plugin that describes elements of a user interface.
type Elements interface {
	// UIElements returns them as the specification's get_ui_elements does. They are
	// normalised by who asks.
	UIElements(ctx context.Context, in ui.Input) ([]loquat.Object, error)
}

// Actor is a plugin that runs actions.
type Actor interface {
	// Actions are the action_ids that it runs.
	Actions() []string
	// Act runs one. An error with a code reaches the client as it is.
	Act(ctx context.Context, call ActionCall) (ActionResult, error)
}

// ActionCall is one call of an action.
type ActionCall struct {
	ActionID  string
	SessionID string        // "" when the action is not about a session
	Params    loquat.Object // fixed_params applied, dialog inputs checked
	Config    loquat.Object // effective config of the session, secrets as {"set": true}; nil without a session
	State     loquat.Object // of an application plugin
	Host      Host
}

// ActionResult is what an action answers.
type ActionResult struct {
	Result json.RawMessage // any JSON; nil is null
	State  loquat.Object   // the application plugin's state from now on; nil leaves it
}

// Host is what the service does for an action.
type Host struct {
	Sessions Sessions
	Assets   Assets
}

// Sessions is what an action may do with sessions.
type Sessions interface {
	// Messages returns a session's messages as they are now.
	Messages(ctx context.Context, sessionID string) ([]loquat.Message, error)
	// Ask has the session's own model answer messages; nothing is stored.
	Ask(ctx context.Context, sessionID string, messages []loquat.Message) (loquat.Reply, error)
	// RequireIdle is a busy error while a request of the session runs or is queued.
	RequireIdle(ctx context.Context, sessionID string) error
	// Compact puts one system message in the place of others, in one transaction. It
	// is a conflict error when they, or the session's requests, changed since they
	// were read.
	Compact(ctx context.Context, sessionID string, c Compaction) error
}

// Compaction is messages that become one.
type Compaction struct {
	Start, End int              // indices, both included
	Was        []loquat.Message // what stood there when it was read
	Content    string           // of the system message at Start
}

// Assets is what an action may do with the images of a session.
type Assets interface {
	// StoreAsset keeps an image; what the bytes deny is an invalid error.
	StoreAsset(ctx context.Context, sessionID, name, mediaType string, content io.Reader) (loquat.Asset, error)
	// OpenAsset returns an image and its bytes, which the caller closes.
	OpenAsset(ctx context.Context, sessionID, assetID string) (loquat.Asset, io.ReadSeekCloser, error)
	// DeleteAsset is a conflict error while a message uses the image.
	DeleteAsset(ctx context.Context, sessionID, assetID string) error
}

// Toolbox is a plugin that offers tools.
type Toolbox interface {
	// Tools are those that can be called now. A plugin that restarts keeps its tools:
	// their calls wait a moment for it.
	Tools() []Tool
}

// Tool is what a model may call.
type Tool interface {
	// Name is function.name of its schema.
	Name() string
	// Schema is the tool in the chat-completions convention:
	// {type: "function", function: {name, description, parameters}}.
	Schema() json.RawMessage
	// Call runs it. An error is no fatal failure: its text becomes the tool message.
	Call(ctx context.Context, call ToolCall) (ToolResult, error)
}

// ToolCall is one call of a tool.
type ToolCall struct {
	ID        string
	Name      string
	Arguments json.RawMessage // a JSON object
	Config    loquat.Object   // effective config of the request
	Concealed loquat.Object   // the same with its secrets as {"set": true}
	SessionID string
	RequestID string

	// Progress reports a part of the output while the tool runs. It may be nil. After
	// Call has returned it does nothing.
	Progress func(part string, progress, total *float64)
}

// ToolResult is what a tool answers.
type ToolResult struct {
	Content  string
	Metadata loquat.Object // such as display; may be nil
	Images   []Image       // become assets of the session, attached to the tool message
	IsError  bool
}

// Image is an image that a tool made.
type Image struct {
	MediaType string // as the tool says; the bytes decide
	Data      []byte
}
