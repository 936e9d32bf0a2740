package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"example.org/daisy/internal/api"
)

// Format is how the statistics of a run are written.
type Format string

const (
	// Table is for people at a terminal; long lists of workers are cut short.
	Table Format = "table"
	// Markdown is the same with all rows.
	Markdown Format = "markdown"
	// CSV has one table a section, each with a header, whose columns are the fields of stats.json.
	CSV Format = "csv"
	// JSON is stats.json itself.
	JSON Format = "json"
)

// ParseFormat reads the name of a format.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case Table, Markdown, CSV, JSON:
		return f, nil
	}
	return "", fmt.Errorf("unknown format %q: it is table, markdown, csv or json", s)
}

// Tables writes the statistics of a run. A writer that fails is an error.
func Tables(w io.Writer, s api.Stats, f Format) error {
	var b bytes.Buffer
	var err error
	switch f {
	case Table:
		err = writeText(&b, s)
	case Markdown:
		err = writeMarkdown(&b, s)
	case CSV:
		err = writeCSV(&b, s)
	case JSON:
		encoder := json.NewEncoder(&b)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(s)
	default:
		_, err = ParseFormat(string(f))
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("report: the tables could not be written: %w", err)
	}
	return nil
}

// mostRows is how many workers and nodes the text form lists.
const mostRows = 32

// writeText puts what matters most last, where it stays on the screen: tables, then what went wrong, then the counts.
func writeText(b *bytes.Buffer, s api.Stats) error {
	for _, t := range tables(s) {
		more := len(t.rows) - mostRows
		if t.long && more > 0 {
			t.rows = t.rows[:mostRows]
		}
		if err := t.text(b); err != nil {
			return err
		}
		if t.long && more > 0 {
			fmt.Fprintf(b, "… and %d more: all rows are in the formats markdown and csv\n", more)
		}
		b.WriteByte('\n')
	}
	for _, f := range findings(s) {
		b.WriteString(api.OneLine(f.head) + "\n")
		for _, line := range f.lines {
			b.WriteString("    " + api.Printable(line) + "\n")
		}
		b.WriteByte('\n')
	}
	b.WriteString(api.OneLine(Headline(s)+" "+verdict(s)) + "\n")
	return nil
}

func writeMarkdown(b *bytes.Buffer, s api.Stats) error {
	fmt.Fprintf(b, "# Run %s\n\n%s %s\n", markdownText(runName(s)), markdownText(Headline(s)), markdownText(verdict(s)))
	for _, t := range tables(s) {
		fmt.Fprintf(b, "\n## %s\n\n", t.title)
		if err := t.markdown(b); err != nil {
			return err
		}
	}
	fs := findings(s)
	if len(fs) == 0 {
		return nil
	}
	b.WriteString("\n## Findings\n")
	for _, f := range fs {
		fmt.Fprintf(b, "\n%s\n", markdownText(f.head))
		if len(f.lines) > 0 {
			fence := longerFence(f.lines)
			fmt.Fprintf(b, "\n%s\n%s\n%s\n", fence, api.Printable(strings.Join(f.lines, "\n")), fence)
		}
	}
	return nil
}

// longerFence is a fence of backticks that none of the lines can close.
func longerFence(lines []string) string {
	fence := "```"
	for strings.Contains(strings.Join(lines, "\n"), fence) {
		fence += "`"
	}
	return fence
}

// markdownText escapes what Markdown would take for its own.
func markdownText(s string) string {
	return strings.NewReplacer(`\`, `\\`, `|`, `\|`, `*`, `\*`, `_`, `\_`, "`", "\\`", `<`, `\<`, `#`, `\#`).Replace(api.OneLine(s))
}
