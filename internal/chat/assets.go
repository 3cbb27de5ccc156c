package chat

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"loquat"
	"loquat/internal/asset"
	"loquat/internal/headroom"
	"loquat/internal/images"
	"loquat/internal/plugin"
	"loquat/internal/store"
)

var _ plugin.Assets = (*Assets)(nil)

// Assets keeps the images of sessions.
type Assets struct {
	store   *store.Store
	images  images.Keeper
	uploads *asset.Spool
	room    *headroom.Headroom
}

// StoreAsset stores an image for a session. The bytes decide the media type; mediaType must
// agree unless it is "".
func (s *Assets) StoreAsset(ctx context.Context, sessionID, name, mediaType string, content io.Reader) (loquat.Asset, error) {
	return s.add(ctx, Call{}, sessionID, name, mediaType, content)
}

// AddAsset is StoreAsset with the parameters of a change, for which the server has to have room. The hash of the image
// is part of the call's body hash.
func (s *Assets) AddAsset(ctx context.Context, call Call, sessionID, name, mediaType string, content io.Reader) (loquat.Asset, error) {
	if err := s.room.ForData(); err != nil {
		return loquat.Asset{}, err
	}
	return s.add(ctx, call, sessionID, name, mediaType, content)
}

func (s *Assets) add(ctx context.Context, call Call, sessionID, name, mediaType string, content io.Reader) (loquat.Asset, error) {
	if err := CheckAssetName("body.name", name); err != nil {
		return loquat.Asset{}, err
	}
	name = lastPart(name)
	if call.IdempotencyKey == "" { // a repeat gets its answer even if the session was deleted meanwhile
		if _, err := readHead(ctx, s.store, sessionID); err != nil {
			return loquat.Asset{}, err
		}
	}
	upload, err := s.uploads.Receive(content, mediaType)
	if err != nil {
		return loquat.Asset{}, assetError("body", err)
	}
	defer upload.Discard()
	call.BodyHash = sha256.Sum256(fmt.Appendf(call.BodyHash[:], "%s %s", upload.SHA256, name))
	a := loquat.Asset{AssetID: newID(), MediaType: upload.MediaType, Size: upload.Size, SHA256: upload.SHA256, Name: name}
	var out loquat.Asset
	err = s.images.Add(ctx, upload, func(adopt func(*store.Tx) error) (owned bool, err error) {
		out, err = change(ctx, s.store, call, func(tx *store.Tx) (loquat.Asset, error) {
			h, err := headFor(tx, call, sessionID)
			if err != nil {
				return loquat.Asset{}, err
			}
			if err := call.By.mayStore(&tx.Reader); err != nil {
				return loquat.Asset{}, err
			}
			if err := requireFewUploads(tx, h); err != nil {
				return loquat.Asset{}, err
			}
			if err := adopt(tx); err != nil {
				return loquat.Asset{}, err
			}
			return a, tx.AddAsset(h, a)
		})
		return err == nil && out.AssetID == a.AssetID, err
	})
	if failed, ok := errors.AsType[*images.StoreError](err); ok {
		return loquat.Asset{}, assetError("body", failed)
	}
	return out, err
}

// OpenAsset returns an image of a session and its bytes. The caller closes them.
func (s *Assets) OpenAsset(ctx context.Context, sessionID, assetID string) (loquat.Asset, io.ReadSeekCloser, error) {
	a, err := store.Read(ctx, s.store, func(r *store.Reader) (loquat.Asset, error) {
		h, err := r.Head(sessionID)
		if err != nil {
			return loquat.Asset{}, err
		}
		return r.Asset(h, assetID)
	})
	if err != nil {
		return loquat.Asset{}, nil, err
	}
	f, err := s.images.Open(ctx, a.SHA256, a.Size)
	if down, ok := errors.AsType[*asset.UnavailableError](err); ok {
		return loquat.Asset{}, nil, &loquat.Error{Code: loquat.CodeUnavailable, Detail: "the image cannot be read at the moment: " + down.Text, Err: err}
	}
	if err != nil {
		return loquat.Asset{}, nil, fmt.Errorf("open asset %s: %w", assetID, err)
	}
	return a, f, nil
}

// DeleteAsset removes an image from a session. It fails while a message or a queued send
// uses the image.
func (s *Assets) DeleteAsset(ctx context.Context, sessionID, assetID string) error {
	return s.RemoveAsset(ctx, Call{}, sessionID, assetID)
}

// RemoveAsset is DeleteAsset with the parameters of a change.
func (s *Assets) RemoveAsset(ctx context.Context, call Call, sessionID, assetID string) error {
	_, err := change(ctx, s.store, call, func(tx *store.Tx) (struct{}, error) { return struct{}{}, removeAsset(tx, call, sessionID, assetID) })
	return err
}

