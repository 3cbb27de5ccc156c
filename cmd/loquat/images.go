package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"loquat/internal/asset"
	"loquat/internal/asset/files"
	"loquat/internal/asset/s3"
	"loquat/internal/config"
	"loquat/internal/images"
	"loquat/internal/store"
)

// openImages opens the place of the images of a configuration, and the directory in which
// images are received.
func openImages(ctx context.Context, cfg *config.Config, driver store.Driver, s *store.Store, log *slog.Logger) (images.Keeper, *asset.Spool, error) {
	path := filepath.Join(cfg.Server.DataDir, "assets")
	uploads, err := asset.OpenSpool(filepath.Join(path, files.Incoming), cfg.Limits.MaxAssetBytes)
	if err != nil {
		return nil, nil, err
	}
	database, ok := driver.(interface{ Images() asset.Store })
	if !ok {
		dir, err := files.Open(path)
		if err != nil {
			return nil, nil, err
		}
		return images.NewLocal(s, dir, log), uploads, nil
	}
	opts := images.SharedOptions{Store: s, Bytes: database.Images(), Logger: log}
	if cfg.Assets.URL != "" {
		if opts.Bytes, err = openBucket(ctx, cfg.Assets, log); err != nil {
			return nil, nil, err
		}
		opts.External = true
	}
	shared := images.NewShared(opts)
	return shared, uploads, takeIn(ctx, shared, path, log)
}

// openBucket opens the object store of a configuration. If the object store refuses the server, the
// configuration is wrong. If it cannot be reached, the server starts without images.
func openBucket(ctx context.Context, cfg config.Assets, log *slog.Logger) (asset.Store, error) {
	location, err := asset.ParseLocation(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("assets.url %w", err)
	}
	bucket, err := s3.Open(ctx, s3.Options{Location: location, AccessKeyID: cfg.AccessKeyID, SecretAccessKey: cfg.SecretAccessKey})
	down, ok := errors.AsType[*asset.UnavailableError](err)
	_, refused := errors.AsType[*s3.RefusedError](err)
	switch {
	case err == nil:
		return bucket, nil
	case ok && !refused:
		log.Error("the server starts without images: "+down.Text, "remedy", "start the object store, or correct assets.url: the server goes on by itself", "error", down.Err)
		return bucket, nil
	default:
		return nil, fmt.Errorf("assets.url: %w", err)
	}
}

// takeIn stores the images that a server of an earlier version has left in its data directory.
func takeIn(ctx context.Context, to *images.Shared, dir string, log *slog.Logger) error {
	if !files.Any(dir) {
		return nil
	}
	stored, missing, err := to.TakeIn(ctx, dir)
	if err != nil {
		return fmt.Errorf("take in the images of %s: %w", dir, err)
	}
	if stored > 0 {
		log.Info("the images of the data directory are in the shared store of images now; their files are not needed any more", "dir", dir, "images", stored)
	}
	if len(missing) > 0 {
		log.Warn("images are missing or damaged in the data directory", "dir", dir, "images", len(missing), "first", missing[0])
	}
	return nil
}
