package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"loquat"
)

// An archive has all alternatives of a session, also those that hang in kept ends.

// treeRow is a row of an alternative, which may hang in another one.
type treeRow struct {
	Alternative
	holder int64 // sid of the messages in which it hangs
}

// holder is a kept end, or the session, in which alternatives hang.
type holder struct {
	sid      int64
	index    int // of its first message in the session
	count    int
	messages []loquat.Message // of a kept end
}

// AlternativeTree returns all alternatives of a session in the order in which they came. It leaves out
// those whose place programs that do not know alternatives have removed.
func (r *Reader) AlternativeTree(h Head) ([]loquat.AlternativeNode, error) {
	rows, err := r.treeRows(h)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	found := map[int64]loquat.AlternativeNode{} // by number
	kept := map[int64]int64{}                   // number by the sid of the messages
	holders := []holder{{sid: h.SID, count: h.Count}}
	for len(holders) > 0 {
		in := holders[0]
		holders = holders[1:]
		hanging, err := r.hanging(h, in, rows)
		if err != nil {
			return nil, err
		}
		for _, row := range hanging {
			node := loquat.AlternativeNode{Index: in.index + row.Index, CreatedAt: row.CreatedAt, InPlace: row.InPlace}
			if !row.InPlace {
				if node.Messages, err = r.keptMessages(row.kept); err != nil {
					return nil, err
				}
				kept[row.kept] = row.N
				holders = append(holders, holder{row.kept, node.Index, len(node.Messages), node.Messages})
			}
			found[row.N] = node
		}
	}
	return ordered(rows, found, kept), nil
}

func (r *Reader) treeRows(h Head) (out []treeRow, err error) {
	err = eachRow(r.q, `SELECT n, holder, at_index, created_at, after_id, coalesce(kept, 0) FROM alternatives WHERE sid = ? ORDER BY n`,
		[]any{h.SID}, func(rows *sql.Rows) error {
			var row treeRow
			var created int64
			err := rows.Scan(&row.N, &row.holder, &row.Index, &created, &row.after, &row.kept)
			row.CreatedAt, row.InPlace = fromMicros(created), row.kept == 0
			out = append(out, row)
			return err
		})
	if err != nil {
		return nil, fmt.Errorf("read alternatives: %w", err)
	}
	return out, nil
}

// hanging returns those of the rows that hang in a holder: at each index one in place, and others.
func (r *Reader) hanging(h Head, in holder, rows []treeRow) ([]treeRow, error) {
	var out []treeRow
	inPlace, kept := map[int]int{}, map[int]int{}
	for _, row := range rows {
		if row.holder != in.sid || row.Index > in.count {
			continue
		}
		after, err := r.idBefore(h, in.messages, row.Index)
		if err != nil {
			return nil, err
		}
		if after != row.after {
			continue
		}
		out = append(out, row)
		if row.InPlace {
			inPlace[row.Index]++
		} else {
			kept[row.Index]++
		}
	}
	return slices.DeleteFunc(out, func(row treeRow) bool { return inPlace[row.Index] != 1 || kept[row.Index] == 0 }), nil
}

// idBefore returns the id of the message before an index of a kept end with these messages, or of the
// session if there are none.
func (r *Reader) idBefore(h Head, messages []loquat.Message, index int) (string, error) {
	if messages == nil {
		return r.messageIDBefore(h, index)
	}
	if index < 1 || index > len(messages) {
		return "", nil
	}
	return messages[index-1].ID, nil
}

// ordered returns the nodes in the order of their rows, and says within which others they hang.
func ordered(rows []treeRow, found map[int64]loquat.AlternativeNode, kept map[int64]int64) (out []loquat.AlternativeNode) {
	places := map[int64]int{} // by number
	for _, row := range rows {
		if _, ok := found[row.N]; ok {
			places[row.N] = len(places)
		}
	}
	for _, row := range rows {
		node, ok := found[row.N]
		if !ok {
			continue
		}
		node.Within = loquat.OfSession
		if n, ok := kept[row.holder]; ok {
			node.Within = places[n]
		}
		out = append(out, node)
	}
	return out
}

