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
	"slices"

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
		out = archive.Session{SessionID: h.SessionID, AgentID: h.AgentID, Origin: h.Origin, CreatedAt: h.CreatedAt, UpdatedAt: h.UpdatedAt, Metadata: s.withoutSecrets(h.Metadata)}
		if out.Messages, err = r.Messages(h, h.Rev, 0, -1); err != nil {
			return err
		}
		if out.Alternatives, err = r.AlternativeTree(h); err != nil {
			return err
		}
		used, err = usedAssets(r, h, out.Alternatives)
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

// usedAssets returns the assets that the messages of a session use, and then those that only its
// alternatives use.
func usedAssets(r *store.Reader, h store.Head, alternatives []loquat.AlternativeNode) ([]loquat.Asset, error) {
	out, err := r.UsedAssets(h)
	if err != nil || len(alternatives) == 0 {
		return out, err
	}
	seen := map[string]bool{}
	for _, a := range out {
		seen[a.AssetID] = true
	}
	for _, node := range alternatives {
		for _, m := range node.Messages {
			for _, id := range slices.Sorted(slices.Values(m.AssetIDs())) {
				if seen[id] {
					continue
				}
				seen[id] = true
				a, err := r.Asset(h, id)
				if loquat.CodeOf(err) == loquat.CodeNotFound { // it was deleted
					continue
				}
				if err != nil {
					return nil, err
				}
				out = append(out, a)
			}
		}
	}
	return out, nil
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
	By      By     // for whom; the sessions belong to its user
}

// Import stores sessions that were read from a file, one after the other and each whole or not at
// all. It publishes session_created and checkpoint for each. A session that is there already, with
// the same content, is skipped. So an import that was interrupted can be repeated.
func (s *Service) Import(ctx context.Context, items iter.Seq2[archive.Item, error], o ImportOptions) (loquat.ImportReport, error) {
	report := loquat.ImportReport{Sessions: []loquat.ImportedSession{}}
	if err := s.room.ForData(); err != nil {
		return report, err
	}
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
	there, err := s.isThere(ctx, in, o.By)
	if err != nil {
		return err
	}
	if out.Status = loquat.ImportSkipped; there {
		return nil
	}
	out.Status = loquat.ImportStored
	err = s.storeSession(ctx, in, uploads, o.By)
	if loquat.CodeOf(err) == loquat.CodeConflict {
		// Another import of the same file may have stored the session meanwhile.
		if there, thereErr := s.isThere(ctx, in, o.By); thereErr == nil && there {
			out.Status, err = loquat.ImportSkipped, nil
		}
	}
	if err != nil {
		out.Status = loquat.ImportFailed
	}
	return err
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
	if err := checkOrigin(in.Origin); err != nil {
		return err
	}
	if err := checkTree(in.Alternatives, len(in.Messages)); err != nil {
		return err
	}
	ids := make(map[string]string, len(in.Messages))
	return in.EachMessage(func(place string, m *loquat.Message) error {
		if first, twice := ids[m.ID]; twice {
			return loquat.Invalid(place+".id", "is also the id of %s", first)
		}
		ids[m.ID] = place
		m.ID, m.Content = loquat.CleanText(m.ID), loquat.CleanText(m.Content)
		m.Metadata = m.Metadata.Clone()
		m.Metadata.Clean()
		dropFaultyAttachments(place, m, note)
		return nil
	})
}

func checkOrigin(o loquat.Origin) error {
	switch {
	case o.SourceSessionID != "":
		if err := checkID("source_session_id", o.SourceSessionID); err != nil {
			return err
		}
	case o.SourceIndex != nil:
		return loquat.Invalid("source_index", "needs a source_session_id")
	}
	if o.SourceIndex != nil && *o.SourceIndex < 0 {
		return loquat.Invalid("source_index", "is at least 0, not %d", *o.SourceIndex)
	}
	return nil
}

