package coordinator

import (
	"fmt"
	"slices"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// Commands about one topic take effect in the order in which they were given, and the operator's last word holds. A stop
// or pause does not wait for that: it overtakes what has no outcome yet, and what it overtook leaves the topic alone from
// then on, whoever executes it. All others wait for what is in front of them.

// overtakes reports whether a command is executed before earlier ones about the same topics. A stop that drains first is
// none: it needs the topic to be mirrored.
func overtakes(cmd mirror.Command) bool {
	return cmd.Verb == mirror.VerbPause || cmd.Verb == mirror.VerbStop && !cmd.Drain
}

// ready gives what a command needs from outside once it may be executed.
func (r *runner) ready(s *shard, cmd statestore.SubmittedCommand, earlier []statestore.SubmittedCommand) (found lookup, ready bool) {
	turn := r.turn(cmd.Command, earlier)
	if !turn && cmd.Verb != mirror.VerbStart { // what only asks does so at once
		return lookup{}, false
	}
	found, ready = r.lookedUp(s, cmd)
	return found, ready && turn
}

// turn reports whether a command need not wait for any in front of it.
func (r *runner) turn(cmd mirror.Command, earlier []statestore.SubmittedCommand) bool {
	return !slices.ContainsFunc(earlier, func(e statestore.SubmittedCommand) bool {
		switch {
		case e.Mirror != cmd.Mirror:
			return false
		case e.Verb == mirror.VerbDelete || cmd.Verb == mirror.VerbDelete:
			return true
		case e.Verb == mirror.VerbStart && cmd.Verb == mirror.VerbStart:
			return false // in any order they come to the same
		}
		shared := r.shared(e.Command, cmd)
		if overtakes(cmd) && !overtakes(e.Command) {
			return e.Reseed && slices.ContainsFunc(shared, func(topic string) bool { return r.recreating(cmd.Mirror, topic) })
		}
		left := r.overtaken(e, lookup{})
		return slices.ContainsFunc(shared, func(topic string) bool { return left.topic(topic) == "" })
	})
}

// shared are the topics that items of both commands select: of those of the mirror, and of those that an item names.
func (r *runner) shared(a, b mirror.Command) (topics []string) {
	in, _ := mirror.ParsePatterns(a.Topics)
	with, _ := mirror.ParsePatterns(b.Topics)
	for _, p := range slices.Concat(in, with) {
		if p.Literal() && in.Match(p.String()) && with.Match(p.String()) {
			topics = append(topics, p.String())
		}
	}
	if m := r.index.mirrors[a.Mirror]; m != nil {
		for name := range m.topics {
			if in.Match(name) && with.Match(name) {
				topics = append(topics, name)
			}
		}
	}
	return topics
}

// recreating reports whether a command is beyond recall about a topic.
func (r *runner) recreating(mirrorName, topic string) bool {
	e := r.index.find(mirrorName, topic)
	return e != nil && e.topic.Recreating
}

// recall ends what earlier commands are doing about topics that a command decides about now.
func (r *runner) recall(s *shard, earlier []statestore.SubmittedCommand, cmd mirror.Command) {
	if !overtakes(cmd) {
		return
	}
	items, _ := mirror.ParsePatterns(cmd.Topics)
	for _, e := range earlier {
		waits := s.slow[e.ID]
		if e.Mirror == cmd.Mirror && waits != nil && waits.recall != nil && items.Match(waits.topic) {
			waits.recall()
		}
	}
}

// overtaken is what later commands have decided about topics before an earlier one was executed.
type overtaken struct {
	by   []mirror.Command
	done map[string]string // topics that the earlier one had dealt with by then
}

// overtaken finds the commands that have overtaken one.
func (r *runner) overtaken(cmd statestore.SubmittedCommand, found lookup) overtaken {
	o := overtaken{done: found.paths}
	if overtakes(cmd.Command) {
		return o
	}
	for _, later := range r.overtaking(cmd) {
		if _, answered := r.view.Outcome(later.ID); answered {
			o.by = append(o.by, later.Command)
		}
	}
	return o
}

// overtaking are the later commands that have overtaken one, or are about to.
func (r *runner) overtaking(cmd statestore.SubmittedCommand) []statestore.SubmittedCommand {
	return r.view.CommandsAfter(cmd.Partition, cmd.Offset, func(later mirror.Command) bool {
		return later.Mirror == cmd.Mirror && overtakes(later)
	})
}

// topic says by what a topic was taken out of the earlier command's hands; empty: it was not.
func (o overtaken) topic(name string) string {
	if _, dealt := o.done[name]; dealt {
		return ""
	}
	for _, later := range o.by {
		if items, _ := mirror.ParsePatterns(later.Topics); items.Match(name) {
			return overtakenBy(later)
		}
	}
	return ""
}

// pattern says the same of an item that waits for topics to come.
func (o overtaken) pattern(item string) string {
	for _, later := range o.by {
		if slices.Contains(later.Topics, item) {
			return overtakenBy(later)
		}
	}
	return ""
}

func overtakenBy(later mirror.Command) string {
	return fmt.Sprintf("overtaken by a later %s, left alone", later.Verb)
}
