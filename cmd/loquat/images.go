package main

import (
	"log/slog"
	"path/filepath"

	"loquat/internal/asset"
	"loquat/internal/asset/files"
	"loquat/internal/config"
	"loquat/internal/images"
	"loquat/internal/store"
)

// openImages opens the place of the images of a configuration, and the directory in which
// images are received.
func openImages(cfg *config.Config, s *store.Store, log *slog.Logger) (images.Keeper, *asset.Spool, error) {
	path := filepath.Join(cfg.Server.DataDir, "assets")
	uploads, err := asset.OpenSpool(filepath.Join(path, files.Incoming), cfg.Limits.MaxAssetBytes)
	if err != nil {
		return nil, nil, err
	}
	dir, err := files.Open(path)
	if err != nil {
		return nil, nil, err
	}
	return images.NewLocal(s, dir, log), uploads, nil
}
