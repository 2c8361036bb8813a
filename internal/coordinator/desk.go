package coordinator

import (
	"fmt"
	"slices"
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// desk decides about commands. It is pure: what it needs of the source was looked up before, and its decisions are
// appended, effects, outcome and cursor in one transaction, so that each command is executed once.
type desk struct {
	index      *index
	state      func(mirror.Partition) (statestore.PartitionState, bool)
	now        time.Time
	declared   func(mirrorName string) bool // the configuration file of this instance names it
	define     func(base mirror.Definition, settings map[string]string) (mirror.Definition, error)
	belongings func(mirrorName string) []statestore.Record // all mirror-level records, for delete
	overtaken  overtaken                                   // what a later command has decided already
}

// lookup is what was looked up for a command before it is decided.
type lookup struct {
	topics  []string          // start: those of the source that items select
	refused map[string]error  // by item or topic
	paths   map[string]string // recover --reseed: what was recreated, with the export's path; empty: there was nothing to export
	err     error             // nothing could be looked up
}

// decision is what a command does.
type decision struct {
	records []statestore.Record
	outcome mirror.Outcome
	// open: a drain runs, and its end is the outcome. What was refused already is in outcome.
	open bool
}

// verdicts gathers the fate of the topics of one command.
type verdicts struct {
	records []statestore.Record
	topics  []mirror.TopicOutcome
}

func (v *verdicts) refuse(topic, format string, args ...any) {
	v.topics = append(v.topics, mirror.TopicOutcome{Topic: topic, Refused: true, Message: fmt.Sprintf(format, args...)})
}

func (v *verdicts) done(topic, message string, records ...statestore.Record) {
	v.topics = append(v.topics, mirror.TopicOutcome{Topic: topic, Message: message})
	v.records = append(v.records, records...)
}

// decide executes a command on what is known now.
func (d *desk) decide(cmd mirror.Command, found lookup) (out decision) {
	out.outcome = mirror.Outcome{ID: cmd.ID, Verb: cmd.Verb, Mirror: cmd.Mirror, AtMillis: d.now.UnixMilli()}
	refuse := func(format string, args ...any) decision {
		out.outcome.Refused, out.outcome.Message = true, fmt.Sprintf(format, args...)
		return out
	}
	if cmd.Verb == mirror.VerbCreate {
		m, err := d.create(cmd)
		if err != nil {
			return refuse("%v", err)
		}
		out.records, out.outcome.Message = []statestore.Record{m}, "Created mirror "+cmd.Mirror
		return out
	}
	m := d.index.mirrors[cmd.Mirror]
	if m == nil {
		return refuse("there is no mirror %q", cmd.Mirror)
	}
	if found.err != nil {
		return refuse("the topics of mirror %s could not be looked up at the source: %v", cmd.Mirror, found.err)
	}
	own := *m // decisions of one command add up in it
	m = &own
	var v verdicts
	switch cmd.Verb {
	case mirror.VerbAlter:
		altered, err := d.alter(m.mirror, cmd)
		if err != nil {
			return refuse("%v", err)
		}
		out.records = []statestore.Record{altered}
		return out
	case mirror.VerbDelete:
		if !d.delete(m, &v) && len(v.topics) == 0 {
			return refuse("mirror %s is declared in the configuration file: remove it there first", cmd.Mirror)
		}
	case mirror.VerbStart:
		d.start(m, cmd, found, &v)
	case mirror.VerbStop:
		out.open = d.stop(m, cmd, &v)
	case mirror.VerbPause:
		d.each(m, cmd, &v, d.pause)
	case mirror.VerbResume:
		d.each(m, cmd, &v, d.resume)
	case mirror.VerbRecover:
		d.recover(m, cmd, found, &v)
	default:
		return refuse("unknown verb %q: a newer release submitted it", cmd.Verb)
	}
	out.records, out.outcome.Topics = v.records, bounded(v.topics)
	return out
}

func (d *desk) create(cmd mirror.Command) (m statestore.Mirror, err error) {
	if err := mirror.ValidateName(cmd.Mirror); err != nil {
		return m, err
	}
	if d.index.mirrors[cmd.Mirror] != nil {
		return m, fmt.Errorf("mirror %s exists already", cmd.Mirror)
	}
	definition, err := d.define(mirror.DefaultDefinition(cmd.Mirror), cmd.Settings)
	if err != nil {
		return m, err
	}
	definition.Name = cmd.Mirror
	return statestore.Mirror{Definition: definition, Version: 1}, nil
}

func (d *desk) alter(m statestore.Mirror, cmd mirror.Command) (statestore.Mirror, error) {
	if d.declared(m.Name) { // which wins over what a command says
		return m, fmt.Errorf("mirror %s is declared in the configuration file: change it there and reload", m.Name)
	}
	definition, err := d.define(m.Definition, cmd.Settings)
	if err != nil {
		return m, err
	}
	return redefined(m, definition), nil
}

// redefined is a mirror with another definition. What was decided for "auto" is decided again if its key changed.
func redefined(m statestore.Mirror, definition mirror.Definition) statestore.Mirror {
	definition.Name = m.Name
	if definition.Transactions != m.Transactions {
		m.TransactionsMode = ""
	}
	if definition.Fillers != m.Fillers {
		m.FillersMode = ""
	}
	if definition.SourceClusterID != m.SourceClusterID && definition.SourceClusterID != m.LearntClusterID {
		m.LearntClusterID = ""
	}
	m.Definition, m.Finding = definition, statestore.Finding{}
	m.Version++
	return m
}

// delete removes all that belongs to a mirror if all its topics are STOPPED, and nothing of their promotion is left to be
// done, for nobody would do it any more; false: it does not.
func (d *desk) delete(m *mirrorEntry, v *verdicts) bool {
	for _, name := range sortedKeys(m.topics) {
		e := m.topics[name]
		if why := d.active(e); why != "" {
			v.refuse(name, "topic %s is %s: only a mirror whose topics are all STOPPED is deleted", name, why)
		} else if unfinished(e) {
			v.refuse(name, "topic %s is STOPPED, but its settings, guard and group offsets are still being finished: see describe for what is in the way", name)
		}
	}
	if len(v.topics) > 0 || d.declared(m.mirror.Name) {
		return false
	}
	for _, r := range d.belongings(m.mirror.Name) {
		v.records = append(v.records, statestore.Tombstone{Of: r})
	}
	return true
}

// active is how a topic is still in use by its mirror; empty: it is STOPPED.
func (d *desk) active(e *topicEntry) string {
	if e.topic.Wish != mirror.Stopped {
		return "started"
	}
	for _, p := range e.parts {
		if s, ok := d.state(p); ok && s.State != mirror.Stopped {
			return s.State.String()
		}
	}
	return ""
}

// unfinished reports whether the promotion of a topic that exists has yet to be ended.
func unfinished(e *topicEntry) bool { return len(e.parts) > 0 && !e.topic.Promoted }

// each applies a rule to every topic that the command's items select in the mirror.
func (d *desk) each(m *mirrorEntry, cmd mirror.Command, v *verdicts, rule func(*topicEntry, *verdicts)) {
	seen := map[string]bool{}
	for _, item := range cmd.Topics {
		p, err := mirror.ParsePattern(item)
		if err != nil {
			v.refuse(item, "%v", err)
			continue
		}
		matched := false
		for _, name := range sortedKeys(m.topics) {
			if !p.Match(name) {
				continue
			}
			matched = true
			if seen[name] {
				continue
			}
			seen[name] = true
			if why := d.overtaken.topic(name); why != "" {
				v.refuse(name, "%s", why)
				continue
			}
			rule(m.topics[name], v)
		}
		if !matched {
			d.unmatched(m, cmd, p, v)
		}
	}
}

// unmatched answers an item that selects no topic of the mirror. Stopping a pattern that waits for topics to come ends
// the wait.
func (d *desk) unmatched(m *mirrorEntry, cmd mirror.Command, p mirror.Pattern, v *verdicts) {
	item := p.String()
	switch i := slices.Index(m.mirror.PendingInclude, item); {
	case cmd.Verb == mirror.VerbStop && i >= 0:
		changed := m.mirror
		changed.PendingInclude = slices.Delete(slices.Clone(changed.PendingInclude), i, i+1)
		m.mirror = changed // two such items of one command add up
		v.done(item, "not waited for any more", changed)
	case p.Literal():
		v.refuse(item, "topic %s is not in mirror %s", item, m.mirror.Name)
	default:
		v.refuse(item, "no topic of mirror %s matches %s", m.mirror.Name, item)
	}
}

func (d *desk) failedIn(e *topicEntry) (states []statestore.PartitionState) {
	for _, p := range e.parts {
		if s, ok := d.state(p); ok && s.State == mirror.Failed {
			states = append(states, s)
		}
	}
	return states
}

// bounded keeps an outcome small enough for a record: of thousands of topics, those without a message are left out.
func bounded(topics []mirror.TopicOutcome) []mirror.TopicOutcome {
	size := 0
	for _, t := range topics {
		size += len(t.Topic) + len(t.Message) + 8
	}
	if size <= 500_000 {
		return topics
	}
	var kept []mirror.TopicOutcome
	size = 0
	for _, t := range topics {
		size += len(t.Topic) + len(t.Message) + 8
		if t.Refused && size <= 500_000 {
			kept = append(kept, t)
		}
	}
	return kept
}
