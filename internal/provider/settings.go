package provider

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"loquat"
	"loquat/internal/config"
)

// Selector is the value of `provider` that chooses this adapter.
const Selector = "reference_generic_compatible"

const (
	defaultBaseURL       = "https://api.openai.com/v1"
	defaultTimeout       = 60.0
	defaultMaxRecoveries = 3
)

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

// schema is every key of the adapter.
var schema = config.Schema{
	{Key: "provider", Kind: config.String, Required: true, Doc: "Provider selector: " + Selector + "."},
	{Key: "model", Kind: config.String, Required: true, Check: checkModel, Doc: "Model id sent in the request."},
	{Key: "base_url", Kind: config.String, Default: defaultBaseURL, Check: checkBaseURL, Doc: "Base URL, version prefix included; /chat/completions is appended."},
	{Key: "endpoint_options", Kind: config.Labels, Check: checkEndpoints, Doc: "Labelled base URLs to choose from; a choice sets base_url."},
	{Key: "api_key", Kind: config.String, Secret: true, Doc: "Bearer token for the backend; none is sent without it."},
	{Key: "timeout", Kind: config.Number, Default: defaultTimeout, Min: new(0.001), Max: new(86400.0), Doc: "Seconds for connecting, for the answer's headers, and for the silence between two reads."},
	{Key: "debug_stream", Kind: config.Boolean, Default: false, Doc: "Logs each chunk as it is decoded, which may tell what was said in a session."},
	{Key: "min_request_interval_seconds", Kind: config.Number, Default: 0.0, Min: new(0.0), Max: new(86400.0), Doc: "Least time between the starts of two requests to the same base_url; 0 means no pacing. The list of models is not paced."},
	{Key: "rate_limit_retry_delays_seconds", Kind: config.Delays, Doc: "Seconds before each retry after HTTP 429; none without it."},
	{Key: "respect_retry_after_header", Kind: config.Boolean, Default: true, Doc: "After HTTP 429, wait at least as long as Retry-After says."},
	{Key: "retry_on_status", Kind: config.DelayMap, Doc: "For HTTP status codes other than 429, seconds before each retry."},
	{Key: "retry_on_timeout", Kind: config.Delays, Doc: "Seconds before each retry after a timeout before streaming begins; none without it."},
	{Key: "stream_recovery", Kind: config.Object, Doc: "What to do when the connection breaks in the middle of a stream."},
	{Key: "stream_recovery.mode", Kind: config.String, Default: recoverDisabled, Enum: []string{recoverDisabled, recoverEarlyOnly, recoverAggressive}, Doc: "disabled; early_only: start again while no text has been shown; aggressive: start again in any case."},
	{Key: "stream_recovery.max_retries", Kind: config.Integer, Default: defaultMaxRecoveries, Min: new(0.0), Max: new(1000.0), Doc: "Most recoveries of one reply."},
	{Key: "allow_image_attachment_base64", Kind: config.Boolean, Default: true, Doc: "Allows images given as data: URLs or uploaded."},
	{Key: "allow_image_attachment_url", Kind: config.Boolean, Default: true, Doc: "Allows images given as remote URLs."},
	{Key: "include_usage", Kind: config.Boolean, Default: true, Doc: "Asks for usage in streams (stream_options.include_usage)."},
	{Key: "empty_content", Kind: config.String, Default: emptyNull, Enum: []string{emptyNull, emptyString}, Doc: "Content of an assistant message that has tool calls and no text."},
	{Key: "reasoning_echo", Kind: config.String, Default: echoAuto, Enum: []string{echoAuto, echoAlways, echoNever}, Doc: "Whether reasoning goes back to the backend; auto: to the provider and model it came from, within its tool loop."},
	{Key: "merge_system_messages", Kind: config.Boolean, Default: false, Doc: "Sends all system messages as one at the front, for backends that take only that."},
	{Key: "tools", Kind: config.Any, Check: checkTools, Doc: "Tool schemas to offer beside those of plugins."},
	{Key: "tool_choice", Kind: config.Any, Default: "auto", Doc: "Sent along when there are tools."},
}

// settings is an effective config as the adapter understands it.
type settings struct {
	model             string
	baseURL           *url.URL
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
	secrets           *config.Masker // what must not leave the adapter
}

// settingsOf reads an effective config. An error names the key.
func (p *Provider) settingsOf(c loquat.Object) (settings, error) {
	s, err := readSettings(c)
	s.secrets = p.secrets.With(config.SecretsIn(c))
	return s, err
}

