//go:build unix

package scale_test

import (
	"os"
	"testing"

	"loquat/internal/store/postgres/pgtest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	pgtest.StopShared()
	os.Exit(code)
}
