// Package config loads the service's configuration: one flat JSON dictionary. It checks the
// whole file and merges its layers into the config of a request.
//
// All problems of a configuration are reported before anything starts, with places and
// remedies. Secrets are returned only to the parts that need them. Values from the network
// are never expanded. The package does not know the plugins: the owners of keys pass their
// schemas. A Config does not change after flags were applied at the start.
package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"loquat"
)

// The defaults of the service's own keys.
const (
	DefaultListen           = "127.0.0.1:8787"
	defaultPoolSize         = 10
	defaultStatementTimeout = 30 * time.Second
	DefaultShutdownGrace    = 10 * time.Second
	DefaultDrain            = 3 * time.Second
	defaultRetention        = 7 * 24 * time.Hour
	DefaultMaxBodyBytes     = 8 << 20
	defaultMaxAssetBytes    = 20 << 20
	defaultMaxImportBytes   = 1 << 30
	DefaultMaxResponseBytes = 64 << 20
	defaultMaxToolRounds    = 50
	defaultMaxToolResult    = 256 << 10

	defaultMaxRunning               = 10_000
	defaultMaxConnections           = 4096
	defaultMaxConnectionsPerAddress = 1024
	defaultMaxFollowers             = 1024
	defaultMaxFollowersPerToken     = 512
	defaultMaxInflight              = 64 << 20
	defaultMaxInflightPerToken      = 32 << 20
)

// maxFileBytes bounds the file of a configuration, and each file that it refers to.
const maxFileBytes = 4 << 20

// Config is a configuration. Its fields have the defaults if the file has no value, or one
// that Check refuses.
type Config struct {
	Server         Server
	Store          Store
	Assets         Assets
	Bridge         Bridge
	Push           Push
	Webhooks       Webhooks
	Telemetry      Telemetry
	Limits         Limits
	Events         Events
	Prices         map[string]Price // by model, or by provider_id/model
	Plugins        []string         // nil means all that are compiled in
	Required       []string         // entries of Plugins without which requests fail
	PluginCacheDir string           // "" means a folder of the data directory

	raw         loquat.Object
	agents      map[string]*agent
	providers   map[string]loquat.Object // their base configs
	agentFaults []Problem
	fileSecrets []string // the values that came from a ${file:…}
}

// Server holds the addresses and access settings of the HTTP server.
type Server struct {
	Listen         string
	DebugListen    string // "" serves no profiles
	DataDir        string
	PublicURL      string
	AuthTokens     []AuthToken
	JWT            []JWT
	Roles          map[string]Role
	AllowedOrigins []string
	TrustedProxies []string
	TLS            TLS
	ShutdownGrace  time.Duration
	Drain          time.Duration // of one of several nodes, before it stops
}

// AuthToken is an access token of the configuration.
type AuthToken struct {
	Name      string `json:"name"`
	Token     string `json:"token"`
	Scope     string `json:"scope"` // full, read, session or user
	SessionID string `json:"session_id"`
	User      string `json:"user"`
	Role      string `json:"role"`
}

// JWT is a system whose JSON Web Tokens are accepted.
type JWT struct {
	Issuer     string `json:"issuer"`
	Audience   string `json:"audience"`
	Keys       string `json:"jwks_url"`
	UserClaim  string `json:"user_claim"`
	ScopeClaim string `json:"scope_claim"`
	RoleClaim  string `json:"role_claim"`
}

// Closed reports whether the configuration itself makes every call need a token.
func (s Server) Closed() bool { return len(s.AuthTokens)+len(s.JWT) > 0 }

// TLS is a certificate with its key, or empty.
type TLS struct{ CertFile, KeyFile string }

// Store selects the database. An empty URL means the embedded database in the data directory.
type Store struct {
	URL              string // empty means the file in the data directory
	ListenURL        string // empty means URL
	PoolSize         int
	StatementTimeout time.Duration
}

// Assets says where the images of servers that share a database are. An empty URL means in that
// database.
type Assets struct {
	URL         string
	AccessKeyID string // empty means the credentials of the environment

	SecretAccessKey string
}

// Bridge is the bridge that this server forwards to and, for `loquat bridge`, the
// servers that may forward to it.
type Bridge struct {
	URL      string
	ServerID string
	Token    string
	Servers  map[string]string // server_id to token
}

// Push says how this server sends notifications to browsers. Without a Subject it sends none.
type Push struct {
	Subject      string // mailto: or https: URL of the operator
	AllowPrivate bool   // push services may have private addresses
}

