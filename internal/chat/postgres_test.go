//go:build unix

package chat_test

import (
	"context"
	"log/slog"
	"os"
	"testing"

	"loquat/internal/images"
	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
)

func init() {
	if os.Getenv("LOQUAT_TEST_STORE") != "postgres" {
		return
	}
	openDatabase = func(t testing.TB, log *slog.Logger) (store.Driver, error) {
		_, url := pgtest.Shared(t).Database(t)
		return postgres.Open(t.Context(), postgres.Options{URL: url, Node: "test", PoolSize: 4, Logger: log})
	}
	closeDatabases = pgtest.StopShared
	openImages = func(_ testing.TB, db store.Driver, st *store.Store, _ string) (images.Keeper, func() (int, error)) {
		quiet := slog.New(slog.DiscardHandler)
		kept := images.NewShared(images.SharedOptions{Store: st, Bytes: db.(*postgres.DB).Images(), Logger: quiet})
		return kept, func() (n int, err error) {
			err = db.Read(context.Background(), func(q store.SQL) error {
				rows, err := q.Query(`SELECT count(DISTINCT name) FROM image_objects`)
				if err != nil {
					return err
				}
				defer rows.Close()
				rows.Next()
				return rows.Scan(&n)
			})
			return n, err
		}
	}
}
