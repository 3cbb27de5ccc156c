package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"loquat"
	"loquat/internal/asset"
	"loquat/internal/dburl"
)

// Keys is the schema of the keys that the service itself owns at the top level.
// The keys of providers are their plugins'.
func Keys() Schema {
	return slices.Concat(Schema{
		{Key: "plugin_cache_dir", Kind: String, Doc: "Directory that has a writable folder for each `path:` plugin; by default `plugin-cache` in the data directory."},
		{Key: "providers", Kind: Object, Doc: "Map of provider_id to provider config. At least one is needed."},
		{Key: "plugins", Kind: Strings, Doc: "Plugins to load: `path:` and an absolute directory, or the dotted name of a compiled-in plugin. Without this key all compiled-in plugins are loaded."},
		{Key: "required_plugins", Kind: Strings, Doc: "Entries of `plugins` that every request needs: a request fails while one of them does not run."},
		{Key: "agents", Kind: Object, Doc: "Map of agent_id to an object with `provider`, a provider_id, and settings that override the provider's."},

		{Key: "server.listen", Kind: String, Default: DefaultListen, Check: text(checkListen), Doc: "Address to listen on; port 0 picks a free one."},
		{Key: "server.debug_listen", Kind: String, Check: text(checkListen), Doc: "Address on which profiles and runtime metrics are served, without a token; by default they are not served. An address beyond loopback needs `--debug-insecure`."},
		{Key: "server.data_dir", Kind: String, Doc: "Directory of the database and the images; by default `$XDG_DATA_HOME/loquat`."},
		{Key: "server.public_url", Kind: String, Check: text(checkHTTPURL), Doc: "URL at which clients reach the server, if it differs from the listening address."},
		{Key: "server.jwt", Kind: Objects, Check: checkJWT, Doc: "Systems whose JSON Web Tokens are accepted: objects with `issuer`, `audience`, `jwks_url` and, optionally, `user_claim` (default `sub`), `scope_claim` and `role_claim`; see [users.md](users.md#tokens-of-your-own-system)."},
		{Key: "server.auth_tokens", Kind: Objects, Check: checkAuthTokens, Doc: "Access tokens: objects with `name`, `token`, `scope` (`full`, `read`, `session` or `user`) and, with scope `session`, `session_id`, with scope `user`, `user`; optionally also `role`."},
		{Key: "server.roles", Kind: Object, Check: checkRoles, Doc: "Map of role to an object with `agents`, `models`, `plugins` (lists; without one, all may be used) and `bounds`; see [users.md](users.md#roles-and-bounds)."},
		{Key: "server.allowed_origins", Kind: Strings, Check: each(checkOrigin), Doc: "Origins other than the server's own from which browsers may call, such as `https://host:port`."},
		{Key: "server.trusted_proxies", Kind: Strings, Check: each(checkProxy), Doc: "Addresses or networks of proxies whose `X-Forwarded-*` headers the server reads."},
		{Key: "server.tls.cert_file", Kind: String, Doc: "File of the certificate chain, PEM; with `key_file` the server speaks HTTPS."},
		{Key: "server.tls.key_file", Kind: String, Doc: "File of the certificate's private key, PEM."},
		{Key: "server.shutdown_grace_seconds", Kind: Number, Default: 10, Min: bound(0), Max: bound(86400), Doc: "How many seconds running requests may continue after a signal to stop."},
		{Key: "server.drain_seconds", Kind: Number, Default: DefaultDrain.Seconds(), Min: bound(0), Max: bound(3600), Doc: "How many seconds one of several servers with the same `store.url` continues after a signal to stop. `/readyz` is already 503 during this time, so load balancers send it no more calls."},

		{Key: "store.url", Kind: String, Check: text(checkStoreURL), Doc: "PostgreSQL database to use instead of the file in the data directory, such as `postgres://USER:PASSWORD@HOST:5432/DATABASE`; see [PostgreSQL](postgresql.md)."},
		{Key: "store.listen_url", Kind: String, Check: text(checkStoreURL), Doc: "URL of the same database without a pooler, for the notifications between several servers; by default that of `store.url`. Needed only if a pooler in transaction mode is in between."},
		{Key: "store.pool_size", Kind: Integer, Default: defaultPoolSize, Min: bound(2), Max: bound(1000), Doc: "Maximum number of connections to the database of `store.url`, without the two for notifications and for the lease."},
		{Key: "store.statement_timeout_seconds", Kind: Number, Default: defaultStatementTimeout.Seconds(), Min: bound(0.1), Max: bound(3600), Doc: "How many seconds a statement in the database of `store.url` may take."},

		{Key: "assets.url", Kind: String, Check: text(checkAssetsURL), Doc: "S3-compatible object store for images, such as `s3://BUCKET/PREFIX?endpoint=https://HOST&region=REGION&path_style=true`; only with `store.url`. By default images are in the database of `store.url`; see [PostgreSQL](postgresql.md#images)."},
		{Key: "assets.access_key_id", Kind: String, Doc: "Access key for `assets.url`; by default the credentials come from the environment or from the role of the machine."},
		{Key: "assets.secret_access_key", Kind: String, Secret: true, Doc: "Secret key for `assets.url`."},

		{Key: "bridge.url", Kind: String, Check: text(checkBridgeURL), Doc: "Bridge to which the server forwards its events, such as `wss://host/bridge`; by default the server has its own bridge."},
		{Key: "bridge.server_id", Kind: String, Doc: "Name of this server at the bridge."},
		{Key: "bridge.token", Kind: String, Secret: true, Doc: "Token with which this server joins the bridge."},
		{Key: "bridge.servers", Kind: Labels, Secret: true, Doc: "For `loquat bridge`: map of server_id to the token of that server."},

		{Key: "push.web.subject", Kind: String, Check: text(checkContact), Doc: "Contact of the operator for push services, such as `mailto:admin@example.org` or an `https://` URL. With it, browsers can ask for [notifications](http.md#notifications) when a reply ends, and the server sends them by Web Push."},
		{Key: "push.web.allow_private_addresses", Kind: Boolean, Default: false, Doc: "Whether push services may have loopback, private or link-local addresses."},

		{Key: "webhooks.allow_private_addresses", Kind: Boolean, Default: false, Doc: "Whether receivers of [webhooks](webhooks.md) may have loopback, private or link-local addresses."},
		{Key: "webhooks.retry_delays_seconds", Kind: Delays, Default: defaultWebhookDelays, Doc: "Delays between the attempts to deliver an event to a webhook. After the last one it is given up, and can be sent again by hand."},
	}, telemetryKeys(), limitKeys(), Schema{
		{Key: "prices", Kind: Object, Check: checkPrices, Doc: "Prices of a million tokens, by model or by `provider_id/model`: objects with `input`, `output` and, optionally, `cached_input`, in any one currency. They give the cost in [usage](users.md#usage)."},

		{Key: "events.retention_seconds", Kind: Integer, Default: int(defaultRetention.Seconds()), Min: bound(0), Max: bound(3_153_600_000), Doc: "How many seconds events are kept; 0 keeps them for ever."},
	})
}

