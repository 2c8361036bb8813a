package recordbatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Where the fields of a message of magic 0 or 1 lie. Key and value follow, each after an int32 length; magic 1 has a
// timestamp before them.
const (
	atMessageCRC        = 12
	atMessageAttributes = 17
	atMessageTimestamp  = 18
)

// message is one entry of a message set, opened.
type message struct {
	magic      int8
	attributes byte
	offset     int64
	timestamp  int64 // −1: none (magic 0)
	key, value []byte
}

// parseMessage opens an entry that Validate accepted.
func parseMessage(b Batch) (m message, err error) {
	m = message{magic: b.Magic(), attributes: b[atMessageAttributes], offset: b.BaseOffset(), timestamp: b.MaxTimestamp()}
	p := []byte(b[atMessageTimestamp:])
	if m.magic == magicMessageV1 {
		p = p[8:]
	}
	var ok bool
	if m.key, p, ok = nullable32(p); ok {
		m.value, p, ok = nullable32(p)
	}
	if !ok || len(p) != 0 {
		return m, corrupt("message at offset %d cannot be read", m.offset)
	}
	return m, nil
}

func nullable32(p []byte) (value, rest []byte, ok bool) {
	if len(p) < 4 {
		return nil, p, false
	}
	size := int64(int32(binary.BigEndian.Uint32(p)))
	p = p[4:]
	switch {
	case size == -1:
		return nil, p, true
	case size < -1 || size > int64(len(p)):
		return nil, p, false
	}
	return p[:size:size], p[size:], true
}

// walkMessage gives the record of a plain message, or those inside a compressed one.
func walkMessage(b Batch, c Codec, each func(offset, timestamp int64, w wireRecord) error) error {
	m, err := parseMessage(b)
	if err != nil {
		return err
	}
	if b.Codec() == CodecNone {
		return m.give(m.offset, each)
	}
	if m.value == nil {
		return corrupt("compressed message at offset %d has no value", m.offset)
	}
	if m.magic == 0 && b.Codec() == CodecLZ4 {
		m.value = mendLZ4(m.value)
	}
	set, err := inflateSet(c, b.Codec(), m.value)
	if err != nil {
		return fmt.Errorf("decompress message at offset %d: %w", m.offset, err)
	}
	return walkWrapped(b, m, set, each)
}

// inflateSet decompresses a whole message set: where it begins follows from its last message.
func inflateSet(c Codec, codec uint8, src []byte) ([]byte, error) {
	set, err := c.Decompress(codec, src)
	if !errors.Is(err, ErrLarge) {
		return set, err
	}
	r, err := c.Inflate(codec, src)
	if err != nil {
		return nil, err
	}
	set, err = io.ReadAll(io.LimitReader(r, MaxRecord+1))
	if err == nil && len(set) > MaxRecord {
		err = fmt.Errorf("%w of %d bytes", ErrInflates, MaxRecord)
	}
	return set, err
}

func (m message) give(offset int64, each func(offset, timestamp int64, w wireRecord) error) error {
	return each(offset, m.timestamp, wireRecord{fields: appendFields(nil, Record{Key: m.key, Value: m.value})})
}

// walkWrapped gives the messages inside a wrapper. The wrapper has the offset of its last message. Inside, magic 0
// holds the offsets themselves; magic 1 holds them relative to a base that follows from the last one. A wrapper of
// magic 1 with LogAppendTime sets the time of all.
func walkWrapped(b Batch, wrapper message, set []byte, each func(offset, timestamp int64, w wireRecord) error) error {
	last, err := lastInSet(set)
	if err != nil {
		return err
	}
	shift := int64(0)
	if wrapper.magic == magicMessageV1 {
		shift = wrapper.offset - last
	}
	for previous := int64(-1); len(set) > 0; {
		var inner Batch
		if inner, set, err = Cut(set); err != nil {
			return corrupt("message set inside offset %d: %v", wrapper.offset, err)
		}
		m, err := innerMessage(inner, wrapper)
		if err != nil {
			return err
		}
		offset := m.offset + shift
		if offset <= previous || offset > wrapper.offset {
			return corrupt("offset %d inside a message set that ends at %d", offset, wrapper.offset)
		}
		if b.IsLogAppendTime() {
			m.timestamp = wrapper.timestamp
		}
		if err := m.give(offset, each); err != nil {
			return err
		}
		previous = offset
	}
	return nil
}

// lastInSet is the offset field of the last message in a set.
func lastInSet(set []byte) (last int64, err error) {
	if len(set) == 0 {
		return 0, corrupt("empty message set")
	}
	for len(set) > 0 {
		var inner Batch
		if inner, set, err = Cut(set); err != nil {
			return 0, corrupt("message set: %v", err)
		}
		last = inner.BaseOffset()
	}
	return last, nil
}

// innerMessage opens a message of a set; it must have the wrapper's format, its own valid CRC and no compression.
func innerMessage(inner Batch, wrapper message) (message, error) {
	if inner.Magic() != wrapper.magic || inner.Codec() != CodecNone {
		return message{}, corrupt("message inside offset %d has format %d and codec %d", wrapper.offset, inner.Magic(), inner.Codec())
	}
	if inner.storedCRC() != crc32.ChecksumIEEE(inner[atMagic:]) {
		return message{}, corrupt("checksum of a message inside offset %d is wrong", wrapper.offset)
	}
	return parseMessage(inner)
}
