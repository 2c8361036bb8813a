package compare

import (
	"fmt"
	"slices"
)

// Limits of what is remembered about compacted topics.
const (
	keysMax      = 1 << 18
	keysMaxBytes = 16 << 20
	keysListed   = 10
)

// superseded follows the keys of records that only one side of a compacted topic holds. Such a record is fine once a
// later one of its key shows on either side. It is fed in offset order.
type superseded struct {
	pending map[string]lone
	bytes   int
	full    bool // keys were left out
}

// lone is the latest record of a key, held by one side only.
type lone struct {
	offset    int64
	atSource  bool
	tombstone bool
}

// see takes the record that a consumer gets at an offset, from whichever side. alone says that the other side lacks it.
func (k *superseded) see(i *item, alone, atSource bool) {
	if k.pending == nil {
		k.pending = map[string]lone{}
	}
	if _, known := k.pending[string(i.Key)]; known {
		delete(k.pending, string(i.Key))
		k.bytes -= len(i.Key)
	}
	if !alone {
		return
	}
	if len(k.pending) >= keysMax || k.bytes+len(i.Key) > keysMaxBytes {
		k.full = true
		return
	}
	k.pending[string(i.Key)] = lone{i.Offset, atSource, i.Value == nil}
	k.bytes += len(i.Key)
}

// lost is the first record of the source that the destination lacks though nothing supersedes it. A tombstone may be
// gone: both sides drop them after a time.
func (k *superseded) lost() finding {
	first := noFinding
	for key, l := range k.pending {
		if l.atSource && !l.tombstone && (first.offset < 0 || l.offset < first.offset) {
			first = finding{l.offset, fmt.Sprintf("the destination lacks the latest record of key %s", show(key))}
		}
	}
	return first
}

// dead are the keys that live on at the destination only, the first few of them by name: their tombstones are gone at
// the source (SPEC §8.9).
func (k *superseded) dead() (names []string, count int) {
	for key, l := range k.pending {
		if !l.atSource && !l.tombstone {
			names = append(names, key)
		}
	}
	count = len(names)
	slices.Sort(names)
	names = names[:min(count, keysListed)]
	for i := range names {
		names[i] = show(names[i])
	}
	return names, count
}

// show is a key for people.
func show(key string) string {
	const longest = 40
	if len(key) > longest {
		return fmt.Sprintf("%.*q…", longest, key)
	}
	return fmt.Sprintf("%q", key)
}
