package mirror

// Keys of log attributes, the same everywhere.
const (
	KeyMirror      = "mirror"
	KeyTopic       = "topic"
	KeyPartition   = "partition"
	KeyOffset      = "offset"
	KeyLeaderEpoch = "leader_epoch"
	KeyStateEpoch  = "state_epoch"
	KeyFrom        = "from"
	KeyTo          = "to"
	KeyCause       = "cause"
	KeyAttempt     = "attempt"
	KeyBroker      = "broker"
	KeyCluster     = "cluster"
	KeyShard       = "shard"
	KeyErr         = "err"
	KeyDuration    = "duration"
	KeyCount       = "count"
	KeyGroup       = "group"
	KeyCommand     = "command"
)
