//go:build unix

package chat_test

import (
	"log/slog"
	"os"
	"testing"

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
}
