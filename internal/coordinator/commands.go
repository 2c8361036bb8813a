package coordinator

import (
	"context"
	"fmt"
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// lookupTime bounds asking the source for a command; reseeding takes as long as it takes.
const lookupTime = 30 * time.Second

// slow is a command that waits for something outside. Which of the commands after it wait, too, turn says.
type slow struct {
	ready bool
	found lookup

	topic  string // recover --reseed: what is being recreated
	recall func() // and ends that
}

// command executes the first command of a shard that can be, and gives its records: effects, outcome and cursor.
func (r *runner) command(s *shard, now time.Time) ([]statestore.Record, []func(error)) {
	waiting := r.view.Commands(s.index)
	var earlier []statestore.SubmittedCommand // that have no outcome yet
	for _, cmd := range waiting {
		if r.draining(cmd.Command) {
			continue // accepted; its end is its outcome
		}
		found, ready := r.ready(s, cmd, earlier)
		if !ready {
			earlier = append(earlier, cmd)
			continue
		}
		desk := r.desk(now)
		desk.overtaken = r.overtaken(cmd, found)
		d := desk.decide(cmd.Command, found)
		r.recall(s, earlier, cmd.Command)
		if d.open {
			s.missed[cmd.ID] = d.outcome.Topics
		} else {
			d.records = append(d.records, statestore.CommandOutcome{Outcome: d.outcome})
		}
		delete(s.slow, cmd.ID)
		r.log.Info("command executed", mirror.KeyCommand, string(cmd.Verb), mirror.KeyMirror, cmd.Mirror,
			mirror.KeyCount, len(d.outcome.Topics), "refused", refusals(d.outcome))
		return append(d.records, cursorAfter(s.index, cmd, waiting)...), nil
	}
	return nil, nil
}

func refusals(o mirror.Outcome) (n int) {
	for _, t := range o.Topics {
		if t.Refused {
			n++
		}
	}
	if o.Refused {
		n++
	}
	return n
}

// cursorAfter is where reading goes on once done is answered: at the first command that is not.
func cursorAfter(shard int32, done statestore.SubmittedCommand, waiting []statestore.SubmittedCommand) []statestore.Record {
	for _, cmd := range waiting {
		if cmd.ID != done.ID {
			if cmd.Offset < done.Offset {
				return nil // it stands at an older one
			}
			break
		}
	}
	return []statestore.Record{statestore.CommandCursor{ShardIndex: shard, Next: done.Offset + 1}}
}

// desk is what decides about commands now.
func (r *runner) desk(now time.Time) *desk {
	return &desk{
		index: r.index, state: r.view.Partition, now: now, declared: r.isDeclared, define: r.deps.Define,
		belongings: r.belongings,
	}
}

// belongings are all mirror-level records of a mirror.
func (r *runner) belongings(mirrorName string) (records []statestore.Record) {
	if m, ok := r.view.Mirror(mirrorName); ok {
		records = append(records, m)
	}
	for _, t := range r.view.Topics(mirrorName) {
		records = append(records, t)
		if settings, ok := r.view.Settings(mirrorName, t.Name); ok {
			records = append(records, settings)
		}
	}
	for _, acl := range r.view.ACLs(mirrorName) {
		records = append(records, acl)
	}
	for _, g := range r.view.Groups(mirrorName) {
		records = append(records, g)
	}
	if status := r.view.RefreshStatus(mirrorName); status.Mirror != "" {
		records = append(records, status)
	}
	return records
}

// draining reports whether a stop --drain was accepted and has not ended.
func (r *runner) draining(cmd mirror.Command) bool {
	m := r.index.mirrors[cmd.Mirror]
	if !cmd.Drain || m == nil {
		return false
	}
	for _, e := range m.topics {
		if e.topic.DrainCommand == cmd.ID {
			return true
		}
	}
	return false
}

// lookedUp gives what a command needs from outside, or begins to look it up.
func (r *runner) lookedUp(s *shard, cmd statestore.SubmittedCommand) (found lookup, ready bool) {
	if waits := s.slow[cmd.ID]; waits != nil { // first: looking up may change what there is to look up
		return waits.found, waits.ready
	}
	waits := &slow{}
	look := r.lookUp(cmd, waits)
	if look == nil {
		return lookup{}, true
	}
	s.slow[cmd.ID] = waits
	r.started.Go(func() {
		found := look(s.ctx)
		r.box.post(func() { waits.found, waits.ready = found, true })
	})
	return lookup{}, false
}

// lookUp is what has to be found out for a command, outside of the loop; nil: nothing.
func (r *runner) lookUp(cmd statestore.SubmittedCommand, waits *slow) func(context.Context) lookup {
	m := r.index.mirrors[cmd.Mirror]
	if m == nil {
		return nil
	}
	switch {
	case cmd.Verb == mirror.VerbStart:
		return func(ctx context.Context) (found lookup) {
			ctx, cancel := context.WithTimeoutCause(ctx, lookupTime, fmt.Errorf("no answer within %v", lookupTime))
			defer cancel()
			found.topics, found.refused, found.err = r.deps.Resolve(ctx, cmd.Mirror, cmd.Topics, cmd.Exclude)
			return found
		}
	case cmd.Verb == mirror.VerbRecover && cmd.Reseed:
		topics := r.desk(time.Now()).reseedable(m, cmd.Command)
		if len(topics) == 0 {
			return nil
		}
		return func(ctx context.Context) lookup { return r.reseed(ctx, cmd, waits, topics) }
	}
	return nil
}

// staleCommand is the age from which commands are not executed that lie in front of a shard that nobody ever claimed:
// they were meant for a state topic that is gone.
const staleCommand = time.Minute

// firstRecords begin a shard that was never claimed before.
func (r *runner) firstRecords(n int32, now time.Time) []statestore.Record {
	next := int64(-1)
	for _, cmd := range r.view.Commands(n) {
		if now.Sub(time.UnixMilli(cmd.AtMillis)) > staleCommand {
			next = cmd.Offset + 1
		}
	}
	if next < 0 {
		return nil
	}
	r.log.Warn("commands from before this state topic were left alone", mirror.KeyShard, n, mirror.KeyTo, next)
	return []statestore.Record{statestore.CommandCursor{ShardIndex: n, Next: next}}
}
