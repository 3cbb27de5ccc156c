package store

import (
	"io/fs"
	"regexp"
	"slices"
)

// Upgrade is what the next start of this program changes in the schema of a store.
type Upgrade struct {
	From, To int      // schema versions. From is 0 for a store without tables, and above To for one of a newer program that this program can use
	Least    int      // the oldest schema that a program must know to use the store afterwards
	Tables   []string // tables that the upgrade reads or rewrites as a whole, so their size decides how long it takes
	Size     int64    // of the database, in bytes
	InUse    bool     // a server uses the store now
}

// Closed reports whether a program that knows only the schema From cannot use the store after the
// upgrade.
func (u Upgrade) Closed() bool { return u.From > 0 && u.Least > u.From }

var (
	createdTable = regexp.MustCompile(`(?m)^CREATE (?:UNLOGGED )?TABLE (\w+)`)
	readTable    = regexp.MustCompile(`(?m)^(?:CREATE (?:UNIQUE )?INDEX \w+ ON|UPDATE) (\w+)|\bFROM (\w+)`)
)

// WholeTables returns the tables that pending steps of a migration read or rewrite as a whole: those
// that get an index, are updated, or are copied into another table. done are the steps that made the
// tables; the table log, which has one row, does not count.
func WholeTables(done, pending [][]byte) (tables []string) {
	var filled []string
	for _, step := range done {
		for _, m := range createdTable.FindAllSubmatch(step, -1) {
			filled = append(filled, string(m[1]))
		}
	}
	for _, step := range pending {
		for _, m := range readTable.FindAllSubmatch(step, -1) {
			if name := string(m[1]) + string(m[2]); name != "log" && slices.Contains(filled, name) && !slices.Contains(tables, name) {
				tables = append(tables, name)
			}
		}
	}
	slices.Sort(tables)
	return tables
}

// Steps returns the migration steps of a driver: the files in schema, in order.
func Steps(files fs.FS) (texts [][]byte, err error) {
	names, err := fs.Glob(files, "schema/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, nil
}
