package fetcher

import (
	"slices"
	"testing"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

func TestOrphans(t *testing.T) {
	const id = mirror.MirroredProducerIDs
	open := []kafka.Producer{
		{ID: id + 1, Epoch: 3, TxnStart: 10}, // ended at the source
		{ID: id + 2, Epoch: 4, TxnStart: 20}, // still open there
		{ID: id + 3, Epoch: 5, TxnStart: 30}, // ended there, and another one has begun
		{ID: id + 4, Epoch: 6, TxnStart: 40}, // open there since before the copy began
		{ID: id + 5, Epoch: 7, TxnStart: 50}, // the producer is idle
	}
	source := []kafka.Producer{{ID: 2, TxnStart: 20}, {ID: 3, TxnStart: 90}, {ID: 4, TxnStart: 35}, {ID: 5, TxnStart: -1}}
	if got, want := orphans(open, source, 0), []producer{{id + 1, 3}, {id + 3, 5}, {id + 5, 7}}; !slices.Equal(got, want) {
		t.Errorf("orphans are %v, want %v", got, want)
	}
}

func TestLostItemsEndOrphans(t *testing.T) {
	p := &part{}
	p.look.orphans = []producer{{1, 1}, {2, 2}}
	items := p.lostItems(100, 150)
	if len(items) != 3 || items[0].kind != ending || items[0].commit || items[1].owner.id != 2 || items[2].kind != hole || items[2].from != 102 || items[2].to != 150 {
		t.Errorf("items %+v", items)
	}
	if items := p.lostItems(100, 102); len(items) != 2 || items[1].to != 102 {
		t.Errorf("items %+v", items)
	}
}
