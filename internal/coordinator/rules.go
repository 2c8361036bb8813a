package coordinator

import (
	"slices"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// start begins to mirror topics that the source has. Patterns that match none yet are kept for discovery.
func (d *desk) start(m *mirrorEntry, cmd mirror.Command, found lookup, v *verdicts) {
	for _, item := range sortedKeys(found.refused) {
		v.refuse(item, "%v", found.refused[item])
	}
	for _, topic := range found.topics {
		if why := d.overtaken.topic(topic); why != "" {
			v.refuse(topic, "%s", why)
			continue
		}
		d.startTopic(m, topic, v)
	}
	changed := m.mirror
	for _, item := range cmd.Topics {
		p, err := mirror.ParsePattern(item)
		if err != nil || p.Literal() || found.refused[item] != nil || slices.ContainsFunc(found.topics, p.Match) {
			continue
		}
		if why := d.overtaken.pattern(item); why != "" {
			v.refuse(item, "%s", why)
			continue
		}
		if !slices.Contains(changed.PendingInclude, item) {
			changed.PendingInclude = append(slices.Clone(changed.PendingInclude), item)
		}
		v.topics = append(v.topics, mirror.TopicOutcome{Topic: item, Message: "no topic of the source matches yet; kept for discovery"})
	}
	if len(changed.PendingInclude) == len(m.mirror.PendingInclude) {
		return
	}
	for _, item := range cmd.Exclude {
		if !slices.Contains(changed.PendingExclude, item) {
			changed.PendingExclude = append(slices.Clone(changed.PendingExclude), item)
		}
	}
	v.records = append(v.records, changed)
}

func (d *desk) startTopic(m *mirrorEntry, topic string, v *verdicts) {
	if other := d.holder(m.mirror.Name, topic); other != "" {
		v.refuse(topic, "topic %s is in mirror %s", topic, other)
		return
	}
	e := m.topics[topic]
	if e == nil {
		v.done(topic, "", statestore.Topic{Mirror: m.mirror.Name, Name: topic, Wish: mirror.Mirroring, ByCommand: true})
		return
	}
	t := commanded(e.topic)
	failed := len(d.failedIn(e)) > 0
	switch {
	case t.Wish == mirror.Paused:
		v.refuse(topic, "topic %s is paused: resume it", topic)
		return
	case t.Wish == mirror.Mirroring && !failed:
		v.done(topic, "mirrored already")
		return
	}
	t.Wish, t.Promoted, t.Unready = mirror.Mirroring, false, !t.DestinationID.IsZero()
	t.Finding = statestore.Finding{} // made while it was mirrored before; it is made again if it is still so
	if failed {
		t.Rearm++
	}
	v.done(topic, "", t)
}

// holder is another mirror that a topic is in.
func (d *desk) holder(mirrorName, topic string) string {
	for _, name := range sortedKeys(d.index.mirrors) {
		if e := d.index.mirrors[name].topics[topic]; e != nil && name != mirrorName &&
			(d.active(e) != "" || unfinished(e)) {
			return name
		}
	}
	return ""
}

// commanded is a topic whose wish an operator changes: what waited for another wish is over.
func commanded(t statestore.Topic) statestore.Topic {
	t.ByCommand, t.Drain, t.DrainDeadlineMillis, t.Message = true, false, 0, ""
	return t
}

// stop promotes topics; true: a drain runs, which ends with the outcome.
func (d *desk) stop(m *mirrorEntry, cmd mirror.Command, v *verdicts) (open bool) {
	d.each(m, cmd, v, func(e *topicEntry, v *verdicts) {
		t, told := commanded(e.topic), ""
		switch {
		case t.Wish == mirror.Stopped:
			t.Message = e.topic.Message
			if d.stuck(e, mirror.Stopping) {
				t.Rearm++
			}
		case cmd.Drain && t.Wish == mirror.Paused:
			v.refuse(t.Name, "topic %s is paused, so its lag cannot fall: resume it, or stop it without --drain", t.Name)
			return
		case cmd.Drain && e.topic.Drain:
			v.refuse(t.Name, "topic %s is being drained already", t.Name)
			return
		case cmd.Drain:
			open = true
			t.Drain, t.DrainCommand = true, cmd.ID
			if cmd.TimeoutMillis > 0 {
				t.DrainDeadlineMillis = d.now.UnixMilli() + cmd.TimeoutMillis
			}
			v.records = append(v.records, t) // its verdict comes with the end of the drain
			return
		default:
			t.Wish, t.Promoted = mirror.Stopped, false
			if told = neverMirrored(e); told != "" {
				t.Message = told
			}
		}
		if t == e.topic {
			v.done(t.Name, "")
			return
		}
		v.done(t.Name, told, t)
	})
	return open
}

// neverMirrored says of a topic that is stopped before it had any partition that the destination has nothing of it.
func neverMirrored(e *topicEntry) string {
	if len(e.parts) > 0 || e.topic.Wish != mirror.Mirroring {
		return ""
	}
	text := "stopped before anything of topic " + e.topic.Name + " was mirrored"
	if e.topic.Message != "" {
		text += ": " + e.topic.Message
	}
	return text
}

// stuck reports whether a partition failed on the way to what is wished already.
func (d *desk) stuck(e *topicEntry, in ...mirror.State) bool {
	return slices.ContainsFunc(d.failedIn(e), func(s statestore.PartitionState) bool { return slices.Contains(in, s.Previous) })
}

func (d *desk) pause(e *topicEntry, v *verdicts) {
	t := commanded(e.topic)
	switch {
	case t.Wish == mirror.Stopped:
		v.refuse(t.Name, "topic %s is %s: only a topic that is mirrored is paused", t.Name, mirror.Stopped)
		return
	case t.Wish == mirror.Paused && d.stuck(e, mirror.Pausing, mirror.Paused):
		t.Rearm++
	case t.Wish == mirror.Paused:
		v.done(t.Name, "")
		return
	}
	t.Wish = mirror.Paused
	v.done(t.Name, "", t)
}

func (d *desk) resume(e *topicEntry, v *verdicts) {
	t := commanded(e.topic)
	switch t.Wish {
	case mirror.Stopped:
		v.refuse(t.Name, "topic %s is %s: start it", t.Name, mirror.Stopped)
	case mirror.Mirroring:
		v.done(t.Name, "")
	default:
		t.Wish, t.Finding, t.Unready = mirror.Mirroring, statestore.Finding{}, !t.DestinationID.IsZero()
		v.done(t.Name, "", t)
	}
}

// recover re-arms what has FAILED, and forgets what was found wrong: it is found again if it is still so.
func (d *desk) recover(m *mirrorEntry, cmd mirror.Command, found lookup, v *verdicts) {
	recovered := false
	d.each(m, cmd, v, func(e *topicEntry, v *verdicts) {
		t := e.topic
		failed := d.failedIn(e)
		path, recreated := found.paths[t.Name]
		switch err := found.refused[t.Name]; {
		case err != nil:
			v.refuse(t.Name, "topic %s could not be recreated: %v", t.Name, err)
			return
		case len(failed) == 0 && t.Finding.Message == "" && !recreated:
			v.refuse(t.Name, "nothing of topic %s has FAILED", t.Name)
			return
		}
		recovered = true
		if !cmd.Reseed && destinationGone(t, failed) {
			t.DestinationID = mirror.TopicID{} // another topic stands there, or none: it is looked for, or created, again
		}
		t.Rearm++
		t.Unready = t.Unready || t.Finding.Message != "" && !t.DestinationID.IsZero() // with a finding it was left alone
		t.Finding, t.Message = statestore.Finding{}, ""
		v.done(t.Name, exported(path), t)
	})
	if recovered && m.mirror.Finding.Message != "" {
		changed := m.mirror
		changed.Finding = statestore.Finding{}
		v.records = append(v.records, changed)
	}
}

func destinationGone(t statestore.Topic, failed []statestore.PartitionState) bool {
	return t.Finding.Message != "" && t.Finding.Kind == mirror.DestinationGone ||
		slices.ContainsFunc(failed, func(s statestore.PartitionState) bool { return s.Kind == mirror.DestinationGone })
}

func exported(path string) string {
	if path == "" {
		return ""
	}
	return "what only the destination had was exported to " + path
}

// reseedable are the topics that recover --reseed has to recreate: those with something FAILED.
func (d *desk) reseedable(m *mirrorEntry, cmd mirror.Command) (topics []string) {
	d.each(m, cmd, &verdicts{}, func(e *topicEntry, _ *verdicts) {
		if len(d.failedIn(e)) > 0 || e.topic.Recreating {
			topics = append(topics, e.topic.Name)
		}
	})
	return topics
}
