package compare

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

func mentions(t *testing.T, err error, words ...any) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint(w)) {
			t.Errorf("error does not mention %v: %v", w, err)
		}
	}
}

func wantKind(t *testing.T, err error, kind mirror.Kind) {
	t.Helper()
	if err == nil || mirror.KindOf(err) != kind {
		t.Errorf("error is %v, want kind %s", err, kind)
	}
}

func TestAlignAcceptsPrefixes(t *testing.T) {
	shared := func() *fakeLog { return newLog().write(500, 7, "v") }
	for name, c := range map[string]struct{ src, dst *fakeLog }{
		"empty destination":         {shared(), newLog()},
		"both empty":                {newLog(), newLog()},
		"emptied destination":       {shared(), shared().trim(500)},
		"equal":                     {shared(), shared()},
		"behind":                    {shared().write(99, 10, "later"), shared()},
		"other batch boundaries":    {shared(), newLog().write(500, 31, "v")},
		"compressed at the source":  {compressedLog().write(500, 31, "v"), shared()},
		"destination starts higher": {shared(), shared().trim(300)},
		"source starts higher":      {shared().trim(300), shared()},
		"holes for aborted data":    {newLog().txn(5, 30, "a").done(5, false).write(3, 3, "v"), newLog().hole(31).write(3, 3, "v")},
		"committed data, no flag":   {newLog().txn(5, 30, "a").done(5, true), newLog().write(30, 9, "a").hole(1)},
		"exact, decided":            {newLog().txn(5, 30, "a").done(5, false).write(2, 2, "v"), newLog().txn(1<<61, 30, "a").done(1<<61, false)},
		"exact, open on both":       {newLog().txn(5, 30, "a").write(9, 9, "b"), newLog().txn(1<<61, 30, "a").write(3, 3, "b")},
		"exact, aborted since":      {newLog().write(327, 8, "v").txn(5, 7, "a").write(9, 9, "b").done(5, false), newLog().write(327, 8, "v").txn(1<<61, 7, "a")},
		"exact, decided since":      {newLog().txn(5, 30, "a").write(9, 9, "b").done(5, true), newLog().txn(1<<61, 30, "a").write(3, 3, "b")},
	} {
		synctest.Test(t, func(t *testing.T) {
			if a := alignOne(t, c.src, c.dst); a.Err != nil || a.Seeding || a.First != -1 {
				t.Errorf("%s: %+v", name, a)
			} else if a.DestinationEnd != c.dst.end || a.SourceEnd != c.src.end || a.SourceStart != c.src.start || a.DestinationStart != c.dst.start {
				t.Errorf("%s: wrong bounds: %+v", name, a)
			}
		})
	}
}

