package provider

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"loquat"
	"loquat/internal/config"
)

// Selector is the value of `provider` that chooses this adapter.
const Selector = config.DefaultSelector

// Name is the reference by which `plugins` names this adapter.
const Name = "loquat.providers." + Selector

// The modes of stream recovery.
const (
	recoverDisabled   = "disabled"
	recoverEarlyOnly  = "early_only"
	recoverAggressive = "aggressive"
)

// The values of reasoning_echo.
const (
	echoAuto   = "auto"
	echoAlways = "always"
	echoNever  = "never"
)

// The values of empty_content.
const (
	emptyNull   = "null"
	emptyString = "string"
)

// The groups of keys.
const (
	groupBackend   = "backend"
	groupRetries   = "retries"
	groupRecovery  = "recovery"
	groupImages    = "images"
	groupReasoning = "reasoning" // shown only if the model supports reasoning
	groupTools     = "tools"     // shown only if the model supports tools
	groupFormat    = "format"
)

// schema lists the adapter's keys. The validation of the configuration, the reference
// page, the reading of settings and the elements of the UI derive from it. The elements
// follow its order.
var schema = config.Schema{
	{Key: "provider", Group: groupBackend, Kind: config.String, Required: true, Doc: "Provider selector: " + Selector + "."},
	{Key: "model", Group: groupBackend, Label: "Model", Kind: config.String, Required: true, Check: checkModel, Doc: "Model id sent in the request."},
	{Key: "base_url", Group: groupBackend, Label: "Endpoint", Kind: config.String, Default: config.DefaultBaseURL, Check: checkBaseURL, Doc: "Base URL, version prefix included; /chat/completions is appended."},
	{Key: "endpoint_options", Group: groupBackend, Kind: config.Labels, Check: checkEndpoints, Doc: "Labelled base URLs to choose from; a choice sets base_url."},
	{Key: "api_key", Group: groupBackend, Kind: config.String, Secret: true, Doc: "Bearer token for the backend; none is sent without it."},
	{Key: "timeout", Group: groupBackend, Label: "Timeout", Kind: config.Number, Default: 60, Min: new(0.001), Max: new(86400.0), Doc: "Seconds for connecting, for the answer's headers, and for the silence between two reads."},
	{Key: "min_request_interval_seconds", Group: groupRetries, Label: "Least time between requests", Kind: config.Number, Default: 0, Min: new(0.0), Max: new(86400.0), Doc: "Least time between the starts of two requests to the same base_url, over all nodes; 0 means no pacing. After a 429 that is retried, the paced requests to this base_url wait as long as the retry does, at most a minute. The list of models is not paced."},
	{Key: "rate_limit_retry_delays_seconds", Group: groupRetries, Label: "Retries after HTTP 429", Kind: config.Delays, Doc: "Seconds before each retry after HTTP 429; none without it."},
	{Key: "respect_retry_after_header", Group: groupRetries, Label: "Respect Retry-After", Kind: config.Boolean, Default: true, Doc: "After HTTP 429, wait at least as long as Retry-After says."},
	{Key: "retry_on_status", Group: groupRetries, Label: "Retries by HTTP status", Kind: config.DelayMap, Doc: "For HTTP status codes other than 429, seconds before each retry."},
	{Key: "retry_on_timeout", Group: groupRetries, Label: "Retries after timeouts", Kind: config.Delays, Doc: "Seconds before each retry after a timeout before streaming begins; none without it."},
	{Key: "stream_recovery", Group: groupRecovery, Kind: config.Object, Doc: "What to do when the connection breaks in the middle of a stream."},
	{Key: "stream_recovery.mode", Group: groupRecovery, Label: "Stream recovery", Kind: config.String, Default: recoverDisabled, Enum: []string{recoverDisabled, recoverEarlyOnly, recoverAggressive}, Doc: "disabled; early_only: start again while no text has been shown; aggressive: start again in any case."},
	{Key: "stream_recovery.max_retries", Group: groupRecovery, Label: "Most recoveries", Kind: config.Integer, Default: 3, Min: new(0.0), Max: new(1000.0), Doc: "Most recoveries of one reply."},
	{Key: "allow_image_attachment_base64", Group: groupImages, Label: "Inline and uploaded images", Kind: config.Boolean, Default: true, Doc: "Allows images given as data: URLs or uploaded."},
	{Key: "allow_image_attachment_url", Group: groupImages, Label: "Images by URL", Kind: config.Boolean, Default: true, Doc: "Allows images given as remote URLs."},
	{Key: "reasoning_echo", Group: groupReasoning, Label: "Send reasoning back", Kind: config.String, Default: echoAuto, Enum: []string{echoAuto, echoAlways, echoNever}, Doc: "Whether reasoning goes back to the backend; auto: to the provider and model it came from, within its tool loop."},
	{Key: "tools", Group: groupTools, Kind: config.Any, Check: checkTools, Doc: "Tool schemas to offer in addition to those of plugins."},
	{Key: "tool_choice", Group: groupTools, Label: "Use of tools", Kind: config.Any, Default: "auto", Doc: "Sent along when there are tools."},
	{Key: "empty_content", Group: groupTools, Label: "Content next to tool calls", Kind: config.String, Default: emptyNull, Enum: []string{emptyNull, emptyString}, Doc: "Content of an assistant message that has tool calls and no text."},
	{Key: "include_usage", Group: groupFormat, Label: "Ask for usage in streams", Kind: config.Boolean, Default: true, Doc: "Asks for usage in streams (stream_options.include_usage)."},
	{Key: "merge_system_messages", Group: groupFormat, Label: "One system message", Kind: config.Boolean, Default: false, Doc: "Sends all system messages as one at the front, for backends that take only that."},
	{Key: "debug_stream", Group: groupFormat, Label: "Log the stream", Kind: config.Boolean, Default: false, Doc: "Logs each chunk as it is decoded. The log then contains texts of sessions."},
}

