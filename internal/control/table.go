package control

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"
)

// cellWidth is the most that a cell of a table takes on a terminal, the last one of a row excepted.
const cellWidth = 48

// table prints aligned columns.
type table struct {
	w   *tabwriter.Writer
	cut bool // long names lose their middle
}

func (o *Operator) table(titles ...string) table {
	t := table{tabwriter.NewWriter(o.Out, 0, 8, 2, ' ', 0), o.OutTerminal}
	if len(titles) > 0 {
		t.row(titles...)
	}
	return t
}

func (t table) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = quoted(cell)
		if t.cut && i < len(cells)-1 {
			cells[i] = shortened(cells[i])
		}
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

// flush ignores what cannot be written: whoever opened the output notices that, whichever way it was written to.
func (t table) flush() { _ = t.w.Flush() }

// quoted puts text that a terminal would obey, or not show, into quotes with escapes: groups, principals and client ids
// may be made of anything.
func quoted(text string) string {
	if strings.ContainsFunc(text, unprintable) || !utf8.ValidString(text) {
		return strconv.Quote(text)
	}
	return text
}

// Visible escapes all of a text that is no part of its lines but would be obeyed by a terminal.
func Visible(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, obeyed) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if obeyed(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

func obeyed(r rune) bool { return r != '\n' && unprintable(r) }

// shortened takes the middle out of a long name: both its ends tell it from others.
func shortened(name string) string {
	runes := []rune(name)
	if len(runes) <= cellWidth {
		return name
	}
	half := (cellWidth - 1) / 2
	return string(runes[:cellWidth-1-half]) + "…" + string(runes[len(runes)-half:])
}