// What the source's log start has passed cannot be compared any more. It is shared as far as it is known to have been
// mirrored, or where this mirror wrote it; anything else is of the destination's own, and must not be trimmed away.
func TestAlignBelowTheSourcesLogStart(t *testing.T) {
	shared := func() *fakeLog { return newLog().write(950, 9, "v") }
	own := func() *fakeLog { return shared().write(50, 10, "own") }
	source := func(start int64) *fakeLog { return shared().write(1000, 10, "new").trim(start) }
	ours := func(mirrorName string) *fakeLog {
		l := newLog().write(940, 10, "v").write(10, 10, "v")
		l.mark(l.batches[len(l.batches)-1], mirror.IdentityID(mirrorName, mirror.TopicID{}, 2), 0)
		return l.hole(2)
	}
	const unknown = -1
	for name, c := range map[string]struct {
		src, dst     *fakeLog
		lme          int64
		first, extra int64
	}{
		"overtaken":                           {source(1500), shared(), 950, -1, 0},
		"overtaken, markers of a promotion":   {source(1500), shared().hole(3), 950, -1, 0},
		"overtaken at its end":                {source(950), shared(), 950, -1, 0},
		"a tail":                              {source(1500), own(), 950, 950, 50},
		"a tail that ends there":              {source(1000), own(), 950, 950, 50},
		"a tail, partly comparable":           {source(980), own(), 950, 950, 50},
		"a tail, partly trimmed":              {source(1500), own().trim(970), 950, 970, 30},
		"shared beyond the position":          {source(940), shared().write(30, 10, "new"), 900, -1, 0},
		"shared after the position, own tail": {source(940), own(), 900, 950, 50},
		"unknown":                             {source(1500), own(), unknown, 0, 1000},
		"unknown, partly comparable":          {source(980), own(), unknown, 0, 1000},
		"unknown, of this mirror":             {source(1500), ours("east"), unknown, -1, 0},
		"unknown, of another mirror":          {source(1500), ours("west"), unknown, 0, 950},
		"unknown, ours and then a stranger's": {source(1500), ours("east").write(3, 3, "x"), unknown, 0, 953},
		"unknown, only markers":               {source(1500), newLog().hole(9), unknown, -1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			cc := newCouple(t)
			cc.add(c.src, c.dst)
			a := cc.align(mirror.Position{LeaderEpoch: 1, Offset: c.lme})[0]
			if a.First != c.first || a.Extra != c.extra || (a.Err != nil) != (c.first >= 0) {
				t.Errorf("%s: first %d, extra %d, want %d, %d: %v", name, a.First, a.Extra, c.first, c.extra, a.Err)
			}
			if a.Err != nil {
				wantKind(t, a.Err, mirror.Diverged)
				mentions(t, a.Err, fmt.Sprintf("offset %d on", c.first), fmt.Sprintf("%d records", c.extra), "source ends at", "--reseed")
			}
		})
	}
}

// What the source's cleaner took away excuses no record that cannot have come from the source: it lies beyond what is known
// to be shared, and no mirror wrote it. Logs that meet again afterwards had it in common.
func TestCleaningExcusesNoStranger(t *testing.T) {
	source := func(kept int64) *fakeLog {
		return newLog().write(200, 10, "v").clean(func(r recordbatch.Record) bool { return r.Offset >= 50 && r.Offset < kept })
	}
	copied := func(n int) *fakeLog {
		l := newLog().write(n, 5, "v")
		for _, b := range l.batches {
			l.mark(b, mirror.IdentityID("east", mirror.TopicID{}, 0), 0)
		}
		return l
	}
	for name, c := range map[string]struct {
		dst    *fakeLog
		kept   int64 // the source cleaned from 50 up to here
		shared int64
		first  int64
	}{
		"a stranger":                    {copied(50).write(1, 1, "x"), 150, 0, 50},
		"many of them":                  {copied(50).write(90, 10, "x"), 150, 0, 50},
		"where the source has a record": {copied(55).write(1, 1, "x"), 54, 0, 55},
		"from the last mirrored on":     {newLog().write(50, 5, "v").write(40, 10, "x"), 150, 50, 50},
		"copied":                        {copied(60), 150, 0, -1},
		"of before":                     {newLog().write(60, 5, "v"), 150, 60, -1},
		"unknown":                       {newLog().write(60, 5, "v"), 150, -1, -1},
		"copied back, and going on":     {newLog().write(160, 10, "v"), 150, 40, -1},
	} {
		for _, how := range []string{"align", "tail", "stopped"} {
			cc := newCouple(t)
			cc.add(source(c.kept), c.dst)
			lme := mirror.NoPosition
			if how == "stopped" {
				lme.Offset = c.shared
			} else {
				cc.targets[0].Compared = 1 + c.shared
			}
			a := cc.align(lme)[0]
			if how == "tail" {
				a = tailAll(t.Context(), pairs(cc.src, cc.dst, kafka.Codec, cc.targets))[0]
			}
			if a.First != c.first || (a.Err != nil) != (c.first >= 0) || a.Stranger != (how == "tail" && c.first >= 0) {
				t.Errorf("%s, %s: first %d, want %d; stranger %v: %v", name, how, a.First, c.first, a.Stranger, a.Err)
			}
		}
	}
}