// settings holds the parsed values of an effective config.
type settings struct {
	model             string
	baseURL           *url.URL
	paceScope         string // what is paced together: the base URL in its normal form
	apiKey            string
	timeout           time.Duration
	debugStream       bool
	interval          time.Duration
	rateLimitDelays   []time.Duration
	respectRetryAfter bool
	statusDelays      map[int][]time.Duration
	timeoutDelays     []time.Duration
	recovery          string
	maxRecoveries     int
	allowData         bool
	allowURL          bool
	includeUsage      bool
	emptyContent      string
	reasoningEcho     string
	mergeSystem       bool
	tools             []json.RawMessage
	toolChoice        json.RawMessage
	secrets           *config.Redactor // removes the secrets from all that the adapter returns
}

// settingsOf returns the settings of an effective config. An error names the key.
func (p *Provider) settingsOf(c loquat.Object) (settings, error) {
	version := p.secrets.Version()
	if s, ok := p.parsed.find(c, version); ok {
		return s, nil
	}
	s, err := readSettings(c)
	s.secrets = p.secrets.With(config.SecretsIn(c))
	if err == nil {
		p.parsed.add(c, s, version)
	}
	return s, err
}

// readSettings returns the settings of an effective config without its secrets. It
// accepts the values that the schema accepts.
func readSettings(c loquat.Object) (settings, error) {
	s := unset
	err := s.set(c)
	return s, err
}

// unset are the settings of a config without values. Each request begins with a copy of them, so
// its defaults need not be parsed again.
var unset = func() (s settings) {
	c, recovery := loquat.Object{}, loquat.Object{}
	for _, f := range schema {
		if key, ok := strings.CutPrefix(f.Key, recoveryPrefix); ok {
			recovery.Set(key, f.Default)
		} else if f.Default != nil {
			c.Set(f.Key, f.Default)
		}
	}
	_ = s.set(c.Set("stream_recovery", recovery)) // an error means that a required key has no default
	return s
}()

const recoveryPrefix = "stream_recovery."

