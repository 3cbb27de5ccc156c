package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"reflect"

	"loquat"
	"loquat/internal/archive"
	"loquat/internal/asset"
	"loquat/internal/images"
	"loquat/internal/store"
)

// Archived returns a session as archives have it, and its newest checkpoint. The bytes of its
// images are read while ctx lasts. An image whose bytes are lost is left out.
func (s *Service) Archived(ctx context.Context, id string) (archive.Session, loquat.EventID, error) {
	var out archive.Session
	var checkpoint loquat.EventID
	var used []loquat.Asset
	err := s.store.View(ctx, func(r *store.Reader) error {
		h, err := r.Head(id)
		if err != nil {
			return err
		}
		checkpoint = h.Checkpoint
		out = archive.Session{SessionID: h.SessionID, AgentID: h.AgentID, CreatedAt: h.CreatedAt, UpdatedAt: h.UpdatedAt, Metadata: s.withoutSecrets(h.Metadata)}
		if out.Messages, err = r.Messages(h, h.Rev, 0, -1); err != nil {
			return err
		}
		used, err = r.UsedAssets(h)
		return err
	})
	for _, a := range used {
		content, openErr := s.Assets.images.Open(ctx, a.SHA256, a.Size)
		if errors.Is(openErr, fs.ErrNotExist) {
			s.log.Warn("an image is lost and is left out of an archive", "session", id, "asset", a.AssetID, "error", openErr)
			continue
		}
		if openErr != nil {
			return archive.Session{}, 0, fmt.Errorf("open asset %s: %w", a.AssetID, openErr)
		}
		err = errors.Join(err, content.Close())
		out.Images = append(out.Images, archive.Image{Asset: a, Open: func() (io.ReadCloser, error) { return s.Assets.images.Open(ctx, a.SHA256, a.Size) }})
	}
	return out, checkpoint, err
}

// withoutSecrets returns the metadata of a session without the overrides that hold secrets.
func (s *Service) withoutSecrets(metadata loquat.Object) loquat.Object {
	overrides := metadata.Object(loquat.MetaOverrides)
	if overrides == nil {
		return metadata
	}
	redacted := s.settings.RedactOverrides(overrides)
	kept := loquat.Object{}
	for key, value := range overrides {
		if equalJSON(value, redacted[key]) {
			kept[key] = value
		}
	}
	if len(kept) == len(overrides) {
		return metadata
	}
	return metadata.Clone().Set(loquat.MetaOverrides, kept)
}

func equalJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// ImportOptions say how sessions are imported.
type ImportOptions struct {
	NewIDs  bool   // each session gets a new id
	AgentID string // of all sessions, unless empty
}

// Import stores sessions that were read from a file, one after the other and each whole or not at
// all. It publishes session_created and checkpoint for each. A session that is there already, with
// the same content, is skipped. So an import that was interrupted can be repeated.
func (s *Service) Import(ctx context.Context, items iter.Seq2[archive.Item, error], o ImportOptions) (loquat.ImportReport, error) {
	report := loquat.ImportReport{Sessions: []loquat.ImportedSession{}}
	if err := checkImport(s, o); err != nil {
		return report, err
	}
	for item, err := range items {
		if ctx.Err() != nil {
			return report, context.Cause(ctx)
		}
		if err != nil {
			if _, ofBody := errors.AsType[*loquat.Error](err); ofBody && len(report.Sessions) == 0 {
				return report, err
			}
			report.Error = errorText(err)
			break
		}
		out := loquat.ImportedSession{Place: item.Place, SessionID: loquat.Clip(item.Session.SessionID, loquat.Excerpt), Notes: item.Notes, Status: loquat.ImportFailed}
		if err = item.Err; err == nil {
			err = s.importSession(ctx, item.Session, o, &out)
		}
		if code := loquat.CodeOf(err); item.Err == nil && (code == loquat.CodeInternal || code == loquat.CodeUnavailable) {
			return report, err
		}
		if err != nil {
			out.Error = errorText(err)
		}
		report.Add(out)
	}
	return report, nil
}

func checkImport(s *Service, o ImportOptions) error {
	if o.AgentID == "" {
		return nil
	}
	return s.settings.CheckAgent("query.agent_id", o.AgentID)
}

// errorText returns the text of an error for a client, without its code.
func errorText(err error) string {
	if e, ok := errors.AsType[*loquat.Error](err); ok {
		return e.Detail
	}
	return loquat.Clip(err.Error(), loquat.MaxDetail)
}