// A mirror that goes on compares nothing once the source's log start has passed the destination's end, but a stranger's
// records there are told before they are trimmed away.
func TestTailTellsStrangersBelowTheSourcesLogStart(t *testing.T) {
	for name, c := range map[string]struct{ strangers, compared, first int64 }{
		"overtaken": {0, 1, -1}, "written to": {40, 1, 500}, "written to, just started": {40, 501, 500}, "unknown": {40, 0, -1},
	} {
		dst := newLog().write(500, 50, "v")
		for _, b := range dst.batches {
			dst.mark(b, mirror.IdentityID("east", mirror.TopicID{}, 0), 0)
		}
		cc := newCouple(t)
		cc.add(newLog().write(1000, 50, "v").trim(700), dst.write(int(c.strangers), 7, "x"))
		cc.targets[0].Compared = c.compared
		a := tailAll(t.Context(), pairs(cc.src, cc.dst, kafka.Codec, cc.targets))[0]
		if a.First != c.first || a.Stranger != (c.first >= 0) || c.first >= 0 && a.Extra != c.strangers {
			t.Errorf("%s: first %d, extra %d, stranger %v: %v", name, a.First, a.Extra, a.Stranger, a.Err)
		}
	}
}

// B112: the failback target has records that never reached the copy.
func TestAlignNamesOffsetAndCountOfADivergence(t *testing.T) {
	src, dst := newLog().write(950, 9, "v").write(60, 10, "new"), newLog().write(950, 9, "v").write(50, 10, "lost")
	a := alignOne(t, src, dst)
	wantKind(t, a.Err, mirror.Diverged)
	mentions(t, a.Err, "offset 950", "50 records", "--reseed", "log end 1000", "2023-11-14T22:13:20.950Z to 2023-11-14T22:13:20.999Z")
	if a.First != 950 || a.Extra != 50 {
		t.Errorf("first %d, extra %d", a.First, a.Extra)
	}
}

// B011: the source lost its end in an unclean election and has grown beyond it again, or not yet.
func TestAlignFindsALostSourceEnd(t *testing.T) {
	for _, grown := range []int{0, 5, 20} {
		synctest.Test(t, func(t *testing.T) {
			a := alignOne(t, newLog().write(90, 10, "v").write(grown, 1, "other"), newLog().write(100, 10, "v"))
			wantKind(t, a.Err, mirror.Diverged)
			mentions(t, a.Err, "offset 90", "10 records")
		})
	}
}

// B035: foreign records in a topic that was there before.
func TestAlignFindsForeignRecords(t *testing.T) {
	a := alignOne(t, newLog().write(20, 5, "v"), newLog().write(5, 1, "foreign"))
	wantKind(t, a.Err, mirror.Diverged)
	mentions(t, a.Err, "offset 0", "log end 5", "5 records", "source ends at 20")
}

// The first difference is found however far back it lies, in few reads.
func TestAlignFindsTheFirstDifferenceAnywhere(t *testing.T) {
	for _, at := range []int{0, 1, 17, 1000, 31_007, 49_983, 49_999} {
		c := newCouple(t)
		c.add(newLog().write(at, 50, "v").write(60_000-at, 50, "s"), newLog().write(at, 50, "v").write(50_000-at, 50, "d"))
		a := c.align(mirror.NoPosition)[0]
		if a.First != int64(at) || a.Extra != int64(50_000-at) {
			t.Errorf("parted at %d: first %d, extra %d, %v", at, a.First, a.Extra, a.Err)
		}
		if c.src.reads > 60 {
			t.Errorf("parted at %d: %d reads of the source", at, c.src.reads)
		}
	}
}

