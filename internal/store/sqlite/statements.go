package sqlite

import (
	"database/sql"
	"errors"
)

// maxStatements is how many prepared statements a connection keeps between transactions. The texts of the
// store are fewer, but clients choose some: by a limit, or by how many tags they name.
const maxStatements = 500

// statements are the prepared statements of a connection, by their texts. They belong to who owns the
// connection.
type statements map[string]*sql.Stmt

// bound closes all statements if there are too many. It must not be called within a transaction, whose rows may
// still be read.
func (s statements) bound() {
	if len(s) > maxStatements {
		_ = s.close() // a statement that cannot be closed is gone from the map all the same
		clear(s)
	}
}

func (s statements) close() error {
	var errs []error
	for _, st := range s {
		errs = append(errs, st.Close())
	}
	return errors.Join(errs...)
}
