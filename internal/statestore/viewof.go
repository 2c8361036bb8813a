package statestore

// ViewOf is a loaded view that holds just these records, each in its own shard: for whoever has to show one without a
// cluster.
func ViewOf(shards int32, records ...Record) *View {
	v := NewView(shards)
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range records {
		v.put(r.Shard(shards), string(r.key()), r)
	}
	for _, s := range v.shards {
		s.loaded = true
	}
	return v
}
