package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"

	"loquat/internal/auth"
	"loquat/internal/config"
	"loquat/internal/jwt"
	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/sqlite"
)

// openAccess loads the credentials of a server.
func openAccess(ctx context.Context, c *configuration, s *store.Store, log *slog.Logger) (*auth.Keeper, error) {
	return auth.Open(ctx, auth.Options{Store: s, Configured: c.access(c.live.Now()), Logger: log})
}

// isReached reports whether others can reach a server: at the address where it listens, or through a proxy.
func isReached(s config.Server) bool {
	u, err := url.Parse(s.PublicURL)
	through := s.PublicURL != "" && err == nil && !config.IsLoopback(net.JoinHostPort(u.Hostname(), "80"))
	return through || !config.IsLoopback(s.Listen)
}

// configTokens returns the tokens of a configuration.
func configTokens(cfg *config.Config) (tokens []auth.ConfigToken) {
	for _, t := range cfg.Server.AuthTokens {
		tokens = append(tokens, auth.ConfigToken(t))
	}
	return tokens
}

// configIssuers returns the verifier of the tokens of other systems, nil if there are none.
func configIssuers(cfg *config.Config) *jwt.Verifier {
	var issuers []jwt.Issuer
	for _, i := range cfg.Server.JWT {
		issuers = append(issuers, jwt.Issuer(i))
	}
	return jwt.New(issuers)
}

// storedTokens reports whether the store holds tokens. It looks only if that decides
// whether the configuration is valid: others can reach the server, and the configuration has
// no tokens. It changes nothing, and a server may use the store.
func storedTokens(ctx context.Context, cfg *config.Config, insecure bool, log *slog.Logger) (bool, error) {
	switch dir := cfg.Server.DataDir; {
	case insecure || cfg.Server.Closed() || config.IsLoopback(cfg.Server.Listen):
		return false, nil
	case cfg.Store.URL != "":
		return postgres.HasTokens(ctx, postgres.Options{URL: cfg.Store.URL, Logger: log})
	case sqlite.Exists(dir):
		return sqlite.HasTokens(ctx, dir, log)
	}
	return false, nil
}

// openStored opens the tokens of a store that no server uses.
func openStored(ctx context.Context, cfg *config.Config, log *slog.Logger) (*auth.Keeper, func() error, error) {
	driver, err := openDriver(ctx, cfg, false, log)
	if err != nil {
		return nil, nil, err
	}
	s, err := store.Open(ctx, driver, store.Options{Logger: log, SkipLossCheck: true})
	if err != nil {
		return nil, nil, errors.Join(err, driver.Close())
	}
	var c configuration
	c.use(cfg)
	keeper, err := openAccess(ctx, &c, s, log)
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return keeper, s.Close, nil
}
