package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"loquat/internal/config"
	"loquat/internal/store"
	"loquat/internal/store/datadir"
	"loquat/internal/store/postgres"
	"loquat/internal/store/sqlite"
)

// openDriver opens the database of a configuration: PostgreSQL if store.url names it,
// otherwise the file in the data directory.
func openDriver(ctx context.Context, cfg *config.Config, server bool, log *slog.Logger) (store.Driver, error) {
	dir := cfg.Server.DataDir
	if cfg.Store.URL == "" {
		return sqlite.OpenForServer(ctx, dir, log)
	}
	lock, err := datadir.Make(ctx, dir, log)
	if err != nil {
		return nil, err
	}
	if server && sqlite.Exists(dir) {
		log.Warn("the data directory holds a database of its own, which is not used because store.url is set", "dir", dir)
	}
	node, err := datadir.NodeID(dir)
	if err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	mark := datadir.OpenMark(dir, log)
	db, err := postgres.Open(ctx, postgres.Options{
		URL: cfg.Store.URL, ListenURL: cfg.Store.ListenURL, PoolSize: cfg.Store.PoolSize, StatementTimeout: cfg.Store.StatementTimeout,
		Node: node, Version: version(), Mark: mark, Logger: log,
	})
	if err != nil {
		return nil, errors.Join(err, mark.Close(), lock.Release())
	}
	return &nodeDriver{DB: db, mark: mark, lock: lock}, nil
}

// nodeDriver is a PostgreSQL database and the locked data directory of its node.
type nodeDriver struct {
	*postgres.DB
	mark *datadir.MarkFile
	lock *datadir.Lock
}

// Close closes the database and unlocks the data directory.
func (d *nodeDriver) Close() error {
	return errors.Join(d.DB.Close(), d.mark.Close(), d.lock.Release())
}

// requireEmbedded returns an error if the sessions of a configuration are in PostgreSQL.
func requireEmbedded(cfg *config.Config, remedy string) error {
	if cfg.Store.URL == "" {
		return nil
	}
	return usageError{fmt.Errorf("the sessions are in %s, not in the data directory; %s", storePlace(cfg), remedy)}
}

// storePlace names the place of the sessions.
func storePlace(cfg *config.Config) string {
	if cfg.Store.URL != "" {
		return "the database " + postgres.Masked(cfg.Store.URL)
	}
	return "the data directory " + cfg.Server.DataDir
}