// Webhooks say how this server sends events to receivers.
type Webhooks struct {
	AllowPrivate bool            // receivers may have private addresses
	RetryDelays  []time.Duration // between the attempts to deliver an event
}

// defaultWebhookDelays are the delays between the attempts to deliver an event, in seconds: over four days.
var defaultWebhookDelays = []int{5, 30, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400, 86400}

// webhooksIn reads webhooks.
func webhooksIn(o loquat.Object) Webhooks {
	w := Webhooks{AllowPrivate: valueAt(o, "allow_private_addresses", false)}
	for _, seconds := range defaultWebhookDelays {
		w.RetryDelays = append(w.RetryDelays, time.Duration(seconds)*time.Second)
	}
	if raw, ok := o["retry_delays_seconds"]; ok {
		if delays, err := ParseDelays(raw); err == nil {
			w.RetryDelays = delays
		}
	}
	return w
}

// Telemetry says where spans and metrics are sent. Without an Endpoint the environment variables of OpenTelemetry
// may name one.
type Telemetry struct {
	Endpoint    string // URL of a collector
	Protocol    string // of ProtocolHTTP and ProtocolGRPC
	Headers     map[string]string
	SampleRatio float64 // of the requests whose client does not say whether it is traced
	Content     bool    // spans may have the texts of messages
	Metrics     bool    // metrics are sent, too
}

// The protocols of Telemetry.
const (
	ProtocolHTTP = "http"
	ProtocolGRPC = "grpc"
)

func telemetryIn(o loquat.Object) Telemetry {
	return Telemetry{
		Endpoint: o.String("endpoint"), Protocol: valueAt(o, "protocol", ProtocolHTTP), Headers: valueAt[map[string]string](o, "headers", nil),
		SampleRatio: valueAt(o, "sample_ratio", 1.0), Content: valueAt(o, "content", false), Metrics: valueAt(o, "metrics", false),
	}
}

// Limits bound the cost of calls.
type Limits struct {
	MaxBodyBytes       int64
	MaxAssetBytes      int64
	MaxImportBytes     int64
	MaxResponseBytes   int64
	MaxToolRounds      int
	MaxToolResultBytes int

	MaxRunningRequests       int
	MinFreeDiskBytes         int64 // -1: 128 MiB, or 5 % of a smaller disk
	MaxConnections           int
	MaxConnectionsPerAddress int
	MaxFollowers             int
	MaxFollowersPerToken     int
	MaxInflightBytes         int64
	MaxInflightBytesPerToken int64
}

// Events sets how long events are kept; a Retention of 0 keeps them for ever.
type Events struct{ Retention time.Duration }

// Price is the price of a million tokens, in a currency of the operator's choice.
type Price struct {
	Input       float64  `json:"input"`
	CachedInput *float64 `json:"cached_input"` // nil: that of Input
	Output      float64  `json:"output"`
}

// Cost returns what tokens cost.
func (p Price) Cost(t loquat.Tokens) float64 {
	cached := p.Input
	if p.CachedInput != nil {
		cached = *p.CachedInput
	}
	const unit = 1e6
	hit := min(t.CachedInput, t.Input)
	return (float64(t.Input-hit)*p.Input + float64(hit)*cached + float64(t.Output)*p.Output) / unit
}

// PriceOf returns the price of a model of a provider.
func (c *Config) PriceOf(providerID, model string) (Price, bool) {
	p, ok := c.Prices[providerID+"/"+model]
	if !ok {
		p, ok = c.Prices[model]
	}
	return p, ok
}

// Environment gives access to variables and files.
type Environment struct {
	Lookup   func(name string) (string, bool)
	ReadFile func(path string) ([]byte, error)
}

// ProcessEnvironment returns the environment of this process. It reads files up to 4 MiB.
func ProcessEnvironment() Environment {
	return Environment{Lookup: os.LookupEnv, ReadFile: readBounded}
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(b) > maxFileBytes {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFileBytes)
	}
	return b, err
}

// get returns a variable's value; an empty one counts as not set.
func (e Environment) get(name string) string {
	v, _ := e.Lookup(name)
	return v
}

// Find returns the configuration file to use: the one named by flag or LOQUAT_CONFIG, else
// the first that exists of ./loquat.json and $XDG_CONFIG_HOME/loquat/loquat.json, else "".
// A named file may be missing; Load reports that.
func Find(flag string, env Environment) string {
	if named := cmp.Or(flag, env.get("LOQUAT_CONFIG")); named != "" {
		return named
	}
	for _, path := range []string{"loquat.json", filepath.Join(xdgDir(env, "XDG_CONFIG_HOME", ".config"), "loquat.json")} {
		if _, err := env.ReadFile(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return path
		}
	}
	return ""
}