func telemetryKeys() Schema {
	return Schema{
		{Key: "telemetry.endpoint", Kind: String, Check: text(checkHTTPURL), Doc: "OpenTelemetry collector to which [traces](monitoring.md#traces) are sent, such as `http://localhost:4318`; by default the one that `OTEL_EXPORTER_OTLP_ENDPOINT` names, if any."},
		{Key: "telemetry.protocol", Kind: String, Default: ProtocolHTTP, Enum: []string{ProtocolHTTP, ProtocolGRPC}, Doc: "Protocol of the collector: OTLP over HTTP, or over gRPC."},
		{Key: "telemetry.headers", Kind: Labels, Secret: true, Doc: "Headers of the calls of the collector, such as `Authorization`."},
		{Key: "telemetry.sample_ratio", Kind: Number, Default: 1, Min: bound(0), Max: bound(1), Doc: "Share of the requests that are traced. A request whose client sends the header `traceparent` is traced if the client's span is."},
		{Key: "telemetry.content", Kind: Boolean, Default: false, Doc: "Whether spans have the texts of messages, arguments and results of tools, and errors."},
		{Key: "telemetry.metrics", Kind: Boolean, Default: false, Doc: "Whether the metrics of `/metrics` are also sent to the collector, every minute."},
	}
}

