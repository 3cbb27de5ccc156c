//go:build unix

package postgres_test

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
	"loquat/internal/store/storetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		pgtest.StopShared()
		os.Exit(code)
	}))
}

func open(t *testing.T, opts postgres.Options) *postgres.DB {
	t.Helper()
	if opts.Node == "" {
		opts.Node = "test"
	}
	opts.Logger = slog.New(slog.DiscardHandler)
	db, err := postgres.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// Every step says which programs can use the database after it, so that servers can be upgraded one
// after the other. The first steps were made before that.
func TestStepsNameTheOldestProgram(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir("schema")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files[7:] {
		step, err := os.ReadFile("schema/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(step), "\n-- least: ") {
			t.Errorf("schema/%s has no line `-- least: 7`, so servers of the version before could not use the database; see leastFor", file.Name())
		}
	}
}

func TestContract(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	storetest.Run(t, func(t *testing.T) storetest.Open {
		_, url := server.Database(t)
		return func(t *testing.T) store.Driver {
			return open(t, postgres.Options{URL: url, Version: storetest.Version})
		}
	})
}

// The steps are numbered without gaps: a database beyond a gap would never run a step that fills
// it later.
func TestStepsAreNumbered(t *testing.T) {
	t.Parallel()
	steps, err := os.ReadDir("schema")
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range steps {
		if prefix := fmt.Sprintf("%02d_", i+1); !strings.HasPrefix(step.Name(), prefix) {
			t.Errorf("step %s does not begin with %s", step.Name(), prefix)
		}
	}
}
