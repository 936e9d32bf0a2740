package report

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"example.org/daisy/internal/api"
)

// A table is one table for people.
type table struct {
	title string
	// head and rows; a column whose head begins with "<" is text, the others are numbers and stand to the right.
	head []string
	rows [][]string
	foot []string
	// long tables may be cut short on a terminal.
	long bool
}

// longestCell is how much of a cell is shown.
const longestCell = 100

func (t table) text(b *bytes.Buffer) error {
	fmt.Fprintf(b, "%s\n", t.title)
	var rendered bytes.Buffer
	err := t.render(&rendered, renderer.NewBlueprint(tw.Rendition{
		Borders: tw.BorderNone,
		Symbols: tw.NewSymbols(tw.StyleASCII),
		Settings: tw.Settings{
			Separators: tw.Separators{BetweenColumns: tw.Off, BetweenRows: tw.Off},
			Lines:      tw.Lines{ShowHeaderLine: tw.On, ShowFooterLine: tw.On, ShowTop: tw.Off, ShowBottom: tw.Off},
		},
	}), func(s string) string { return s })
	for line := range strings.Lines(rendered.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return err
}

func (t table) markdown(b *bytes.Buffer) error {
	return t.render(b, renderer.NewMarkdown(), markdownText)
}

// render formats every cell itself: tablewriter would change heads, wrap long cells, and knows no numbers.
func (t table) render(b *bytes.Buffer, r tw.Renderer, escape func(string) string) error {
	align := make([]tw.Align, len(t.head))
	head := make([]string, len(t.head))
	for i, h := range t.head {
		align[i] = tw.AlignRight
		if name, isText := strings.CutPrefix(h, "<"); isText {
			align[i], h = tw.AlignLeft, name
		}
		head[i] = escape(h)
	}
	cell := tw.CellConfig{
		Formatting: tw.CellFormatting{AutoFormat: tw.Off, AutoWrap: tw.WrapNone},
		Alignment:  tw.CellAlignment{Global: tw.AlignLeft, PerColumn: align},
	}
	out := tablewriter.NewTable(b, tablewriter.WithRenderer(r), tablewriter.WithEastAsian(tw.Off),
		tablewriter.WithConfig(tablewriter.Config{Header: cell, Row: cell, Footer: cell}))
	out.Header(head)
	for _, row := range t.rows {
		if err := out.Append(escaped(row, escape)); err != nil {
			return err
		}
	}
	if t.foot != nil {
		out.Footer(escaped(t.foot, escape))
	}
	return out.Render()
}

// escaped is a new slice: tablewriter keeps what it is given.
func escaped(row []string, escape func(string) string) []string {
	cells := make([]string, len(row))
	for i, c := range row {
		cells[i] = escape(clip(api.OneLine(c), longestCell))
	}
	return cells
}
