package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"example.org/daisy/internal/sim"
	"example.org/daisy/internal/units"
)

// Sizes of the picture, in pixels.
const (
	pictureWidth  = 1000
	pictureHeight = 400
	pictureLeft   = 70
	pictureTop    = 50
	pictureBottom = 40
	shades        = 10
)

// taskColours are told apart by people who see colours differently, too (after Okabe and Ito).
var taskColours = []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#555555"}

// writePicture draws a run into an SVG file: time to the right, slots downwards.
func writePicture(path, name string, tasks []string, p *sim.Picture) error {
	var b strings.Builder
	drawPicture(&b, name, tasks, p)
	return os.WriteFile(path, []byte(b.String()), 0o666)
}

func drawPicture(w io.Writer, name string, tasks []string, p *sim.Picture) {
	height := min(pictureHeight, max(24*p.Lanes, 60))
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		pictureLeft+pictureWidth+20, pictureTop+height+pictureBottom)
	fmt.Fprintf(w, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="18">%s: %d slots, %s</text>`+"\n", pictureLeft, escaped(name), p.Lanes, units.Duration(p.End))
	x := pictureLeft
	for i := range p.Shown {
		label := tasks[i]
		if i == p.Shown-1 && len(tasks) > p.Shown {
			label = "others"
		}
		fmt.Fprintf(w, `<rect x="%d" y="28" width="10" height="10" fill="%s"/><text x="%d" y="38">%s</text>`+"\n", x, taskColours[i], x+14, escaped(label))
		x += 30 + 8*len(label)
	}
	fmt.Fprintf(w, `<rect x="%d" y="28" width="10" height="10" fill="#dddddd"/><text x="%d" y="38">worker without a block</text>`+"\n", x, x+14)
	if p.Spans != nil {
		drawSpans(w, p, float64(height))
	} else {
		drawBands(w, p, float64(height))
	}
	drawAxes(w, p, height)
	fmt.Fprintln(w, "</svg>")
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder does not fail
	return b.String()
}

// place is where a time is.
func place(p *sim.Picture, t time.Duration) float64 {
	return pictureLeft + pictureWidth*float64(t)/float64(max(p.End, 1))
}

// drawSpans draws each block: first the workers, then what they did.
func drawSpans(w io.Writer, p *sim.Picture, height float64) {
	each := height / float64(max(p.Lanes, 1))
	for _, workers := range []bool{true, false} {
		for _, s := range p.Spans {
			if s.Task < 0 != workers {
				continue
			}
			colour := "#dddddd"
			if !workers {
				colour = taskColours[s.Task]
			}
			x := place(p, s.From)
			fmt.Fprintf(w, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" stroke="white" stroke-width="0.3"/>`+"\n",
				x, pictureTop+float64(s.Lane)*each, max(place(p, s.To)-x, 0.2), max(each-0.5, 0.3), colour)
		}
	}
}

// drawBands draws bands of slots: in each column the task that ran most, the darker the more of the slots were busy. Cells that look
// alike are one path.
func drawBands(w io.Writer, p *sim.Picture, height float64) {
	each := height * float64(p.Band) / float64(max(p.Lanes, 1))
	width := place(p, p.Column) - pictureLeft
	cells := map[[2]int]*strings.Builder{} // by task and shade; task -1 is the presence of workers
	draw := func(task, column, band int, share float64) {
		shade := int(share*shades + 0.5)
		if shade == 0 {
			return
		}
		b := cells[[2]int{task, shade}]
		if b == nil {
			b = new(strings.Builder)
			cells[[2]int{task, shade}] = b
		}
		x, y := pictureLeft+float64(column)*width, pictureTop+float64(band)*each
		right, bottom := min(x+width, pictureLeft+pictureWidth), min(y+each, pictureTop+height)
		fmt.Fprintf(b, "M%.1f %.1fH%.1fV%.1fH%.1fz", x, y, right, bottom, x)
	}
	for c := range p.Columns() {
		for band := range p.Bands() {
			draw(-1, c, band, p.Share(c, band, -1))
			busy, most, which := 0.0, 0.0, 0
			for task := range p.Shown {
				share := p.Share(c, band, task)
				busy += share
				if share > most {
					most, which = share, task
				}
			}
			draw(which, c, band, min(busy, 1))
		}
	}
	for task := -1; task < p.Shown; task++ {
		for shade := 1; shade <= shades; shade++ {
			b := cells[[2]int{task, shade}]
			if b == nil {
				continue
			}
			colour := "#dddddd"
			if task >= 0 {
				colour = taskColours[task]
			}
			fmt.Fprintf(w, `<path fill="%s" fill-opacity="%.1f" d="%s"/>`+"\n", colour, float64(shade)/shades, b)
		}
	}
}

// drawAxes draws times below and slots at the side.
func drawAxes(w io.Writer, p *sim.Picture, height int) {
	for i := range 6 {
		t := p.End * time.Duration(i) / 5
		fmt.Fprintf(w, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", place(p, t), pictureTop+height+18, units.Duration(t))
	}
	fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="end">slot 1</text><text x="%d" y="%d" text-anchor="end">%d</text>`+"\n",
		pictureLeft-6, pictureTop+12, pictureLeft-6, pictureTop+height, p.Lanes)
}