// xdgDir is Loquat's folder in one of the user's base directories.
func xdgDir(env Environment, variable, fallback string) string {
	base := env.get(variable)
	if base == "" {
		base = filepath.Join(env.get("HOME"), fallback)
	}
	return filepath.Join(base, "loquat")
}

// Load reads a file. The Config is nil when the file cannot be read or parsed.
func Load(path string, env Environment) (*Config, []Problem) {
	data, err := env.ReadFile(path)
	if err != nil {
		message := fmt.Sprintf("cannot be read: %v", err)
		if errors.Is(err, fs.ErrPermission) && !filepath.IsAbs(path) {
			message += "; run the command from a directory that its user may read, or name a file with --config"
		}
		return nil, []Problem{{Path: path, Message: message}}
	}
	return Parse(data, env)
}

// Parse parses a configuration: strict JSON whose strings may refer to variables and files.
// The Config is nil if the data is not a JSON object. Otherwise the problems are those of
// the references; Check finds the others.
func Parse(data []byte, env Environment) (*Config, []Problem) {
	raw, problem := ParseObject(data)
	if problem != nil {
		return nil, []Problem{*problem}
	}
	x := expander{env: env}
	c := New(x.object("", raw), env)
	c.fileSecrets = x.secrets
	return c, InOrder(x.problems.list())
}

// New makes a configuration from a dictionary without expanding references. Null at an
// optional key means the same as leaving the key out.
func New(raw loquat.Object, env Environment) *Config {
	raw = withoutNulls(raw)
	server, limits, bridge := raw.Object("server"), raw.Object("limits"), raw.Object("bridge")
	tls := server.Object("tls")
	c := &Config{
		Server: Server{
			Listen:         valueAt(server, "listen", DefaultListen),
			DebugListen:    server.String("debug_listen"),
			DataDir:        cmp.Or(server.String("data_dir"), xdgDir(env, "XDG_DATA_HOME", ".local/share")),
			PublicURL:      server.String("public_url"),
			AuthTokens:     valueAt[[]AuthToken](server, "auth_tokens", nil),
			JWT:            valueAt[[]JWT](server, "jwt", nil),
			Roles:          valueAt[map[string]Role](server, "roles", nil),
			AllowedOrigins: valueAt[[]string](server, "allowed_origins", nil),
			TrustedProxies: valueAt[[]string](server, "trusted_proxies", nil),
			TLS:            TLS{CertFile: tls.String("cert_file"), KeyFile: tls.String("key_file")},
			ShutdownGrace:  secondsAt(server, "shutdown_grace_seconds", DefaultShutdownGrace),
			Drain:          secondsAt(server, "drain_seconds", DefaultDrain),
		},
		Store: Store{
			URL:              raw.Object("store").String("url"),
			ListenURL:        raw.Object("store").String("listen_url"),
			PoolSize:         valueAt(raw.Object("store"), "pool_size", defaultPoolSize),
			StatementTimeout: secondsAt(raw.Object("store"), "statement_timeout_seconds", defaultStatementTimeout),
		},
		Assets: Assets{
			URL:             raw.Object("assets").String("url"),
			AccessKeyID:     raw.Object("assets").String("access_key_id"),
			SecretAccessKey: raw.Object("assets").String("secret_access_key"),
		},
		Bridge: Bridge{
			URL:      bridge.String("url"),
			ServerID: bridge.String("server_id"),
			Token:    bridge.String("token"),
			Servers:  valueAt[map[string]string](bridge, "servers", nil),
		},
		Push:           pushIn(raw.Object("push").Object("web")),
		Webhooks:       webhooksIn(raw.Object("webhooks")),
		Telemetry:      telemetryIn(raw.Object("telemetry")),
		Limits:         limitsIn(limits),
		Events:         Events{Retention: secondsAt(raw.Object("events"), "retention_seconds", defaultRetention)},
		Prices:         valueAt[map[string]Price](raw, "prices", nil),
		Plugins:        valueAt[[]string](raw, "plugins", nil),
		Required:       valueAt[[]string](raw, "required_plugins", nil),
		PluginCacheDir: raw.String("plugin_cache_dir"),
		raw:            raw,
	}
	c.agents, c.agentFaults = resolveAgents(raw)
	c.providers = resolveProviders(raw)
	return c
}