func TestAlignUsesTheLastMirroredPosition(t *testing.T) {
	// The ends agree by chance, the place where the mirror ended does not.
	src := newLog().write(500, 10, "v").write(10, 10, "s").write(5000, 10, "x")
	dst := newLog().write(500, 10, "v").write(10, 10, "d").write(5000, 10, "x")
	c := newCouple(t)
	c.add(src, dst)
	a := c.align(mirror.Position{LeaderEpoch: 3, Offset: 505})[0]
	if a.First != 500 {
		t.Errorf("first difference %d, want 500: %v", a.First, a.Err)
	}
}

func TestAlignOnCompactedTopicsComparesWhatBothHold(t *testing.T) {
	old := func(r recordbatch.Record) bool { return r.Offset%3 == 0 && r.Offset < 480 }
	older := func(r recordbatch.Record) bool { return r.Offset%5 == 0 && r.Offset < 499 }
	src, dst := newLog().write(500, 10, "v").clean(old), newLog().write(500, 7, "v").clean(older)
	if a := alignOne(t, src, dst); a.Err != nil {
		t.Errorf("either lacks cleaned records: %v", a.Err)
	}
	given := newLog().write(500, 10, "v").clean(old)
	given.compact = false // it compacted before
	for known, kind := range map[bool]mirror.Kind{true: 0, false: mirror.Diverged} {
		c := newCouple(t)
		c.add(given, newLog().write(500, 7, "v"))
		c.targets[0].Compacted = known
		if a := c.align(mirror.Position{Offset: 478})[0]; known && a.Err != nil || !known && mirror.KindOf(a.Err) != kind {
			t.Errorf("compacted until lately, known %v: %v", known, a.Err)
		}
	}
	dst = newLog().write(499, 7, "v").append(rec(499, "other")).clean(older)
	a := alignOne(t, newLog().write(500, 10, "v").clean(old), dst)
	wantKind(t, a.Err, mirror.Diverged)
	mentions(t, a.Err, "offset 499", "1 record")
	uncleaned := newLog().write(500, 7, "v").clean(older)
	uncleaned.compact = false
	a = alignOne(t, newLog().write(500, 10, "v"), uncleaned)
	wantKind(t, a.Err, mirror.Diverged)
}

// Nothing near the end of a log says anything: look further back.
func TestAlignOnSparseLogsLooksFurtherBack(t *testing.T) {
	after := func(last int64) func(recordbatch.Record) bool {
		return func(r recordbatch.Record) bool { return r.Offset > last }
	}
	src := func() *fakeLog { return newLog().write(3000, 10, "v").clean(after(10)) }
	if a := alignOne(t, src(), newLog().write(3000, 10, "v").clean(after(5))); a.Err != nil {
		t.Errorf("what both hold agrees: %v", a.Err)
	}
	a := alignOne(t, src(), newLog().write(3000, 10, "other").clean(after(5)))
	wantKind(t, a.Err, mirror.Diverged)
	mentions(t, a.Err, "offset 0", "6 records")
}

func TestR7_AHoleWhereTheSourceHasARecordIsADivergence(t *testing.T) {
	src, dst := newLog().write(100, 10, "v"), newLog().write(98, 10, "v").hole(1).append(rec(99, "v"))
	for name, a := range map[string]Alignment{"align": alignOne(t, src, dst), "tail": tailOne(t, src, dst)} {
		wantKind(t, a.Err, mirror.Diverged)
		if a.First != 98 {
			t.Errorf("%s: first difference %d, want 98", name, a.First)
		}
	}
}

