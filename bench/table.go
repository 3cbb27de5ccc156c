package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// markdown makes tables print as Markdown, for docs/benchmarks.md.
var markdown bool

// table is a table of text.
type table struct{ rows [][]string }

func newTable(columns ...string) *table { return &table{[][]string{columns}} }

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// print writes the table without its empty columns.
func (t *table) print(w io.Writer) error {
	var used []int
	for i := range t.rows[0] {
		for _, row := range t.rows[1:] {
			if row[i] != "" {
				used = append(used, i)
				break
			}
		}
	}
	aligned := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for n, row := range t.rows {
		var cells []string
		for _, i := range used {
			cells = append(cells, row[i])
		}
		if !markdown {
			fmt.Fprintln(aligned, strings.ReplaceAll(strings.Join(cells, "\t"), "**", ""))
			continue
		}
		fmt.Fprintln(w, "| "+strings.Join(cells, " | ")+" |")
		if n == 0 {
			fmt.Fprintln(w, "|"+strings.Repeat("---|", len(cells)))
		}
	}
	return aligned.Flush()
}

// yesOrNo returns whether an aim is met, as a cell.
func yesOrNo(met bool) string {
	if met {
		return "yes"
	}
	return "**no**"
}
