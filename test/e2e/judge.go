package e2e

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// View is how two logs are compared.
type View struct {
	// Uncommitted compares what a read_uncommitted consumer gets, where transactions end and how, and last stable offsets.
	Uncommitted bool
	// Cleaned admits that one side lacks a record that a later one of its key supersedes, or a tombstone, which a cleaner
	// drops in its own time.
	Cleaned bool
}

// Alike demands that both sides of topics are level and agree in a view. It streams.
func Alike(s, d *Cluster, v View, topics ...string) error {
	for _, topic := range topics {
		if err := Level(context.Background(), s, d, topic); err != nil {
			return err
		}
		logs, err := s.Logs(context.Background(), topic)
		if err != nil {
			return err
		}
		copies, err := d.Logs(context.Background(), topic)
		if err != nil {
			return err
		}
		for p, log := range logs {
			// A transaction that began below the log start has no record that a copy could hold.
			if v.Uncommitted && log.Stable > log.Start && log.Stable != copies[p].Stable {
				return fmt.Errorf("%s-%d: last stable offset %d, source %d", topic, p, copies[p].Stable, log.Stable)
			}
			if err := alike(s, d, v, topic, p, log); err != nil {
				return err
			}
		}
	}
	return nil
}

func alike(s, d *Cluster, v View, topic string, p int32, log Log) error {
	source, copied := newReader(s, topic, p, log), newReader(d, topic, p, log)
	if v.Uncommitted {
		for _, r := range []*reader{source, copied} {
			r.uncommitted, r.end = true, log.End
		}
	}
	walk := merge{source: source, copied: copied, owed: map[string]debt{}}
	for {
		a, b, err := walk.next()
		if err != nil {
			return fmt.Errorf("read %s-%d: %w", topic, p, err)
		}
		if a == nil && b == nil {
			break
		}
		if diff := walk.judge(v, a, b); diff != "" {
			return fmt.Errorf("%s-%d differs: %s", topic, p, diff)
		}
	}
	for key, d := range walk.owed {
		return fmt.Errorf("%s-%d: only one side (source: %v) has offset %d, the last of key %q", topic, p, d.atSource, d.offset, key)
	}
	return nil
}

// merge walks two logs in offset order.
type merge struct {
	source, copied *reader
	a, b           *kgo.Record
	owed           map[string]debt // keys whose latest record one side lacks
}

// debt is a record that only one side has.
type debt struct {
	offset   int64
	atSource bool
}

// next is what both sides hold at the lowest offset that is left; nil: nothing.
func (m *merge) next() (a, b *kgo.Record, err error) {
	var errA, errB error
	if m.a == nil {
		m.a, errA = m.source.next()
	}
	if m.b == nil {
		m.b, errB = m.copied.next()
	}
	if err := errors.Join(errA, errB); err != nil {
		return nil, nil, err
	}
	a, b = m.a, m.b
	switch {
	case a == nil || b == nil || a.Offset == b.Offset:
		m.a, m.b = nil, nil
		if a == nil || b == nil {
			return a, b, nil
		}
	case a.Offset < b.Offset:
		b, m.a = nil, nil
	default:
		a, m.b = nil, nil
	}
	return a, b, nil
}

// judge compares what both sides hold at an offset. Control records of the destination fill holes of the source; those
// of the source must be there as they are, unless a mirror has made them.
func (m *merge) judge(v View, a, b *kgo.Record) string {
	if a != nil && a.Attrs.IsControl() {
		if a.ProducerID >= mirrorsOwn {
			a = nil
		} else if b == nil || !b.Attrs.IsControl() || string(a.Key) != string(b.Key) {
			return fmt.Sprintf("the marker at %d", a.Offset)
		} else {
			return ""
		}
	}
	if b != nil && b.Attrs.IsControl() {
		b = nil
	}
	switch {
	case a == nil && b == nil:
	case a != nil && b != nil:
		delete(m.owed, string(a.Key))
		return difference(a, b)
	case v.Cleaned:
		m.owe(a, b)
	default:
		return difference(a, b)
	}
	return ""
}

// owe notes what only one side has. A tombstone settles what its own side had of the key, not what the other has.
func (m *merge) owe(a, b *kgo.Record) {
	r, d := a, debt{atSource: a != nil}
	if r == nil {
		r = b
	}
	d.offset = r.Offset
	key := string(r.Key)
	switch before, ok := m.owed[key]; {
	case r.Value != nil:
		m.owed[key] = d
	case ok && before.atSource == d.atSource:
		delete(m.owed, key)
	}
}

// mirrorsOwn is the first producer id of mirrors themselves.
const mirrorsOwn = 1 << 62
