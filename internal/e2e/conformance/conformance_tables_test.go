package conformance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"loquat/internal/ui"
)

// tables are the shared tables that this program has code for, by their file names.
// Each is run on the file's content and reports how many cases passed and failed.
var tables = map[string]func(t *testing.T, raw []byte) (passed, failed int){
	"conditions.json": conditionsTable,
}

// Every table of cases that servers and clients agree on holds here. A table that
// nothing here runs is a failure, too.
func TestConformanceTables(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(sharedDir(t, "conformance"), "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("there are no shared tables")
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			run := tables[name]
			if run == nil {
				t.Fatalf("nothing runs the table %s; add it to tables", name)
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			passed, failed := run(t, raw)
			fmt.Printf("conformance: %s: %d passed, %d failed\n", name, passed, failed)
			if passed+failed == 0 {
				t.Errorf("%s has no cases", name)
			}
		})
	}
}

func conditionsTable(t *testing.T, raw []byte) (passed, failed int) {
	var table struct {
		Context struct{ Session, Message, Config any }
		Cases   []struct {
			Name      string
			Root      ui.Root
			Condition json.RawMessage
			Expect    struct{ Visible, Valid bool }
		}
	}
	if err := json.Unmarshal(raw, &table); err != nil {
		t.Fatal(err)
	}
	in := ui.Context{Session: table.Context.Session, Message: table.Context.Message, Config: table.Context.Config}
	for _, c := range table.Cases {
		visible, err := ui.Visible(c.Condition, c.Root, in)
		if visible == c.Expect.Visible && (err == nil) == c.Expect.Valid {
			passed++
			continue
		}
		failed++
		t.Errorf("%s: visible %v (%v), want visible %v, valid %v", c.Name, visible, err, c.Expect.Visible, c.Expect.Valid)
	}
	return passed, failed
}