// importSession stores one session and sets the status of out.
func (s *Service) importSession(ctx context.Context, in archive.Session, o ImportOptions, out *loquat.ImportedSession) error {
	if o.NewIDs {
		in.SessionID = newID()
	}
	if o.AgentID != "" {
		in.AgentID = o.AgentID
	}
	out.SessionID = loquat.Clip(in.SessionID, loquat.Excerpt)
	note := func(format string, args ...any) {
		out.Notes = append(out.Notes, loquat.Clip(fmt.Sprintf(format, args...), loquat.MaxDetail))
	}
	if err := s.prepareImport(ctx, &in, note); err != nil {
		return err
	}
	uploads, err := s.Assets.receive(&in, note)
	defer func() {
		for _, u := range uploads {
			u.Discard()
		}
	}()
	if err != nil {
		return err
	}
	there, err := s.isThere(ctx, in)
	if err != nil {
		return err
	}
	if out.Status = loquat.ImportSkipped; there {
		return nil
	}
	out.Status = loquat.ImportFailed
	if err := s.storeSession(ctx, in, uploads); err != nil {
		return err
	}
	out.Status = loquat.ImportStored
	return nil
}

// prepareImport checks a session and removes from it what this server cannot take over.
func (s *Service) prepareImport(ctx context.Context, in *archive.Session, note func(string, ...any)) error {
	if in.SessionID == "" {
		return loquat.Invalid("session_id", "is empty; import with new_ids")
	}
	if err := checkID("session_id", in.SessionID); err != nil {
		return err
	}
	if in.AgentID == "" {
		return loquat.Invalid("agent_id", "is empty")
	}
	in.AgentID = loquat.CleanText(in.AgentID)
	in.Metadata = in.Metadata.Clone()
	in.Metadata.Clean()
	if err := s.settings.CheckAgent("agent_id", in.AgentID); err != nil {
		note("agent %q is not configured here, and metadata.overrides are left out; choose an agent before the session is continued", loquat.Clip(in.AgentID, loquat.Excerpt))
		delete(in.Metadata, loquat.MetaOverrides)
	} else if raw, ok := in.Metadata[loquat.MetaOverrides]; ok {
		if err := s.settings.CheckOverrides(ctx, in.AgentID, nil, raw, mergePatch); err != nil {
			note("metadata.overrides are left out: %s", errorText(err))
			delete(in.Metadata, loquat.MetaOverrides)
		}
	}
	ids := make(map[string]int, len(in.Messages))
	for i := range in.Messages {
		m := &in.Messages[i]
		if first, twice := ids[m.ID]; twice {
			return loquat.Invalid(fmt.Sprintf("messages[%d].id", i), "is also the id of messages[%d]", first)
		}
		ids[m.ID] = i
		m.ID, m.Content = loquat.CleanText(m.ID), loquat.CleanText(m.Content)
		m.Metadata = m.Metadata.Clone()
		m.Metadata.Clean()
		dropFaultyAttachments(fmt.Sprintf("messages[%d]", i), m, note)
	}
	return nil
}

// dropFaultyAttachments removes those attachments of a message that are not images.
func dropFaultyAttachments(place string, m *loquat.Message, note func(string, ...any)) {
	raw, ok := m.Metadata[loquat.MetaAttachments]
	if !ok {
		return
	}
	var list, kept []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		note("%s.metadata.attachments is not a list and is left out", place)
		delete(m.Metadata, loquat.MetaAttachments)
		return
	}
	for i, item := range list {
		one := loquat.Message{Metadata: loquat.Object{}.Set(loquat.MetaAttachments, []json.RawMessage{item})}
		if _, err := readAttachments("attachment", &one); err != nil {
			note("%s.metadata.attachments[%d] is left out: %s", place, i, errorText(err))
			continue
		}
		kept = append(kept, item)
	}
	if len(kept) < len(list) {
		m.Metadata.Set(loquat.MetaAttachments, kept)
	}
	if len(kept) == 0 {
		delete(m.Metadata, loquat.MetaAttachments)
	}
}

// isThere reports whether the server has the session with the same content. It fails if the id is
// taken otherwise.
func (s *Service) isThere(ctx context.Context, in archive.Session) (bool, error) {
	present, _, err := s.Archived(ctx, in.SessionID)
	if loquat.CodeOf(err) == loquat.CodeNotFound {
		return false, nil // storeSession fails if the session was deleted
	}
	if err != nil {
		return false, err
	}
	a, err := archive.Digest(present)
	if err != nil {
		return false, err
	}
	b, err := archive.Digest(in)
	if err != nil {
		return false, err
	}
	if a != b {
		return false, loquat.Errorf(loquat.CodeConflict, "session %s is there already, with another content; import it with new_ids to have both", in.SessionID)
	}
	return true, nil
}