func limitKeys() Schema {
	return Schema{
		{Key: "limits.max_body_bytes", Kind: Integer, Default: DefaultMaxBodyBytes, Min: bound(1024), Doc: "Maximum size of a body that a client sends to the HTTP API."},
		{Key: "limits.max_asset_bytes", Kind: Integer, Default: defaultMaxAssetBytes, Min: bound(1024), Doc: "Maximum size of an uploaded image."},
		{Key: "limits.max_import_bytes", Kind: Integer, Default: defaultMaxImportBytes, Min: bound(1024), Doc: "Maximum size of a file that a client sends to `POST /sessions/import`. `loquat import` sends each session by itself, so it can import larger files."},
		{Key: "limits.max_response_bytes", Kind: Integer, Default: DefaultMaxResponseBytes, Min: bound(1024), Doc: "Maximum size of a backend's response."},
		{Key: "limits.max_tool_rounds", Kind: Integer, Default: defaultMaxToolRounds, Min: bound(0), Max: bound(10000), Doc: "Maximum number of tool rounds in one request."},
		{Key: "limits.max_tool_result_bytes", Kind: Integer, Default: defaultMaxToolResult, Min: bound(1024), Max: bound(1 << 30), Doc: "Maximum size of the text of a tool result. The rest is cut, and a note in the tool message says so."},
		{Key: "limits.max_running_requests", Kind: Integer, Default: defaultMaxRunning, Min: bound(1), Max: bound(1 << 20), Doc: "Maximum number of requests that run on this server. The answer to a send that would start a further one is 503."},
		{Key: "limits.min_free_disk_bytes", Kind: Integer, Min: bound(0), Max: bound(1 << 50), Doc: "Free space in the data directory below which the server accepts no sends, uploads and imports (503). Running requests continue. By default 128 MiB, or 5 % of a smaller disk; 0 turns the check off."},
		{Key: "limits.max_connections", Kind: Integer, Default: defaultMaxConnections, Min: bound(16), Max: bound(1 << 20), Doc: "Maximum number of connections at a time. Idle connections are closed to make room. If all are in use, a new connection is refused."},
		{Key: "limits.max_connections_per_address", Kind: Integer, Default: defaultMaxConnectionsPerAddress, Min: bound(1), Max: bound(1 << 20), Doc: "Maximum number of connections of one address, or of one /64 network of IPv6. It does not apply to addresses in `server.trusted_proxies`."},
		{Key: "limits.max_followers", Kind: Integer, Default: defaultMaxFollowers, Min: bound(1), Max: bound(1 << 20), Doc: "Maximum number of event streams, polls and [relayed requests](openai.md) at a time. The answer to a further one is 503."},
		{Key: "limits.max_followers_per_token", Kind: Integer, Default: defaultMaxFollowersPerToken, Min: bound(1), Max: bound(1 << 20), Doc: "Maximum number of event streams, polls and [relayed requests](openai.md) of one token; on a server without tokens, of all callers. The answer to a further one is 429."},
		{Key: "limits.max_inflight_bytes", Kind: Integer, Default: defaultMaxInflight, Min: bound(1 << 20), Max: bound(1 << 40), Doc: "Maximum number of bytes that wait to be read by clients, in answers with events or with a session's messages. The first 64 KiB of each answer do not count. At the limit the server disconnects clients that do not read. If all clients read, the answer to a further call is 503. The bodies of relayed requests have another account of this size."},
		{Key: "limits.max_inflight_bytes_per_token", Kind: Integer, Default: defaultMaxInflightPerToken, Min: bound(1 << 20), Max: bound(1 << 40), Doc: "Like `limits.max_inflight_bytes`, but for one token; the answer is 429."},
	}
}

// AgentKeys is the schema of the keys that the service itself owns in the first three layers of a config.
func AgentKeys() Schema {
	return Schema{
		{Key: "title", Kind: Object, Doc: "If given, also as `{}`, a model writes the titles of sessions; see [the API](http.md#titles)."},
		{Key: "title.model", Kind: String, Doc: "Model that writes titles; by default that of the agent."},
		{Key: "title.prompt", Kind: String, Doc: "Instruction to the model, which then gets the first message and its reply."},
	}
}

func bound(v float64) *float64 { return &v }

