package statestore

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kbin"

	"mirrord/internal/mirror"
)

// coder walks the fields of a record in one direction: it appends them to out, or, with in, reads them. One function
// per record names its fields once for both, so what is written and what is read cannot drift apart.
type coder struct {
	out []byte
	in  *kbin.Reader // nil: encoding
	err error        // what kbin cannot know, decoding only
}

func (c *coder) decoding() bool { return c.in != nil }

func (c *coder) bool(v *bool) {
	if c.decoding() {
		*v = c.in.Bool()
		return
	}
	c.out = kbin.AppendBool(c.out, *v)
}

func (c *coder) int8(v *int8) {
	if c.decoding() {
		*v = c.in.Int8()
		return
	}
	c.out = kbin.AppendInt8(c.out, *v)
}

func (c *coder) int16(v *int16) {
	if c.decoding() {
		*v = c.in.Int16()
		return
	}
	c.out = kbin.AppendInt16(c.out, *v)
}

func (c *coder) int32(v *int32) {
	if c.decoding() {
		*v = c.in.Int32()
		return
	}
	c.out = kbin.AppendInt32(c.out, *v)
}

func (c *coder) int64(v *int64) {
	if c.decoding() {
		*v = c.in.Int64()
		return
	}
	c.out = kbin.AppendInt64(c.out, *v)
}

func (c *coder) varint(v *int32) {
	if c.decoding() {
		*v = c.in.Varint()
		return
	}
	c.out = kbin.AppendVarint(c.out, *v)
}

func (c *coder) varlong(v *int64) {
	if c.decoding() {
		*v = c.in.Varlong()
		return
	}
	c.out = kbin.AppendVarlong(c.out, *v)
}

func (c *coder) uuid(v *[16]byte) {
	if c.decoding() {
		*v = c.in.Uuid()
		return
	}
	c.out = kbin.AppendUuid(c.out, *v)
}

func (c *coder) topicID(v *mirror.TopicID) { c.uuid((*[16]byte)(v)) }
func (c *coder) state(v *mirror.State)     { c.int8((*int8)(v)) }

// kind is one byte on the wire.
func (c *coder) kind(v *mirror.Kind) {
	n := int8(*v)
	c.int8(&n)
	*v = mirror.Kind(n)
}

// keyString is a non-flexible string: int16 length.
func (c *coder) keyString(v *string) {
	if c.decoding() {
		*v = c.in.String()
		return
	}
	c.out = kbin.AppendString(c.out, *v)
}

// string is a compact string.
func (c *coder) string(v *string) {
	if c.decoding() {
		*v = c.in.CompactString()
		return
	}
	c.out = kbin.AppendCompactString(c.out, *v)
}

// nullableString is a compact nullable string; null reads as empty.
func (c *coder) nullableString(v *string) {
	if c.decoding() {
		if s := c.in.CompactNullableString(); s != nil {
			*v = *s
		}
		return
	}
	c.out = kbin.AppendCompactNullableString(c.out, v)
}

func (c *coder) strings(v *[]string) { list(c, v, c.string) }

// stringMap is an array of pairs, sorted by key.
func (c *coder) stringMap(v *map[string]string) {
	type pair struct{ key, value string }
	var pairs []pair
	for _, key := range slices.Sorted(maps.Keys(*v)) {
		pairs = append(pairs, pair{key, (*v)[key]})
	}
	list(c, &pairs, func(p *pair) { c.string(&p.key); c.string(&p.value) })
	if !c.decoding() || len(pairs) == 0 {
		return
	}
	*v = make(map[string]string, len(pairs))
	for _, p := range pairs {
		(*v)[p.key] = p.value
	}
}

// list is a compact array. An empty one reads as nil. Memory grows with what is really there, not with the length
// that is claimed.
func list[T any](c *coder, v *[]T, each func(*T)) {
	if !c.decoding() {
		c.out = kbin.AppendCompactArrayLen(c.out, len(*v))
		for i := range *v {
			each(&(*v)[i])
		}
		return
	}
	for range c.in.CompactArrayLen() {
		var item T
		if each(&item); !c.in.Ok() {
			return
		}
		*v = append(*v, item)
	}
}

// tag is one tagged field. present says whether to write it: a field at its default is left out.
type tag struct {
	number  uint32
	present bool
	field   func(*coder)
}

// tags ends a structure of a flexible version. Known tags are given in rising order; unknown ones are skipped.
func (c *coder) tags(known ...tag) {
	if c.decoding() {
		c.readTags(known)
		return
	}
	known = slices.DeleteFunc(known, func(t tag) bool { return !t.present })
	c.out = kbin.AppendUvarint(c.out, uint32(len(known)))
	for _, t := range known {
		var value coder
		t.field(&value)
		c.out = kbin.AppendUvarint(c.out, t.number)
		c.out = kbin.AppendUvarint(c.out, uint32(len(value.out)))
		c.out = append(c.out, value.out...)
	}
}

func (c *coder) readTags(known []tag) {
	for n := c.in.Uvarint(); n > 0 && c.in.Ok(); n-- {
		number := c.in.Uvarint()
		span := c.in.Span(int(c.in.Uvarint()))
		i := slices.IndexFunc(known, func(t tag) bool { return t.number == number })
		if i < 0 || !c.in.Ok() {
			continue
		}
		value := coder{in: &kbin.Reader{Src: span}}
		known[i].field(&value)
		if err := value.finish(); err != nil && c.err == nil {
			c.err = fmt.Errorf("tag %d: %w", number, err)
		}
	}
}

// finish demands that exactly everything was read.
func (c *coder) finish() error {
	switch {
	case c.err != nil:
		return c.err
	case !c.in.Ok():
		return errors.New("ends too early")
	case len(c.in.Src) > 0:
		return fmt.Errorf("%d bytes follow the last field", len(c.in.Src))
	}
	return nil
}

// encodeKey is a record's type and its key fields.
func encodeKey(kind int16, fields func(*coder)) []byte {
	c := coder{out: kbin.AppendInt16(nil, kind)}
	fields(&c)
	return c.out
}

// encodeValue is version 0 and the value's fields.
func encodeValue(fields func(*coder)) []byte {
	c := coder{out: kbin.AppendInt16(nil, 0)}
	fields(&c)
	return c.out
}