// storeSession stores a session and its images.
func (s *Service) storeSession(ctx context.Context, in archive.Session, uploads []*asset.Upload) (err error) {
	var draft store.Draft
	defer func() {
		if err != nil && draft.Begun() {
			s.dropDraft(ctx, draft)
		}
	}()
	if len(uploads) > 0 || !store.OnePart(in.Messages) {
		if draft, err = store.Do(ctx, s.store, func(tx *store.Tx) (store.Draft, error) { return tx.BeginDraft(newID(), in.AgentID) }); err != nil {
			return err
		}
	}
	for i, u := range uploads {
		if err := s.Assets.own(ctx, draft.Head, in.Images[i].Asset, u); err != nil {
			return err
		}
	}
	draft, rest, err := s.store.FillDraft(ctx, draft, in.Messages)
	if err != nil {
		return err
	}
	return s.store.Update(ctx, func(tx *store.Tx) error {
		taken, err := tx.Taken(in.SessionID)
		if err != nil {
			return err
		}
		if taken {
			return loquat.Errorf(loquat.CodeConflict, "session_id %s is taken, by a session that was deleted or is being imported; import it with new_ids", in.SessionID)
		}
		h, err := tx.FinishDraft(draft, in.SessionID, in.AgentID, in.Metadata, rest)
		if err != nil {
			return err
		}
		if err := publishCreated(tx, &h, ""); err != nil {
			return err
		}
		return tx.SetTimes(&h, in.CreatedAt, in.UpdatedAt)
	})
}

// receive stores the images of a session in the spool. Images that are not images, and those that
// no message uses, are left out. The uploads are those of in.Images.
func (s *Assets) receive(in *archive.Session, note func(string, ...any)) (uploads []*asset.Upload, err error) {
	used := map[string]bool{}
	for _, m := range in.Messages {
		for _, id := range m.AssetIDs() {
			used[id] = true
		}
	}
	var kept []archive.Image
	for i, image := range in.Images {
		place := fmt.Sprintf("images[%d] (%s)", i, loquat.Clip(image.AssetID, loquat.Excerpt))
		if !used[image.AssetID] {
			note("%s is not used by a message, or is given twice, and is left out", place)
			continue
		}
		used[image.AssetID] = false
		upload, err := s.receiveImage(&image)
		if e, ok := errors.AsType[*loquat.Error](err); ok && e.Code != loquat.CodeUnavailable {
			note("%s is left out: %s", place, e.Detail)
			continue
		}
		if err != nil {
			return uploads, err
		}
		kept, uploads = append(kept, image), append(uploads, upload)
	}
	in.Images = kept
	return uploads, nil
}

// receiveImage stores one image in the spool. The bytes decide its media type, size and hash.
func (s *Assets) receiveImage(image *archive.Image) (*asset.Upload, error) {
	if err := checkID("asset_id", image.AssetID); err != nil {
		return nil, err
	}
	if err := CheckAssetName("name", image.Name); err != nil {
		return nil, err
	}
	content, err := image.Open()
	if err != nil {
		return nil, fmt.Errorf("open an image: %w", err)
	}
	defer content.Close()
	upload, err := s.uploads.Receive(content, "")
	if err != nil {
		return nil, assetError("the image", err)
	}
	image.MediaType, image.Size, image.SHA256 = upload.MediaType, upload.Size, upload.SHA256
	return upload, nil
}

// own stores the bytes of an image that a session owns from then on.
func (s *Assets) own(ctx context.Context, h store.Head, a loquat.Asset, upload *asset.Upload) error {
	err := s.images.Add(ctx, upload, func(adopt func(*store.Tx) error) (owned bool, err error) {
		err = s.store.Update(ctx, func(tx *store.Tx) error {
			if err := adopt(tx); err != nil {
				return err
			}
			return tx.AddAsset(h, a)
		})
		return err == nil, err
	})
	if failed, ok := errors.AsType[*images.StoreError](err); ok {
		return assetError("the image", failed)
	}
	return err
}

// CreateTemp creates a file for an image that is being received. The next start removes it if its
// caller does not.
func (s *Assets) CreateTemp() (*os.File, error) { return s.uploads.CreateTemp() }