// text converts a check of a string to a Field.Check.
func text(check func(string) error) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var s string
		mustDecode(raw, &s)
		return check(s)
	}
}

// each converts a check of a string to a Field.Check of a list of strings.
func each(check func(string) error) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var list []string
		mustDecode(raw, &list)
		for i, s := range list {
			if err := check(s); err != nil {
				return fmt.Errorf("entry %d %w", i, err)
			}
		}
		return nil
	}
}

func checkListen(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("is %q, which is not an address; must be HOST:PORT, such as 127.0.0.1:8787", loquat.Clip(addr, loquat.Excerpt))
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("has the port %q; must be 0 to 65535", loquat.Clip(port, loquat.Excerpt))
	}
	return nil
}

// IsLoopback reports whether an address to listen on is reached from this machine only.
func IsLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// overlap reports whether two addresses to listen on have a port in common.
func overlap(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	isAny := func(host string) bool {
		ip, err := netip.ParseAddr(host)
		return host == "" || err == nil && ip.IsUnspecified()
	}
	return hostA == hostB || isAny(hostA) || isAny(hostB)
}

func checkURL(s string, schemes ...string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || !slices.Contains(schemes, u.Scheme) {
		return nil, fmt.Errorf("is not a URL that can be used here; must begin with %s:// and name a host", strings.Join(schemes, ":// or "))
	}
	return u, nil
}

func checkHTTPURL(s string) error {
	_, err := checkURL(s, "http", "https")
	return err
}

func checkBridgeURL(s string) error {
	_, err := checkURL(s, "ws", "wss")
	return err
}

// checkContact checks the contact that calls of push services carry. Some services refuse others.
func checkContact(s string) error {
	if len(s) > maxContact {
		return fmt.Errorf("has %d bytes; must have at most %d", len(s), maxContact)
	}
	if address, ok := strings.CutPrefix(s, "mailto:"); ok {
		if at, err := mail.ParseAddress(address); err != nil || at.Address != address {
			return errors.New("is not an address; must be like mailto:admin@example.org")
		}
		return nil
	}
	if _, err := checkURL(s, "https"); err != nil {
		return errors.New("must be like mailto:admin@example.org, or begin with https:// and name a host")
	}
	return nil
}

// maxContact is the most bytes of push.web.subject.
const maxContact = 500

func checkStoreURL(s string) error {
	if !strings.HasPrefix(s, "postgres://") && !strings.HasPrefix(s, "postgresql://") {
		return errors.New("is not the address of a database; must begin with postgres://, as postgres://USER:PASSWORD@HOST:5432/DATABASE")
	}
	if dburl.Redact(s).Unescaped {
		return errors.New("has a password with characters that mean something else in a URL; write @ as %40, / as %2F and ? as %3F")
	}
	return nil
}

func checkAssetsURL(s string) error {
	_, err := asset.ParseLocation(s)
	return err
}

func checkOrigin(s string) error {
	u, err := checkURL(s, "http", "https")
	if err != nil {
		return err
	}
	if u.Scheme+"://"+u.Host != s {
		return errors.New("is more than an origin; must have only scheme, host and port, such as https://chat.example.org")
	}
	return nil
}

func checkProxy(s string) error {
	if _, err := netip.ParseAddr(s); err == nil {
		return nil
	}
	if _, err := netip.ParsePrefix(s); err != nil {
		return fmt.Errorf("is %q; must be an IP address or a network, such as 10.0.0.0/8", loquat.Clip(s, loquat.Excerpt))
	}
	return nil
}

// checkJWT reports all problems of the list.
func checkJWT(raw json.RawMessage) error {
	var list []json.RawMessage
	mustDecode(raw, &list)
	var faults []string
	issuers := map[string]bool{}
	for i, entry := range list {
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Sprintf("entry %d ", i)+fmt.Sprintf(format, args...))
		}
		var j JWT
		d := json.NewDecoder(bytes.NewReader(entry))
		d.DisallowUnknownFields()
		if err := d.Decode(&j); err != nil {
			fault("is wrong: %s; issuer, audience, jwks_url, user_claim, scope_claim and role_claim must be strings", strings.TrimPrefix(err.Error(), "json: "))
			continue
		}
		keys, err := url.Parse(j.Keys)
		switch {
		case j.Issuer == "" || issuers[j.Issuer]:
			fault("has no issuer, or the issuer of another entry; must have the text of the claim iss")
		case j.Audience == "":
			fault("has no audience; must have a text that the claim aud has to contain")
		case err != nil || keys.Host == "" || keys.Scheme != "https" && (keys.Scheme != "http" || !IsLoopback(net.JoinHostPort(keys.Hostname(), "80"))):
			fault("has the jwks_url %q; must be an https URL, or an http URL of this machine", loquat.Clip(j.Keys, loquat.Excerpt))
		}
		issuers[j.Issuer] = true
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}