// limitsIn reads limits.
func limitsIn(limits loquat.Object) Limits {
	return Limits{
		MaxBodyBytes:     valueAt[int64](limits, "max_body_bytes", DefaultMaxBodyBytes),
		MaxAssetBytes:    valueAt[int64](limits, "max_asset_bytes", defaultMaxAssetBytes),
		MaxImportBytes:   valueAt[int64](limits, "max_import_bytes", defaultMaxImportBytes),
		MaxResponseBytes: valueAt[int64](limits, "max_response_bytes", DefaultMaxResponseBytes),
		MaxToolRounds:    valueAt(limits, "max_tool_rounds", defaultMaxToolRounds),

		MaxToolResultBytes: valueAt(limits, "max_tool_result_bytes", defaultMaxToolResult),

		MaxRunningRequests:       valueAt(limits, "max_running_requests", defaultMaxRunning),
		MinFreeDiskBytes:         valueAt[int64](limits, "min_free_disk_bytes", -1),
		MaxConnections:           valueAt(limits, "max_connections", defaultMaxConnections),
		MaxConnectionsPerAddress: valueAt(limits, "max_connections_per_address", defaultMaxConnectionsPerAddress),
		MaxFollowers:             valueAt(limits, "max_followers", defaultMaxFollowers),
		MaxFollowersPerToken:     valueAt(limits, "max_followers_per_token", defaultMaxFollowersPerToken),
		MaxInflightBytes:         valueAt[int64](limits, "max_inflight_bytes", defaultMaxInflight),
		MaxInflightBytesPerToken: valueAt[int64](limits, "max_inflight_bytes_per_token", defaultMaxInflightPerToken),
	}
}

// pushIn reads push.web.
func pushIn(web loquat.Object) Push {
	return Push{Subject: web.String("subject"), AllowPrivate: valueAt(web, "allow_private_addresses", false)}
}

// withoutNulls returns a configuration without the keys whose value is null: at the top, in
// the service's objects and in the layers. Deeper nulls are kept for the key's owner: in
// request_options a null removes a field.
func withoutNulls(raw loquat.Object) loquat.Object {
	out := dropNulls(raw, 0)
	for _, key := range []string{"server", "store", "bridge", "push", "webhooks", "telemetry", "limits", "events"} {
		if o, ok := asObject(out[key]); ok {
			out[key] = encode(dropNulls(o, math.MaxInt))
		}
	}
	for _, key := range []string{"providers", "agents"} {
		if layers, ok := asObject(out[key]); ok {
			out[key] = encode(dropNulls(layers, 1))
		}
	}
	return out
}

// dropNulls removes keys with the value null from o and from its objects, up to a depth.
func dropNulls(o loquat.Object, levels int) loquat.Object {
	out := make(loquat.Object, len(o))
	for key, value := range o {
		if isNull(value) {
			continue
		}
		if inner, ok := asObject(value); ok && levels > 0 {
			value = encode(dropNulls(inner, levels-1))
		}
		out[key] = value
	}
	return out
}

// SetServer overrides the listen address and the data directory with flags. "" keeps the
// configured value.
func (c *Config) SetServer(listen, dataDir string) {
	c.setServer("listen", &c.Server.Listen, listen)
	c.setServer("data_dir", &c.Server.DataDir, dataDir)
}

// SetDebugListen overrides the address of profiles with a flag. "" keeps the configured value.
func (c *Config) SetDebugListen(address string) {
	c.setServer("debug_listen", &c.Server.DebugListen, address)
}

// setServer overrides a key of server, whose decoded value is at field.
func (c *Config) setServer(key string, field *string, value string) {
	if value == "" {
		return
	}
	*field = value
	c.raw = c.raw.Clone().Set("server", c.raw.Object("server").Set(key, value))
}

// Loads reports whether the configuration loads the compiled-in plugin with a name.
func (c *Config) Loads(plugin string) bool {
	return c.Plugins == nil || slices.Contains(c.Plugins, plugin)
}

// PluginCache is the directory that holds one writable folder for each `path:` plugin.
func (c *Config) PluginCache() string {
	return cmp.Or(c.PluginCacheDir, filepath.Join(c.Server.DataDir, "plugin-cache"))
}

// valueAt decodes the value at key. It returns fallback if there is no valid value.
func valueAt[T any](o loquat.Object, key string, fallback T) T {
	v := fallback
	if raw, ok := o[key]; ok && json.Unmarshal(raw, &v) != nil {
		return fallback
	}
	return v
}

func secondsAt(o loquat.Object, key string, fallback time.Duration) time.Duration {
	return time.Duration(valueAt(o, key, fallback.Seconds()) * float64(time.Second))
}