// readSettings reads an effective config, but for its secrets.
func readSettings(c loquat.Object) (settings, error) {
	r := reader{config: c}
	recovery := reader{config: c.Object("stream_recovery"), prefix: "stream_recovery."}
	s := settings{
		model:             r.string("model", ""),
		baseURL:           r.baseURL(),
		apiKey:            r.string("api_key", ""),
		timeout:           r.seconds("timeout", defaultTimeout),
		debugStream:       r.bool("debug_stream", false),
		interval:          r.seconds("min_request_interval_seconds", 0),
		respectRetryAfter: r.bool("respect_retry_after_header", true),
		recovery:          recovery.oneOf("mode", recoverDisabled, recoverEarlyOnly, recoverAggressive),
		maxRecoveries:     int(recovery.number("max_retries", defaultMaxRecoveries)),
		allowData:         r.bool("allow_image_attachment_base64", true),
		allowURL:          r.bool("allow_image_attachment_url", true),
		includeUsage:      r.bool("include_usage", true),
		emptyContent:      r.oneOf("empty_content", emptyNull, emptyString),
		reasoningEcho:     r.oneOf("reasoning_echo", echoAuto, echoAlways, echoNever),
		mergeSystem:       r.bool("merge_system_messages", false),
		toolChoice:        r.raw("tool_choice"),
	}
	r.read("rate_limit_retry_delays_seconds", func(raw json.RawMessage) (err error) {
		s.rateLimitDelays, err = config.ParseDelays(raw)
		return err
	})
	r.read("retry_on_timeout", func(raw json.RawMessage) (err error) {
		s.timeoutDelays, err = config.ParseDelays(raw)
		return err
	})
	r.read("retry_on_status", func(raw json.RawMessage) (err error) {
		s.statusDelays, err = config.ParseDelayMap(raw)
		return err
	})
	r.read("tools", func(raw json.RawMessage) error { return json.Unmarshal(raw, &s.tools) })
	if s.timeout <= 0 {
		r.fail("timeout", "must be more than 0 seconds")
	}
	if s.model == "" {
		r.fail("model", "is missing; name a model of the backend")
	}
	if r.err == nil {
		r.err = recovery.err
	}
	return s, r.err
}

// reader reads a config's values and keeps the first error.
type reader struct {
	config loquat.Object
	prefix string
	err    error
}

func (r *reader) fail(key, format string, args ...any) {
	if r.err == nil {
		r.err = loquat.Invalid(r.prefix+key, format, args...)
	}
}

// raw returns the value at key; null counts as absent.
func (r *reader) raw(key string) json.RawMessage {
	if raw := r.config[key]; string(raw) != "null" {
		return raw
	}
	return nil
}

func (r *reader) read(key string, parse func(json.RawMessage) error) {
	raw := r.raw(key)
	if raw == nil {
		return
	}
	if err := parse(raw); err != nil {
		r.fail(key, "%v", err)
	}
}

func read[T any](r *reader, key string, fallback T, allowed string) T {
	v := fallback
	r.read(key, func(raw json.RawMessage) error {
		if json.Unmarshal(raw, &v) != nil {
			v = fallback
			return fmt.Errorf("must be %s", allowed)
		}
		return nil
	})
	return v
}

func (r *reader) string(key, fallback string) string { return read(r, key, fallback, "a string") }
func (r *reader) bool(key string, fallback bool) bool {
	return read(r, key, fallback, "true or false")
}

func (r *reader) number(key string, fallback float64) float64 {
	v := read(r, key, fallback, "a number")
	if v < 0 || math.IsNaN(v) || v > 1e6 {
		r.fail(key, "must be from 0 to 1000000")
		return fallback
	}
	return v
}

func (r *reader) seconds(key string, fallback float64) time.Duration {
	return time.Duration(r.number(key, fallback) * float64(time.Second))
}

// oneOf reads one of the allowed values, the first of which is the default.
func (r *reader) oneOf(key string, allowed ...string) string {
	v := r.string(key, allowed[0])
	for _, a := range allowed {
		if v == a {
			return v
		}
	}
	r.fail(key, "must be one of %s", strings.Join(allowed, ", "))
	return allowed[0]
}

func (r *reader) baseURL() *url.URL {
	u, err := parseBaseURL(r.string("base_url", defaultBaseURL))
	if err != nil {
		r.fail("base_url", "%v", err)
	}
	return u
}

// chatPath is appended to the base URL.
const chatPath = "chat/completions"

func parseBaseURL(s string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(s))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("must be an http or https URL such as %s", defaultBaseURL)
	}
	return u, nil
}

func checkBaseURL(raw json.RawMessage) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("must be a string")
	}
	u, err := parseBaseURL(s)
	if err == nil && strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/"+chatPath) {
		return fmt.Errorf("ends in /%s, which is appended to it; leave that out", chatPath)
	}
	return err
}

// checkEndpoints wants every endpoint to be a base URL.
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