// checkPrices reports all problems of prices.
func checkPrices(raw json.RawMessage) error {
	prices := map[string]json.RawMessage{}
	mustDecode(raw, &prices)
	var faults []string
	for _, model := range slices.Sorted(maps.Keys(prices)) {
		var p struct{ Input, CachedInput, Output *float64 }
		d := json.NewDecoder(bytes.NewReader(prices[model]))
		d.DisallowUnknownFields()
		var given Price
		fault := ""
		switch err := d.Decode(&given); {
		case err != nil:
			fault = strings.TrimPrefix(err.Error(), "json: ")
		case json.Unmarshal(prices[model], &p) != nil || p.Input == nil || p.Output == nil:
			fault = "input or output is missing"
		case given.Input < 0 || given.Output < 0 || given.CachedInput != nil && *given.CachedInput < 0:
			fault = "a price is below 0"
		default:
			continue
		}
		faults = append(faults, fmt.Sprintf("entry %q is wrong: %s; must have input, output and, if wanted, cached_input: prices of a million tokens", loquat.Clip(model, loquat.Excerpt), fault))
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}

// checkAuthTokens reports all problems of the list. It never shows a token.
func checkAuthTokens(raw json.RawMessage) error {
	var list []json.RawMessage
	mustDecode(raw, &list)
	var faults []string
	names, tokens := map[string]bool{}, map[string]bool{}
	for i, entry := range list {
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Sprintf("entry %d ", i)+fmt.Sprintf(format, args...))
		}
		var t AuthToken
		if err := json.Unmarshal(entry, &t); err != nil {
			fault("is wrong; name, token, scope, session_id and user must be strings")
			continue
		}
		fields, _ := asObject(entry)
		for key := range fields {
			if known := []string{"name", "token", "scope", "session_id", "user", "role"}; !slices.Contains(known, key) {
				fault("has the key %s; must be one of %s", loquat.Clip(key, loquat.Excerpt), strings.Join(known, ", "))
			}
		}
		switch {
		case t.Name == "" || names[t.Name]:
			fault("has no name, or the name of another token; each token needs its own")
		case t.Token == "" || tokens[t.Token]:
			fault("has no token, or the same as another entry; each entry needs its own")
		case t.Scope != "full" && t.Scope != "read" && t.Scope != "session" && t.Scope != "user":
			fault("has the scope %q; must be full, read, session or user", loquat.Clip(t.Scope, loquat.Excerpt))
		case (t.Scope == "session") != (t.SessionID != ""):
			fault("must have a session_id with the scope session, and only then")
		case (t.Scope == "user") != (t.User != ""):
			fault("must have a user with the scope user, and only then")
		case t.User != "" && loquat.CheckUser("user", t.User) != nil:
			fault("has a user that is too long or has control characters; must have 1 to 128 characters")
		}
		names[t.Name], tokens[t.Token] = true, true
	}
	if len(faults) > 0 {
		slices.Sort(faults)
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}

// processPrefix precedes the directory of a process plugin.
const processPrefix = "path:"

func isProcess(entry string) bool { return strings.HasPrefix(entry, processPrefix) }

// checkPlugin checks one entry of `plugins`. known lists the compiled-in plugins.
func checkPlugin(entry string, known []string) error {
	if dir, ok := strings.CutPrefix(entry, processPrefix); ok {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("is %q; after path: comes an absolute directory", loquat.Clip(entry, loquat.Excerpt))
		}
		return nil
	}
	if !slices.Contains(known, entry) {
		return fmt.Errorf("is %q, which is not compiled in; must be path: and an absolute directory, or one of %s", loquat.Clip(entry, loquat.Excerpt), strings.Join(known, ", "))
	}
	return nil
}
