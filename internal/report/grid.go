package report

import (
	"bytes"
	"io"
)

// Grid writes one plain table, for commands that are not about a run's statistics. A column whose head begins with "<" is
// text; the others stand to the right.
func Grid(w io.Writer, title string, head []string, rows [][]string) error {
	var b bytes.Buffer
	if err := (table{title: title, head: head, rows: rows}).text(&b); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}
