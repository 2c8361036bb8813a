package compare

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// relation says how the two sides stand to each other at one offset.
type relation uint8

const (
	neither         relation = iota // no consumer gets a record
	equal                           // both have the same record
	different                       // both have one, and they differ
	sourceOnly                      // the destination lacks it
	destinationOnly                 // the source lacks it
)

// relate compares what both sides hold at one offset; nil: nothing. what names the first difference.
func relate(s, d *item) (r relation, what string) {
	switch {
	case s.visible() && d.visible():
		if what = difference(s, d); what == "" {
			return equal, ""
		}
		return different, what
	case s.visible() && d != nil:
		return different, "its transaction is aborted on the destination"
	case d.visible() && s != nil:
		return different, "its transaction is aborted at the source"
	case s.visible():
		return sourceOnly, "the destination has no record there"
	case d.visible():
		return destinationOnly, "the source has no record there"
	case s != nil && d != nil:
		if what = difference(s, d); what != "" {
			return different, what + " (aborted on both sides)"
		}
	}
	return neither, ""
}

// difference names the first part of two records that differs; "": none does.
func difference(s, d *item) string {
	switch {
	case s.Timestamp != d.Timestamp:
		return fmt.Sprintf("timestamp %s at the source, %s on the destination", at(s.Timestamp), at(d.Timestamp))
	case !sameBytes(s.Key, d.Key):
		return fmt.Sprintf("key of %s at the source, %s on the destination", size(s.Key), size(d.Key))
	case !sameBytes(s.Value, d.Value):
		return fmt.Sprintf("value of %s at the source, %s on the destination", size(s.Value), size(d.Value))
	case len(s.Headers) != len(d.Headers):
		return fmt.Sprintf("%d headers at the source, %d on the destination", len(s.Headers), len(d.Headers))
	}
	for i := range s.Headers {
		if !bytes.Equal(s.Headers[i].Key, d.Headers[i].Key) || !sameBytes(s.Headers[i].Value, d.Headers[i].Value) {
			return fmt.Sprintf("header %d", i)
		}
	}
	return ""
}

// sameBytes tells null from empty.
func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// size describes a key or value without showing it.
func size(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%d bytes", len(b))
}

// at is a record's time for people.
func at(millis int64) string {
	if millis < 0 {
		return "none"
	}
	return time.UnixMilli(millis).UTC().Format("2006-01-02T15:04:05.000Z")
}

// sideBySide walks two streams of one partition in offset order. each gets the offset and what each side holds there,
// nil for nothing; it ends the walk by returning false. Offsets that have expired on one side meanwhile are left out.
func sideBySide(ctx context.Context, src, dst *stream, each func(offset int64, s, d *item) (bool, error)) error {
	for {
		s, err := src.peek(ctx)
		if err != nil {
			return err
		}
		d, err := dst.peek(ctx)
		if err != nil {
			return err
		}
		if s == nil && d == nil {
			return nil
		}
		offset := lower(s, d)
		if s != nil && s.Offset != offset {
			s = nil
		}
		if d != nil && d.Offset != offset {
			d = nil
		}
		if offset >= max(src.from, dst.from) {
			if goOn, err := each(offset, s, d); err != nil || !goOn {
				return err
			}
		}
		if s != nil {
			src.take()
		}
		if d != nil {
			dst.take()
		}
	}
}

func lower(s, d *item) int64 {
	switch {
	case s == nil:
		return d.Offset
	case d == nil:
		return s.Offset
	}
	return min(s.Offset, d.Offset)
}
