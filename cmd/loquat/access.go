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
	"loquat/internal/store/sqlite"
)

// openAccess loads the credentials of a server.
func openAccess(ctx context.Context, c *configuration, s *store.Store, log *slog.Logger) (*auth.Keeper, error) {
	cfg := c.live.Now()
	return auth.Open(ctx, auth.Options{
		Store: s, Configured: c.access(cfg), Logger: log,
		Exposed: !c.opts.insecure && isReached(cfg.Server),
	})
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
// no tokens.
func storedTokens(ctx context.Context, cfg *config.Config, insecure bool, log *slog.Logger) (bool, error) {
	if insecure || cfg.Server.Closed() || config.IsLoopback(cfg.Server.Listen) || cfg.Store.URL == "" && !sqlite.Exists(cfg.Server.DataDir) {
		return false, nil
	}
	keeper, done, err := openStored(ctx, cfg, log)
	if err != nil {
		return false, err
	}
	return keeper.Closed(), done()
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