// set sets what a config has.
func (s *settings) set(c loquat.Object) error {
	r := &reader{config: c}
	read(r, "model", &s.model)
	readAs(r, "base_url", &s.baseURL, decodeBaseURL)
	if s.baseURL != nil {
		s.paceScope = config.NormalizeURL(s.baseURL.String())
	}
	read(r, "api_key", &s.apiKey)
	readAs(r, "timeout", &s.timeout, decodeSeconds)
	readAs(r, "min_request_interval_seconds", &s.interval, decodeSeconds)
	readAs(r, "rate_limit_retry_delays_seconds", &s.rateLimitDelays, config.ParseDelays)
	read(r, "respect_retry_after_header", &s.respectRetryAfter)
	readAs(r, "retry_on_status", &s.statusDelays, config.ParseDelayMap)
	readAs(r, "retry_on_timeout", &s.timeoutDelays, config.ParseDelays)
	read(r, "allow_image_attachment_base64", &s.allowData)
	read(r, "allow_image_attachment_url", &s.allowURL)
	read(r, "reasoning_echo", &s.reasoningEcho)
	read(r, "tools", &s.tools)
	read(r, "tool_choice", &s.toolChoice)
	read(r, "empty_content", &s.emptyContent)
	read(r, "include_usage", &s.includeUsage)
	read(r, "merge_system_messages", &s.mergeSystem)
	read(r, "debug_stream", &s.debugStream)

	recovery := &reader{prefix: recoveryPrefix}
	read(r, "stream_recovery", &recovery.config)
	read(recovery, "mode", &s.recovery)
	read(recovery, "max_retries", &s.maxRecoveries)
	return cmp.Or(r.err, recovery.err)
}

// reader reads a config's values and keeps the first error.
type reader struct {
	config loquat.Object
	prefix string // of the keys of an object within the config
	err    error
}

func (r *reader) fail(key string, err error) {
	if r.err == nil {
		r.err = loquat.Invalid(r.prefix+key, "%v", err)
	}
}

// raw returns the value of a key of the schema, or nil if it is absent, null or invalid.
func (r *reader) raw(key string) json.RawMessage {
	f := schema.Field(r.prefix + key)
	raw := r.config[key]
	if len(raw) == 0 || string(raw) == "null" {
		if f.Required {
			r.fail(key, fmt.Errorf("is missing; must be a %s", f.Kind))
		}
		return nil
	}
	if err := f.Validate(raw); err != nil {
		r.fail(key, err)
		return nil
	}
	return raw
}

// readAs sets v to the value of a key, converted by parse. Without a value v stays as it is.
func readAs[T any](r *reader, key string, v *T, parse func(json.RawMessage) (T, error)) {
	raw := r.raw(key)
	if raw == nil {
		return
	}
	got, err := parse(raw)
	if err != nil {
		r.fail(key, err)
		return
	}
	*v = got
}

func read[T any](r *reader, key string, v *T) {
	readAs(r, key, v, func(raw json.RawMessage) (got T, err error) { return got, json.Unmarshal(raw, &got) })
}

func decodeSeconds(raw json.RawMessage) (time.Duration, error) {
	var seconds float64
	err := json.Unmarshal(raw, &seconds)
	return time.Duration(seconds * float64(time.Second)), err
}

// chatPath is appended to the base URL.
const chatPath = "chat/completions"

func parseBaseURL(s string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(s))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("must be an http or https URL such as %s", config.DefaultBaseURL)
	}
	return u, nil
}

func decodeBaseURL(raw json.RawMessage) (*url.URL, error) {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("must be a string")
	}
	return parseBaseURL(s)
}

func checkBaseURL(raw json.RawMessage) error {
	u, err := decodeBaseURL(raw)
	if err == nil && strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/"+chatPath) {
		return fmt.Errorf("ends in /%s, which is appended to it; leave that out", chatPath)
	}
	return err
}

// checkEndpoints returns an error unless every endpoint is a base URL.
func checkEndpoints(raw json.RawMessage) error {
	endpoints := asMap(raw)
	for _, label := range slices.Sorted(maps.Keys(endpoints)) {
		if string(endpoints[label]) == "null" {
			continue
		}
		if err := checkBaseURL(endpoints[label]); err != nil {
			return fmt.Errorf("has the endpoint %q, which %w", loquat.Clip(label, loquat.Excerpt), err)
		}
	}
	return nil
}

func checkModel(raw json.RawMessage) error {
	if string(raw) == `""` {
		return fmt.Errorf("is empty; name a model of the backend")
	}
	return nil
}

func checkTools(raw json.RawMessage) error {
	var tools []json.RawMessage
	if err := json.Unmarshal(raw, &tools); err != nil {
		return fmt.Errorf("must be a list of tool schemas")
	}
	return nil
}