func TestAlignIsPatientWithLeadersThatCatchUp(t *testing.T) {
	shared := func() *fakeLog { return newLog().write(100, 10, "v") }
	for name, c := range map[string]struct{ change func(src, dst *fakeLog) }{
		"source":      {func(src, _ *fakeLog) { src.hw = 60 }},
		"destination": {func(_, dst *fakeLog) { dst.hw = 60 }},
	} {
		synctest.Test(t, func(t *testing.T) {
			src, dst := shared(), shared()
			c.change(src, dst)
			a := alignOne(t, src, dst)
			wantKind(t, a.Err, mirror.Retriable)
			mentions(t, a.Err, 60, 100)
		})
		synctest.Test(t, func(t *testing.T) {
			src, dst := shared(), shared()
			c.change(src, dst)
			catchUp := func(l *fakeLog, looks int) {
				if looks == 3 {
					l.hw = -1
				}
			}
			src.onLook, dst.onLook = catchUp, catchUp
			if a := alignOne(t, src, dst); a.Err != nil {
				t.Errorf("%s caught up, but %v", name, a.Err)
			}
		})
	}
}

func TestAlignAsksForTheEpochBeforeItCallsASourceShorter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCouple(t)
		src := newLog().write(60, 10, "v")
		src.epochs = map[int32]int64{4: 100, 5: 60}
		c.add(src, newLog().write(100, 10, "v"))
		c.targets[0].Source = mirror.Position{LeaderEpoch: 4}
		wantKind(t, c.align(mirror.NoPosition)[0].Err, mirror.Retriable)
		c.targets[0].Source = mirror.Position{LeaderEpoch: 5}
		a := c.align(mirror.NoPosition)[0]
		wantKind(t, a.Err, mirror.Diverged)
		mentions(t, a.Err, "offset 60", "40 records")
	})
}

func TestAlignWaitsWhenOnlyMarkersAreBeyondTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := alignOne(t, newLog().write(60, 10, "v"), newLog().write(60, 10, "v").hole(2))
		wantKind(t, a.Err, mirror.Retriable)
		mentions(t, a.Err, 60, 62)
	})
}

func TestR20_AlignWaitsForNativeTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dst := newLog().write(60, 10, "v").txn(7, 3, "native")
		dst.native = `transactional id "payments"`
		a := alignOne(t, newLog().write(100, 10, "v"), dst)
		wantKind(t, a.Err, mirror.Retriable)
		mentions(t, a.Err, "payments")
	})
}

// A transaction that was open at failover: aborted on the promoted side, whatever becomes of it on the other.
func TestAlignComparesTheFateOfTransactions(t *testing.T) {
	promoted := func() *fakeLog {
		return newLog().write(10, 10, "v").txn(1<<61, 5, "t").write(400, 9, "v").done(1<<61, false).write(300, 9, "v")
	}
	old := func(commit bool) *fakeLog {
		return newLog().write(10, 10, "v").txn(5, 5, "t").write(400, 9, "v").done(5, commit)
	}
	lme := mirror.Position{Offset: 415}
	synctest.Test(t, func(t *testing.T) {
		c := newCouple(t) // failback
		c.add(promoted(), old(false))
		c.add(promoted(), old(true))
		all := c.align(lme)
		if all[0].Err != nil {
			t.Errorf("aborted on both sides: %v", all[0].Err)
		}
		wantKind(t, all[1].Err, mirror.Diverged)
		mentions(t, all[1].Err, "offset 10", "aborted at the source")
	})
	synctest.Test(t, func(t *testing.T) { // started again in the old direction
		stopped := newLog().write(10, 10, "v").txn(1<<61, 5, "t").write(400, 9, "v").done(1<<61, false)
		a := alignOne(t, newLog().write(10, 10, "v").txn(5, 5, "t").write(400, 9, "v").hole(1), stopped)
		wantKind(t, a.Err, mirror.Retriable)
		mentions(t, a.Err, "offset 10")
		a = alignOne(t, old(true), stopped)
		wantKind(t, a.Err, mirror.Diverged)
		mentions(t, a.Err, "offset 10", "aborted on the destination")
	})
}

