package statestore

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"mirrord/internal/mirror"
)

// DumpedRecord is a record of the state topic for people and scripts: bytes as text, numbers of states and kinds as
// names.
type DumpedRecord struct {
	Shard   int32          `json:"shard"`
	Type    int16          `json:"type"`
	Name    string         `json:"record"`
	Content map[string]any `json:"content"`
}

// Dump decodes what a shard holds, in the order of the keys.
func (v *View) Dump(shard int32) []DumpedRecord {
	var rows []DumpedRecord
	for _, r := range v.Records(shard) {
		rows = append(rows, DumpedRecord{
			shard, int16(binary.BigEndian.Uint16(r.key())),
			strings.TrimPrefix(fmt.Sprintf("%T", r), "statestore."), content(r),
		})
	}
	return rows
}

func content(r Record) map[string]any {
	var fields map[string]any
	b, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(b, &fields)
	}
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	readable(fields)
	return fields
}

// readable replaces numbers that stand for something, in place.
func readable(fields map[string]any) {
	for key, value := range fields {
		switch value := value.(type) {
		case map[string]any:
			readable(value)
		case []any:
			fields[key] = readableList(key, value)
		case float64:
			switch key {
			case "State", "Previous", "Wish":
				fields[key] = mirror.State(value).String()
			case "Kind":
				fields[key] = mirror.Kind(value).String()
			}
		}
	}
}

// readableList turns 16 numbers into an id: Kafka's form for topics, hexadecimal for commands.
func readableList(key string, list []any) any {
	var id [16]byte
	for i, item := range list {
		if fields, ok := item.(map[string]any); ok {
			readable(fields)
		}
		n, ok := item.(float64)
		if !ok || len(list) != len(id) {
			continue
		}
		id[i] = byte(n)
	}
	switch {
	case strings.HasSuffix(key, "ID") && len(key) > len("ID") && len(list) == len(id):
		return mirror.TopicID(id).String()
	case (key == "ID" || key == "DrainCommand") && len(list) == len(id):
		return hex.EncodeToString(id[:])
	}
	return list
}
