package statestore

import "mirrord/internal/mirror"

// What makes each type a Record: its shard, its key and its value.

// Shard is the partition's shard.
func (r LastMirrorEpoch) Shard(n int32) int32 { return mirror.ShardOf(r.Partition, n) }
func (r LastMirrorEpoch) key() []byte         { return encodeKey(typeLastMirrorEpoch, r.keyFields) }
func (r LastMirrorEpoch) value() []byte       { return encodeValue(r.valueFields) }

// Shard is the partition's shard.
func (r PartitionState) Shard(n int32) int32 { return mirror.ShardOf(r.Partition, n) }
func (r PartitionState) key() []byte         { return encodeKey(typePartitionState, r.keyFields) }
func (r PartitionState) value() []byte       { return encodeValue(r.valueFields) }

// Shard is the mirror's shard.
func (r Mirror) Shard(n int32) int32 { return mirror.ShardOfMirror(r.Name, n) }
func (r Mirror) key() []byte         { return encodeKey(typeMirror, r.keyFields) }
func (r Mirror) value() []byte       { return encodeValue(r.valueFields) }

// Shard is the mirror's shard.
func (r Topic) Shard(n int32) int32 { return mirror.ShardOfMirror(r.Mirror, n) }
func (r Topic) key() []byte         { return encodeKey(typeTopic, r.keyFields) }
func (r Topic) value() []byte       { return encodeValue(r.valueFields) }

// Shard is the shard that is claimed.
func (r ShardClaim) Shard(int32) int32 { return r.ShardIndex }
func (r ShardClaim) key() []byte       { return encodeKey(typeShardClaim, r.keyFields) }
func (r ShardClaim) value() []byte     { return encodeValue(r.valueFields) }

// Shard is the mirror's shard.
func (r CommandOutcome) Shard(n int32) int32 { return mirror.ShardOfMirror(r.Mirror, n) }
func (r CommandOutcome) key() []byte         { return encodeKey(typeCommandOutcome, r.keyFields) }
func (r CommandOutcome) value() []byte       { return encodeValue(r.valueFields) }

// Shard is the shard whose commands are counted.
func (r CommandCursor) Shard(int32) int32 { return r.ShardIndex }
func (r CommandCursor) key() []byte       { return encodeKey(typeCommandCursor, r.keyFields) }
func (r CommandCursor) value() []byte     { return encodeValue(r.valueFields) }

// Shard is the shard that is reported on.
func (r ShardReport) Shard(int32) int32 { return r.ShardIndex }
func (r ShardReport) key() []byte       { return encodeKey(typeShardReport, r.keyFields) }
func (r ShardReport) value() []byte     { return encodeValue(r.valueFields) }

// Shard is the mirror's shard.
func (r OwnedACL) Shard(n int32) int32 { return mirror.ShardOfMirror(r.Mirror, n) }
func (r OwnedACL) key() []byte         { return encodeKey(typeOwnedACL, r.keyFields) }
func (r OwnedACL) value() []byte       { return encodeValue(r.valueFields) }

// Shard is the mirror's shard.
func (r GroupStatus) Shard(n int32) int32 { return mirror.ShardOfMirror(r.Mirror, n) }
func (r GroupStatus) key() []byte         { return encodeKey(typeGroupStatus, r.keyFields) }
func (r GroupStatus) value() []byte       { return encodeValue(r.valueFields) }

// Shard is the mirror's shard.
func (r TopicSettings) Shard(n int32) int32 { return mirror.ShardOfMirror(r.Mirror, n) }
func (r TopicSettings) key() []byte         { return encodeKey(typeTopicSettings, r.keyFields) }
func (r TopicSettings) value() []byte       { return encodeValue(r.valueFields) }

// Shard is 0.
func (r ClusterIdentity) Shard(int32) int32 { return 0 }
func (r ClusterIdentity) key() []byte       { return encodeKey(typeClusterIdentity, r.keyFields) }
func (r ClusterIdentity) value() []byte     { return encodeValue(r.valueFields) }

// Shard is the partition's shard.
func (r SourceEpochs) Shard(n int32) int32 { return mirror.ShardOf(r.Partition, n) }
func (r SourceEpochs) key() []byte         { return encodeKey(typeSourceEpochs, r.keyFields) }
func (r SourceEpochs) value() []byte       { return encodeValue(r.valueFields) }

// Shard is the mirror's shard.
func (r RefreshStatus) Shard(n int32) int32 { return mirror.ShardOfMirror(r.Mirror, n) }
func (r RefreshStatus) key() []byte         { return encodeKey(typeRefreshStatus, r.keyFields) }
func (r RefreshStatus) value() []byte       { return encodeValue(r.valueFields) }

// Shard is the shard of the record that is deleted.
func (t Tombstone) Shard(n int32) int32 { return t.Of.Shard(n) }
func (t Tombstone) key() []byte         { return t.Of.key() }
func (t Tombstone) value() []byte       { return nil }