func TestR13_AlignRecognisesUnfinishedSeeding(t *testing.T) {
	filler, err := recordbatch.Filler(kafka.Codec, 700, 5)
	if err != nil {
		t.Fatal(err)
	}
	for _, start := range []int64{700, 5000} {
		dst := newLog()
		dst.add(filler)
		a := alignOne(t, newLog().write(6000, 100, "v").trim(start), dst)
		if a.Err != nil || !a.Seeding || a.DestinationEnd != 700 {
			t.Errorf("source starts at %d: %+v", start, a)
		}
	}
	dst := newLog()
	dst.add(filler)
	dst.trim(700).write(10, 10, "v")
	if a := alignOne(t, newLog().write(6000, 100, "v").trim(700), dst); a.Seeding {
		t.Errorf("seeding has ended: %+v", a)
	}
}

func TestAlignTellsErrorsApart(t *testing.T) {
	c := newCouple(t)
	gone := errors.New("gone")
	bad := newLog()
	bad.err = mirror.Errorf(mirror.Unreachable, "%w", gone)
	c.add(bad, newLog())
	c.add(newLog().write(5, 5, "v"), newLog().write(5, 5, "v"))
	all := c.align(mirror.NoPosition)
	wantKind(t, all[0].Err, mirror.Unreachable)
	if all[1].Err != nil {
		t.Errorf("a neighbour's error: %v", all[1].Err)
	}
}

func TestAlignNotesWhereLogsBegin(t *testing.T) {
	shared := func() *fakeLog { return newLog().write(500, 7, "v") }
	a := alignOne(t, shared(), shared().trim(300))
	if !strings.Contains(a.Note, "300") {
		t.Errorf("note %q", a.Note)
	}
	if a = alignOne(t, shared(), shared()); a.Note != "" {
		t.Errorf("note %q", a.Note)
	}
}

func tailOne(t *testing.T, src, dst *fakeLog) Alignment {
	c := newCouple(t)
	c.add(src, dst)
	return tailAll(t.Context(), pairs(c.src, c.dst, kafka.Codec, c.targets))[0]
}

func TestR7_TailComparesThousandsInFewRequests(t *testing.T) {
	const n = 2000
	c := newCouple(t)
	for i := range n {
		src, dst := newLog().write(40, 5, "v"), newLog().write(35, 5, "v")
		switch i {
		case 77:
			dst.append(rec(35, "foreign"))
		case 78:
			dst.hole(1)
		case 79:
			dst = newLog()
		}
		c.add(src, dst)
	}
	all := tailAll(t.Context(), pairs(c.src, c.dst, kafka.Codec, c.targets))
	for i, a := range all {
		switch {
		case i == 77 || i == 78:
			wantKind(t, a.Err, mirror.Diverged)
			if a.First != 35 {
				t.Errorf("partition %d: first difference %d, want 35", i, a.First)
			}
		case a.Err != nil:
			t.Errorf("partition %d: %v", i, a.Err)
		}
	}
	if limit := n/tailChunk + 20; c.src.reads > limit || c.dst.reads > limit {
		t.Errorf("%d and %d reads, want at most %d", c.src.reads, c.dst.reads, limit)
	}
}

func TestTailBoundsWhatItHolds(t *testing.T) {
	c := newCouple(t)
	value := strings.Repeat("x", 300_000)
	for range 100 {
		records := func() *fakeLog {
			l := newLog()
			for range 5 {
				b, err := recordbatch.Build(nil, recordbatch.CodecNone, rec(l.end, value))
				if err != nil {
					t.Fatal(err)
				}
				l.add(b)
			}
			return l
		}
		c.add(records(), records())
	}
	for i, a := range tailAll(t.Context(), pairs(c.src, c.dst, kafka.Codec, c.targets)) {
		if a.Err != nil {
			t.Errorf("partition %d: %v", i, a.Err)
		}
	}
	if c.src.largest > tailBytes+1<<20 {
		t.Errorf("one answer held %d bytes", c.src.largest)
	}
}
