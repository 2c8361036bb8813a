package mmm

import (
	"context"
	"fmt"
	"log/slog"

	"mirrord/internal/mirror"
)

// linesAtOnce is how many topics to which the same happens in one cycle have a line of log each.
const linesAtOnce = 10

// tale is what is to be told about a topic.
type tale struct {
	topic, event, cause string
	level               slog.Level
	subject, message    string // for the speaker
	partitions          int32
}

// taleOf is what a plan that was recorded has to tell; false: nothing.
func taleOf(p topicPlan) (tale, bool) {
	t := p.after
	failed, waits := t.Finding.Message, t.Message
	switch {
	case failed != "" && t.Finding != p.before.Finding:
		return tale{t.Name, "topic failed", failed, slog.LevelError, "topic " + t.Name, failed, t.Partitions}, true
	case waits != "" && waits != p.before.Message:
		return tale{t.Name, "topic waits", waits, slog.LevelWarn, "topic " + t.Name, waits, t.Partitions}, true
	case p.why != "":
		return tale{t.Name, p.why, "", slog.LevelInfo, "deed " + t.Name, fmt.Sprint(p.why, t.Partitions, t.DestinationID), t.Partitions}, true
	}
	return tale{}, false
}

// tellTopics tells what was recorded, one event for each topic, but no line of log for each of very many.
func (l *loop) tellTopics(ctx context.Context, plans []topicPlan) {
	news := map[string][]tale{}
	var order []string
	for _, p := range plans {
		t, ok := taleOf(p)
		if !ok {
			continue
		}
		l.deps.event(l.name, t.topic, t.event, t.cause)
		if t.cause == "" {
			l.speaker.over("topic " + t.topic)
		}
		if !l.speaker.news(t.subject, t.message) {
			continue
		}
		if news[t.event] == nil {
			order = append(order, t.event)
		}
		news[t.event] = append(news[t.event], t)
	}
	for _, event := range order {
		l.logTales(ctx, news[event])
	}
}

// logTales logs what happened to topics, the same to all of them.
func (l *loop) logTales(ctx context.Context, tales []tale) {
	if len(tales) > linesAtOnce {
		var topics []string
		for _, t := range tales {
			topics = append(topics, t.topic)
		}
		l.logTale(ctx, tales[0], slog.Int(mirror.KeyCount, len(tales)), slog.Any(mirror.KeyTopic, names(topics)))
		return
	}
	for _, t := range tales {
		l.logTale(ctx, t, slog.String(mirror.KeyTopic, t.topic), slog.Int("partitions", int(t.partitions)))
	}
}

func (l *loop) logTale(ctx context.Context, t tale, of ...slog.Attr) {
	if t.cause != "" {
		of = append(of, slog.String(mirror.KeyCause, t.cause))
	}
	l.log.LogAttrs(ctx, t.level, t.event, of...) //nolint:sloglint // the events are literals
}
