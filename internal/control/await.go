package control

import (
	"context"
	"fmt"
	"strings"
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// awaitTopics waits until every topic of the goal has reached it or never will, and tells the result.
func (o *Operator) awaitTopics(ctx context.Context, v *statestore.View, g goal, refused []string) error {
	line := progressLine{operator: o}
	defer line.end()
	for {
		changed := v.Changed()
		s := g.look(v)
		if s.done() {
			line.end()
			return o.conclude(g, s, refused)
		}
		line.show("%d of %s %s", s.reached, mirror.Count(s.partitions, "partition"), g.target())
		select {
		case <-ctx.Done():
			line.end()
			return unfinished(s, refused)
		case <-changed:
			sleep(ctx, reevaluateGap)
		}
	}
}

// conclude tells a goal that nothing is waited for any more.
func (o *Operator) conclude(g goal, s standing, refused []string) error {
	for _, m := range g.message {
		o.say("%s", m)
	}
	if bad := append(refused, s.hopeless...); len(bad) > 0 {
		return &Failure{ExitFailed, bad}
	}
	switch {
	case g.verb == mirror.VerbCreate:
		o.say("Created mirror %s", g.mirror)
	case g.verb == mirror.VerbAlter:
		o.say("Altered mirror %s", g.mirror)
	case g.verb == mirror.VerbDelete:
		o.say("Deleted mirror %s", g.mirror)
	case len(g.topics) > 0:
		o.say("%s of mirror %s: %s", mirror.Count(len(g.topics), "topic"), g.mirror, g.target())
	}
	return nil
}

func unfinished(s standing, refused []string) *Failure {
	lines := append(append(refused, s.hopeless...), s.missing...)
	if len(refused)+len(s.hopeless) > 0 {
		return &Failure{ExitFailed, lines}
	}
	return &Failure{ExitUnfinished, lines}
}

// target names the state that is waited for.
func (g goal) target() string {
	switch g.verb {
	case mirror.VerbPause:
		return mirror.Paused.String()
	case mirror.VerbStop:
		return mirror.Stopped.String()
	case mirror.VerbRecover:
		return "recovered"
	default:
		return mirror.Mirroring.String()
	}
}

// progressLine is one line on a terminal that is written over and over; elsewhere a line now and then.
type progressLine struct {
	operator *Operator
	width    int
	last     time.Time
}

// progressPause is between two lines where there is no terminal.
const progressPause = 30 * time.Second

func (p *progressLine) show(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !p.operator.Terminal {
		p.line(text, time.Now())
		return
	}
	fmt.Fprintf(p.operator.Err, "\r%s%s", text, strings.Repeat(" ", max(0, p.width-len(text))))
	p.width = len(text)
}

// line prints what has been reached, unless it has done so a moment ago or has just begun.
func (p *progressLine) line(text string, now time.Time) {
	switch {
	case p.last.IsZero():
		p.last = now
	case now.Sub(p.last) >= progressPause:
		p.last = now
		fmt.Fprintln(p.operator.Err, text)
	}
}

// end wipes the line.
func (p *progressLine) end() {
	if p.width > 0 {
		fmt.Fprintf(p.operator.Err, "\r%s\r", strings.Repeat(" ", p.width))
		p.width = 0
	}
}
