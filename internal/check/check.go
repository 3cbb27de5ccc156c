// Package check verifies a data directory and changes nothing in it.
//
// It checks the database file, the consistency of its rows, whether acknowledged changes are
// missing, and the image files. A server may be using the directory.
package check

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"loquat/internal/asset/files"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

// Kind says where a problem is. The remedy depends on it.
type Kind string

// The kinds of problems.
const (
	Database Kind = "database" // the file is not what SQLite wrote
	Rows     Kind = "rows"     // its rows contradict each other
	Lost     Kind = "lost"     // changes that were acknowledged are missing
	Image    Kind = "image"    // the file of an image is missing or damaged
)

// Problem is one fault of a data directory.
type Problem struct {
	Kind Kind
	Text string
}

// Report is the result of a check.
type Report struct {
	store.Totals
	Images   int  // files that sessions own
	InUse    bool // by a server
	Problems []Problem
}

// Run verifies a data directory. A full check reads every row, compares every index with its
// table, and every image with its hash. Otherwise images are only checked by size. Run fails
// if the directory cannot be read.
func Run(ctx context.Context, dir string, full bool, log *slog.Logger) (r Report, err error) {
	in, err := sqlite.Inspect(ctx, dir, log)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	r.InUse = in.InUse
	wrong, err := in.Integrity(ctx, full)
	for _, text := range wrong {
		r.add(Database, "%s", text)
	}
	if err != nil {
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		r.add(Database, "cannot be verified: %v", err)
	}
	var images []store.ImageFile
	err = in.Read(ctx, func(q store.SQL) (err error) {
		store.Verify(q, full, func(text string) { r.add(Rows, "%s", text) })
		r.verifyMark(in, q)
		if r.Totals, err = store.Count(q); err != nil {
			return err
		}
		images, err = store.ImageFiles(q)
		return err
	})
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	if err != nil {
		r.add(Database, "cannot be read: %v", err)
	}
	return r, r.verifyImages(ctx, in, filepath.Join(dir, "assets"), images, full)
}

func (r *Report) add(kind Kind, format string, args ...any) {
	r.Problems = append(r.Problems, Problem{kind, fmt.Sprintf(format, args...)})
}

// verifyMark compares the database with the mark that the server wrote next to it.
func (r *Report) verifyMark(in *sqlite.Inspection, q store.SQL) {
	m, ok, err := in.Marked()
	if err != nil {
		r.add(Lost, "the check for lost events failed: %v", err)
	}
	if !ok {
		return
	}
	loss, err := store.FindLoss(q, m)
	if err != nil {
		r.add(Rows, "the state of the log cannot be read: %v", err)
	}
	if loss != nil {
		r.add(Lost, "%v", loss)
	}
}

// verifyImages checks the image files. A running server may have deleted an image since the
// database was read, so a problem counts only if the image still has an owner.
func (r *Report) verifyImages(ctx context.Context, in *sqlite.Inspection, dir string, images []store.ImageFile, full bool) error {
	r.Images = len(images)
	wrong := map[string]error{}
	for _, f := range images {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := files.Verify(dir, f.SHA256, f.Size, full); err != nil {
			wrong[f.SHA256] = err
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	if in.InUse {
		err := in.Read(ctx, func(q store.SQL) (err error) {
			images, err = store.ImageFiles(q)
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, f := range images {
		if err := wrong[f.SHA256]; err != nil {
			r.add(Image, "%v", err)
		}
	}
	return nil
}

// remedies maps a kind of problem to its remedy.
var remedies = []struct {
	kind Kind
	text string
}{
	{Database, "restore a backup; without one, `sqlite3 loquat.db .recover` saves what can be read"},
	{Rows, "restore a backup; or report the lines above as a fault of Loquat when the disk and the machine are sound"},
	{Lost, "restore a backup that holds these events, if there is one; otherwise start the server: it continues without these events, and clients load their sessions again"},
	{Image, "copy the file from a backup to its place in assets; or delete the messages that show the image"},
}

// Remedy returns what to do about the problems.
func (r Report) Remedy() string {
	var out []string
	for _, remedy := range remedies {
		for _, p := range r.Problems {
			if p.Kind == remedy.kind {
				out = append(out, string(remedy.kind)+": "+remedy.text)
				break
			}
		}
	}
	return strings.Join(out, "\n")
}