// checkTree returns an error unless alternatives are a tree in a session of count messages: at each
// index one of them is in place and at least one is kept.
func checkTree(nodes []loquat.AlternativeNode, count int) error {
	if len(nodes) > loquat.MaxAlternatives {
		return loquat.Invalid("alternatives", "are more than %d", loquat.MaxAlternatives)
	}
	type place struct{ within, index int }
	inPlace, kept := map[place]int{}, map[place]int{}
	for i, node := range nodes {
		at, first, last := fmt.Sprintf("alternatives[%d]", i), 0, count
		if w := node.Within; w != loquat.OfSession {
			if w < 0 || w >= len(nodes) || nodes[w].InPlace {
				return loquat.Invalid(at+".within", "is %d; it must be the place of a kept alternative", w)
			}
			first, last = nodes[w].Index+1, nodes[w].Index+len(nodes[w].Messages)
		}
		if node.Index < first || node.Index > last {
			return loquat.Invalid(at+".index", "is %d; it must be %d to %d", node.Index, first, last)
		}
		if node.InPlace != (len(node.Messages) == 0) {
			return loquat.Invalid(at, "must have messages, unless it is in place")
		}
		if node.InPlace {
			inPlace[place{node.Within, node.Index}]++
		} else {
			kept[place{node.Within, node.Index}]++
		}
	}
	for i, node := range nodes {
		if at := (place{node.Within, node.Index}); inPlace[at] != 1 || kept[at] == 0 {
			return loquat.Invalid(fmt.Sprintf("alternatives[%d]", i), "is one of %d in place and %d kept at its index; one must be in place, and at least one kept", inPlace[at], kept[at])
		}
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
func (s *Service) isThere(ctx context.Context, in archive.Session, by By) (bool, error) {
	if by.User != "" && loquat.CodeOf(s.CheckUser(ctx, by.User, []string{in.SessionID}, "")) == loquat.CodeNotFound {
		return false, nil // storeSession fails if the id is taken, and nobody learns what somebody else's session has
	}
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
func (s *Service) storeSession(ctx context.Context, in archive.Session, uploads []*asset.Upload, by By) (err error) {
	var draft store.Draft
	ends := make([]store.Draft, len(in.Alternatives))
	defer func() {
		for _, d := range append(ends, draft) {
			if err != nil && d.Begun() {
				s.dropDraft(ctx, d)
			}
		}
	}()
	long := !inOnePart(in)
	if len(uploads) > 0 || long {
		if draft, err = store.Do(ctx, s.store, func(tx *store.Tx) (store.Draft, error) { return tx.BeginDraft(newID(), in.AgentID) }); err != nil {
			return err
		}
	}
	if long {
		if ends, err = s.store.FillEnds(ctx, in.Alternatives, newID); err != nil {
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
			return loquat.Errorf(loquat.CodeConflict, "session_id %s is taken, for example by a session that was deleted or is being imported; import it with new_ids", in.SessionID)
		}
		if err := by.mayAddSession(&tx.Reader, by.User, in.AgentID); err != nil {
			return err
		}
		h, err := tx.FinishDraft(draft, in.SessionID, in.AgentID, in.Metadata, rest)
		if err != nil {
			return err
		}
		if err := tx.SetUser(&h, by.User); err != nil {
			return err
		}
		if in.Origin.SourceSessionID != "" {
			if err := tx.SetOrigin(&h, in.Origin); err != nil {
				return err
			}
		}
		if err := tx.AddAlternatives(&h, in.Alternatives, ends); err != nil {
			return err
		}
		if err := tx.SetTimes(&h, in.CreatedAt, in.UpdatedAt); err != nil {
			return err
		}
		return publishCreated(tx, &h, "")
	})
}

// inOnePart reports whether one transaction can write the session.
func inOnePart(in archive.Session) bool {
	all := slices.Clone(in.Messages)
	for _, node := range in.Alternatives {
		all = append(all, node.Messages...)
	}
	return store.OnePart(all)
}

// receive stores the images of a session in the spool. Images that are not images, and those that
// no message uses, are left out. The rest get the order in which archives have them. The uploads are
// those of in.Images.
func (s *Assets) receive(in *archive.Session, note func(string, ...any)) (uploads []*asset.Upload, err error) {
	uses := imageUses(*in)
	var kept []archive.Image
	var places []int // of kept images, and of uploads
	for i, image := range in.Images {
		place := fmt.Sprintf("images[%d] (%s)", i, loquat.Clip(image.AssetID, loquat.Excerpt))
		use, used := uses[image.AssetID]
		if !used {
			note("%s is not used by a message, or is given twice, and is left out", place)
			continue
		}
		delete(uses, image.AssetID)
		upload, err := s.receiveImage(&image)
		if e, ok := errors.AsType[*loquat.Error](err); ok && e.Code != loquat.CodeUnavailable {
			note("%s is left out: %s", place, e.Detail)
			continue
		}
		if err != nil {
			return uploads, err
		}
		at, _ := slices.BinarySearch(places, use)
		kept, uploads, places = slices.Insert(kept, at, image), slices.Insert(uploads, at, upload), slices.Insert(places, at, use)
	}
	in.Images = kept
	return uploads, nil
}

// imageUses returns the images that the messages of a session name, numbered in the order in which
// archives have them: by first use, those of one message by id.
func imageUses(in archive.Session) map[string]int {
	uses := map[string]int{}
	_ = in.EachMessage(func(_ string, m *loquat.Message) error {
		for _, id := range slices.Sorted(slices.Values(m.AssetIDs())) {
			if _, used := uses[id]; !used {
				uses[id] = len(uses)
			}
		}
		return nil
	})
	return uses
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

// CreateTemp creates a file for an image that is being received, for which the server has to have room. The next start
// removes it if its caller does not.
func (s *Assets) CreateTemp() (*os.File, error) {
	if err := s.room.ForData(); err != nil {
		return nil, err
	}
	return s.uploads.CreateTemp()
}
