package control

import (
	"slices"
	"sync"
	"time"

	"mirrord/internal/mirror"
)

// keptEvents bounds the memory of Events: a failover of 3,000 partitions, a few transitions each.
const keptEvents = 10_000

// Events keeps the last events that this instance has seen. It is safe for concurrent use.
type Events struct {
	mu   sync.Mutex
	ring []mirror.Event // oldest first once full, beginning at next
	next int
}

// Add keeps an event; the oldest one gives way.
func (e *Events) Add(ev mirror.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.ring) < keptEvents {
		e.ring = append(e.ring, ev)
		return
	}
	e.ring[e.next] = ev
	e.next = (e.next + 1) % keptEvents
}

// Newest gives up to limit events for which keep is true, newest first.
func (e *Events) Newest(limit int, keep func(mirror.Event) bool) []mirror.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := []mirror.Event{}
	for i := range len(e.ring) {
		ev := e.ring[(e.next-1-i+2*len(e.ring))%len(e.ring)]
		if keep(ev) {
			out = append(out, ev)
		}
		if len(out) == limit {
			break
		}
	}
	return out
}

// EventRow is an event as the API shows it.
type EventRow struct {
	At        time.Time `json:"at"`
	Mirror    string    `json:"mirror"`
	Topic     string    `json:"topic,omitempty"`
	Partition int32     `json:"partition"` // −1: the topic or mirror as a whole
	Event     string    `json:"event"`
	From      string    `json:"from,omitempty"`
	To        string    `json:"to,omitempty"`
	Message   string    `json:"message,omitempty"`
}

func eventRows(events []mirror.Event) []EventRow {
	rows := make([]EventRow, 0, len(events))
	for _, ev := range events {
		row := EventRow{At: ev.At, Mirror: ev.Mirror, Topic: ev.Topic, Partition: ev.Partition, Event: ev.Name, Message: ev.Message}
		if ev.From != ev.To {
			row.From, row.To = ev.From.String(), ev.To.String()
		}
		rows = append(rows, row)
	}
	return slices.Clip(rows)
}