func removeAsset(tx *store.Tx, call Call, sessionID, assetID string) error {
	h, err := headFor(tx, call, sessionID)
	if err != nil {
		return err
	}
	a, err := tx.Asset(h, assetID)
	if err != nil {
		return err
	}
	if err := requireUnused(tx, h, assetID); err != nil {
		return err
	}
	return tx.RemoveAsset(h, a)
}

// The bounds of uploads that no message has used: their number for a session, and their age.
const (
	maxUploads = 100
	uploadAge  = 7 * 24 * time.Hour
)

func requireFewUploads(tx *store.Tx, h store.Head) error {
	n, err := tx.CountUnattached(h)
	if err == nil && n >= maxUploads {
		err = loquat.Errorf(loquat.CodeRateLimited, "session %s has %d images that no message has used; attach or delete some. The server removes them after a week", h.SessionID, n)
	}
	return err
}

func requireUnused(tx *store.Tx, h store.Head, assetID string) error {
	index, used, err := tx.AssetUse(h, assetID)
	if err != nil {
		return err
	}
	if used {
		return loquat.Errorf(loquat.CodeConflict, "asset %s is used by message %d of session %s; delete the message first", assetID, index, h.SessionID)
	}
	n, kept, err := tx.KeptWith(h, assetID)
	if err != nil {
		return err
	}
	if kept {
		return loquat.Errorf(loquat.CodeConflict, "asset %s is used by alternative %d of session %s; remove that first", assetID, n, h.SessionID)
	}
	unended, err := tx.Unended(&h)
	if err != nil {
		return err
	}
	for _, q := range unended {
		stored, err := sendOf(q)
		if err != nil {
			return err
		}
		if stored.Message != nil && slices.Contains(stored.Message.AssetIDs(), assetID) {
			return loquat.Errorf(loquat.CodeConflict, "asset %s is used by request %s, which is queued on session %s; cancel it first", assetID, q.RequestID, h.SessionID)
		}
	}
	return nil
}

// assetError returns the error for an image that cannot be stored, with its location in the
// input.
func assetError(place string, err error) error {
	if r, ok := errors.AsType[*asset.ImageError](err); ok {
		e := loquat.Invalid(place, "%s", r.Clause)
		e.Code = r.Code
		return e
	}
	_, coded := errors.AsType[*loquat.Error](err) // from the reader of the content
	if coded || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	detail := "the image cannot be stored at the moment"
	if down, ok := errors.AsType[*asset.UnavailableError](err); ok {
		detail += ": " + down.Text
	}
	return &loquat.Error{Code: loquat.CodeUnavailable, Detail: detail + "; nothing was stored, try again", Err: err}
}

// maxAssetName is the length of an asset's name in characters.
const maxAssetName = 255

// CheckAssetName requires a short name without control characters.
func CheckAssetName(location, name string) error {
	bad := !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
	if bad || utf8.RuneCountInString(name) > maxAssetName {
		return loquat.Invalid(location, "has to be at most %d printable characters", maxAssetName)
	}
	return nil
}

// lastPart returns the last part of a name that may be a path.
func lastPart(name string) string {
	name = path.Base(strings.ReplaceAll(strings.TrimSpace(name), `\`, "/"))
	if name == "." || name == "/" {
		return ""
	}
	return name
}

// cleanUp removes images that nothing needs any more.
func (s *Assets) cleanUp(ctx context.Context) error {
	if err := s.removeUnusedUploads(ctx, time.Now().Add(-uploadAge)); err != nil {
		return err
	}
	return s.images.CleanUp(ctx)
}

// removeUnusedUploads removes images that were uploaded before a time and that no message has used.
// Images of queued sends stay.
func (s *Assets) removeUnusedUploads(ctx context.Context, before time.Time) error {
	type removed struct{ read, kept int }
	for kept := 0; ; {
		some, err := store.Do(ctx, s.store, func(tx *store.Tx) (out removed, err error) {
			old, err := tx.Unattached(before, kept, maxUploads)
			out.read = len(old)
			for _, a := range old {
				err := removeAsset(tx, Call{}, a.SessionID, a.AssetID)
				if loquat.CodeOf(err) == loquat.CodeConflict {
					out.kept++
				} else if err != nil {
					return out, err
				}
			}
			return out, err
		})
		if err != nil {
			return fmt.Errorf("remove unused uploads: %w", err)
		}
		if some.read == 0 {
			return nil
		}
		kept += some.kept
	}
}
