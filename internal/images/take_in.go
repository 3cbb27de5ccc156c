package images

import (
	"context"
	"fmt"
	"time"

	"loquat/internal/asset"
	"loquat/internal/asset/files"
	"loquat/internal/store"
)

// progressEvery is how often TakeIn logs how far it is.
const progressEvery = 10 * time.Second

// TakeIn stores the images that sessions own, but that have no object, from a directory of
// images: that of a server that kept them in files. It leaves the files as they are. It returns
// the number of images that it stored, and the hashes of those that are missing or damaged in
// the directory.
func (s *Shared) TakeIn(ctx context.Context, dir string) (stored int, missing []string, err error) {
	said := time.Now()
	for after := ""; ; {
		list, err := store.Read(ctx, s.opts.Store, func(r *store.Reader) ([]store.ImageFile, error) { return r.WithoutObject(after, freedAtATime) })
		if err != nil || len(list) == 0 {
			return stored, missing, err
		}
		for _, f := range list {
			after = f.SHA256
			if err := files.Verify(dir, f.SHA256, f.Size, true); files.IsLost(err) {
				missing = append(missing, f.SHA256)
				continue
			} else if err != nil {
				return stored, missing, err
			}
			if err := s.takeInFile(ctx, dir, f); err != nil {
				return stored, missing, fmt.Errorf("take in the image %s: %w", f.SHA256, err)
			}
			stored++
			if time.Since(said) >= progressEvery {
				said = time.Now()
				s.log.Info("taking in the images of the data directory", "stored", stored)
			}
		}
	}
}

// takeInFile stores one image, unless it has lost its last owner meanwhile.
func (s *Shared) takeInFile(ctx context.Context, dir string, f store.ImageFile) error {
	u := asset.FileUpload(files.Path(dir, f.SHA256), f.SHA256, f.Size)
	return s.Add(ctx, u, func(adopt func(*store.Tx) error) (owned bool, err error) {
		err = s.opts.Store.Update(ctx, func(tx *store.Tx) (err error) {
			if owned, err = tx.Owned(f.SHA256); err != nil || !owned {
				return err
			}
			return adopt(tx)
		})
		return owned, err
	})
}
