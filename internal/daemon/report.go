package daemon

import (
	"fmt"
	"io"
	"strings"

	"mirrord/internal/control"
	"mirrord/internal/mirror"
)

// report is what `mirrord check` says: a line per thing looked at, and under what is wrong the exact way to put it right.
type report struct {
	out                io.Writer
	wrong, unreachable int // how many things are wrong; how many of them clusters that cannot be reached
}

func (r *report) section(format string, args ...any) {
	fmt.Fprintf(r.out, "\n%s\n", fmt.Sprintf(format, args...))
}

// ok states a fact.
func (r *report) ok(format string, args ...any) { r.line("ok", fmt.Sprintf(format, args...), "") }

// note is worth knowing and no reason to fail. fix may be empty.
func (r *report) note(fix, format string, args ...any) {
	r.line("note", fmt.Sprintf(format, args...), fix)
}

// bad will keep something from working.
func (r *report) bad(fix, format string, args ...any) {
	r.wrong++
	r.line("WRONG", fmt.Sprintf(format, args...), fix)
}

func (r *report) line(mark, text, fix string) {
	fmt.Fprintf(r.out, "  %-5s  %s\n", mark, strings.ReplaceAll(control.Visible(text), "\n", "\n         "))
	if fix != "" {
		fmt.Fprintf(r.out, "         → %s\n", fix)
	}
}

// CheckError says that `mirrord check` found something wrong; what, was printed. Unreachable is how much of it are clusters
// that cannot be reached.
type CheckError struct{ Count, Unreachable int }

func (e *CheckError) Error() string {
	if e.Count == e.Unreachable {
		return "cannot reach " + mirror.Count(e.Count, "cluster") + ", see above"
	}
	if e.Count == 1 {
		return "1 thing is wrong, see above"
	}
	return fmt.Sprintf("%d things are wrong, see above", e.Count)
}

func (r *report) result() error {
	if r.wrong == 0 {
		return nil
	}
	return &CheckError{r.wrong, r.unreachable}
}