// FillEnds writes the messages of kept alternatives to drafts: drafts[i] is that of nodes[i]. Its caller
// must finish them with AddAlternatives or drop them, also after an error.
func (s *Store) FillEnds(ctx context.Context, nodes []loquat.AlternativeNode, newID func() string) (drafts []Draft, err error) {
	drafts = make([]Draft, len(nodes))
	for i, node := range nodes {
		if node.InPlace {
			continue
		}
		d, err := Do(ctx, s, func(tx *Tx) (Draft, error) { return tx.BeginDraft(newID(), "") })
		if err != nil {
			return drafts, err
		}
		d, rest, err := s.FillDraft(ctx, d, node.Messages)
		drafts[i] = d
		if err != nil {
			return drafts, err
		}
		drafts[i], err = Do(ctx, s, func(tx *Tx) (Draft, error) {
			next := d
			err := tx.appendAll(&next.Head, rest)
			return next, err
		})
		if err != nil {
			return drafts, err
		}
	}
	return drafts, nil
}

// AddAlternatives adds alternatives to a session that has none. The nodes must be a tree. drafts[i] has
// the messages of nodes[i]; if it has not been begun, they are written here.
func (tx *Tx) AddAlternatives(h *Head, nodes []loquat.AlternativeNode, drafts []Draft) error {
	kept := make([]int64, len(nodes)) // sid of the messages
	for i, node := range nodes {
		if node.InPlace {
			continue
		}
		d := drafts[i]
		if !d.begun {
			var err error
			if d, err = tx.BeginDraft(fmt.Sprintf("end %d of %d", i, h.SID), ""); err != nil {
				return err
			}
			if err := tx.appendAll(&d.Head, node.Messages); err != nil {
				return err
			}
		}
		if err := tx.finishEnd(*h, d.Head); err != nil {
			return err
		}
		kept[i] = d.Head.SID
	}
	for i, node := range nodes {
		if err := tx.insertNode(h, nodes, kept, i); err != nil {
			return fmt.Errorf("add alternative at %d: %w", node.Index, err)
		}
	}
	return nil
}

// finishEnd makes a draft the hidden session of a kept end of h, which has the images of the end.
func (tx *Tx) finishEnd(h, end Head) error {
	// No client can use an id with spaces.
	ok, err := tx.execOne(`UPDATE sessions SET session_id = ?, deleted = ?, rev = ?, message_count = ?, message_bytes = ?, next_seq = ? WHERE sid = ? AND deleted = 3`,
		fmt.Sprintf("imported end %d", end.SID), deletedHidden, end.Rev, end.Count, end.bytes, end.nextSeq, end.SID)
	if err == nil && !ok {
		err = errDraftDropped
	}
	if err != nil {
		return err
	}
	return tx.execAll([]statement{
		{`INSERT INTO assets (sid, asset_id, sha256, media_type, size, name, created_at)
			SELECT ?, asset_id, sha256, media_type, size, name, created_at FROM assets
			WHERE sid = ? AND asset_id IN (SELECT asset_id FROM asset_uses WHERE sid = ?)`, []any{end.SID, h.SID, end.SID}},
		{`DELETE FROM unattached WHERE sid = ? AND asset_id IN (SELECT asset_id FROM asset_uses WHERE sid = ?)`, []any{h.SID, end.SID}},
	})
}

// insertNode inserts one of the nodes of a tree. kept has the sids of their messages.
func (tx *Tx) insertNode(h *Head, nodes []loquat.AlternativeNode, kept []int64, i int) error {
	node, in := nodes[i], holder{sid: h.SID}
	if w := node.Within; w != loquat.OfSession {
		in = holder{sid: kept[w], index: nodes[w].Index, messages: nodes[w].Messages}
	}
	after, err := tx.idBefore(*h, in.messages, node.Index-in.index)
	if err != nil {
		return err
	}
	var sid any
	if !node.InPlace {
		sid = kept[i]
	}
	h.Rev++
	return tx.exec(`INSERT INTO alternatives (sid, n, holder, at_index, after_id, kept, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		h.SID, h.Rev, in.sid, node.Index-in.index, after, sid, micros(node.CreatedAt))
}
