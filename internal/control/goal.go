package control

import (
	"fmt"
	"slices"
	"strings"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// goal is where the topics of a command are to go.
type goal struct {
	verb    mirror.Verb
	mirror  string
	topics  []string
	message []string // what the outcome says about topics that were not refused
}

// newGoal finds out what an executed command has touched: what it selects now, and was not refused.
func newGoal(v *statestore.View, cmd mirror.Command, outcome mirror.Outcome) goal {
	g := goal{verb: cmd.Verb, mirror: cmd.Mirror}
	refused := map[string]bool{}
	for _, t := range outcome.Topics {
		refused[t.Topic] = t.Refused
		if !t.Refused && t.Message != "" {
			g.message = append(g.message, naming(t.Topic, t.Message))
		}
	}
	selected, _ := mirror.ParsePatterns(cmd.Topics)
	excluded, _ := mirror.ParsePatterns(cmd.Exclude)
	for _, t := range v.Topics(cmd.Mirror) {
		if selected.Match(t.Name) && !excluded.Match(t.Name) && !refused[t.Name] {
			g.topics = append(g.topics, t.Name)
		}
	}
	return g
}

// naming begins a message with its topic, unless the message does that itself.
func naming(topic, message string) string {
	if topic == "" || strings.Contains(message, topic) {
		return message
	}
	return topic + ": " + message
}

// standing is how far a goal is reached.
type standing struct {
	partitions, reached int
	missing             []string // what is not reached yet, a line per topic
	hopeless            []string // what will not be reached, a line per topic
}

func (s standing) done() bool { return len(s.missing) == 0 }

// look compares a goal with what is.
func (g goal) look(v *statestore.View) (s standing) {
	if len(g.topics) == 0 {
		return s
	}
	states := map[string][]statestore.PartitionState{}
	for _, p := range v.Partitions(g.mirror) {
		states[p.Topic] = append(states[p.Topic], p)
	}
	for _, name := range g.topics {
		t, ok := v.Topic(g.mirror, name)
		if !ok {
			s.hopeless = append(s.hopeless, fmt.Sprintf("%s: is not in mirror %s any more", name, g.mirror))
			continue
		}
		of := slices.DeleteFunc(states[name], func(p statestore.PartitionState) bool { return p.TopicID != t.SourceID })
		g.lookAt(t, of, &s)
	}
	return s
}

func (g goal) lookAt(t statestore.Topic, states []statestore.PartitionState, s *standing) {
	want := g.wish(t)
	if t.Wish != want {
		s.hopeless = append(s.hopeless, fmt.Sprintf("%s: another command wishes it %s meanwhile", t.Name, t.Wish))
		return
	}
	s.partitions += max(int(t.Partitions), len(states))
	var behind, failed []string
	at := 0
	for _, p := range states {
		switch {
		case p.State == want:
			at++
		case g.failedForGood(t, p):
			failed = append(failed, fmt.Sprintf("%s-%d is FAILED: %s", t.Name, p.Index, p.ErrorMessage))
		default:
			behind = append(behind, shortState(p))
		}
	}
	s.reached += at
	missing := t.Partitions == 0 && len(states) == 0 && want == mirror.Mirroring // to pause or stop there is nothing then
	switch {
	case len(failed) > 0:
		s.hopeless = append(s.hopeless, more(failed))
	case missing && t.Finding.Message != "" && !t.Finding.Kind.Retryable():
		s.hopeless = append(s.hopeless, naming(t.Name, t.Finding.Message))
	case missing:
		s.missing = append(s.missing, t.Name+": "+notThere(t))
	case at < int(t.Partitions) || len(behind) > 0:
		s.missing = append(s.missing, fmt.Sprintf("%s: %d of %s %s%s", t.Name, at, mirror.Count(max(int(t.Partitions), len(states)), "partition"), want, list(behind)))
	case want == mirror.Stopped && !t.Promoted:
		s.missing = append(s.missing, t.Name+": its partitions are STOPPED, settings, guard and group offsets are being finished")
	}
}

// wish is the state that all partitions of a topic are to reach. Recovering leaves the wish as it was.
func (g goal) wish(t statestore.Topic) mirror.State {
	switch g.verb {
	case mirror.VerbPause:
		return mirror.Paused
	case mirror.VerbStop:
		return mirror.Stopped
	case mirror.VerbRecover:
		return t.Wish
	default:
		return mirror.Mirroring
	}
}

// failedForGood: the partition waits for an operator, and has obeyed everything that was asked so far. Pausing and
// stopping go on from FAILED, unless it was they that failed.
func (g goal) failedForGood(t statestore.Topic, p statestore.PartitionState) bool {
	if p.State != mirror.Failed || p.RetryAttempt >= 0 || p.Rearmed != t.Rearm {
		return false
	}
	switch t.Wish {
	case mirror.Paused:
		return p.Previous == mirror.Pausing || p.Previous == mirror.Paused
	case mirror.Stopped:
		return p.Previous == mirror.Stopping
	default:
		return true
	}
}

func notThere(t statestore.Topic) string {
	if t.Message != "" {
		return t.Message
	}
	return "has not been created on the destination yet"
}

func shortState(p statestore.PartitionState) string {
	text := fmt.Sprintf("%d is %s", p.Index, p.State)
	if p.ErrorMessage != "" {
		text += " (" + p.ErrorMessage + ")"
	}
	return text
}

// list appends a few items to a line.
func list(items []string) string {
	if len(items) == 0 {
		return ""
	}
	return "; " + more(items)
}

// more joins the first few items.
func more(items []string) string {
	const shown = 3
	if len(items) <= shown {
		return strings.Join(items, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(items[:shown], ", "), len(items)-shown)
}
