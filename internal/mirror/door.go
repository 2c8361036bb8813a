package mirror

// The requests of KIP-1279 through which states are read and written; the only door to the coordinator. JSON names are
// the schema's. Fields marked "-" exist in process only.

// Kafka error codes used in answers.
const (
	CodeNone                    int16 = 0
	CodeUnknownTopicOrPartition int16 = 3
	CodeLoadInProgress          int16 = 14
	CodeNotCoordinator          int16 = 16
	CodeInvalidRequest          int16 = 42
	CodeFencedStateEpoch        int16 = 124
)

// ReadMirrorStatesRequest asks for the states of partitions.
type ReadMirrorStatesRequest struct {
	MirrorName string
	Topics     []ReadTopic
}

// ReadTopic is a topic of a ReadMirrorStatesRequest.
type ReadTopic struct {
	Name       string
	Partitions []ReadPartition
}

// ReadPartition is a partition of a ReadMirrorStatesRequest.
type ReadPartition struct{ PartitionIndex int32 }

// ReadMirrorStatesResponse answers it.
type ReadMirrorStatesResponse struct {
	ThrottleTimeMs int32
	ErrorCode      int16
	ErrorMessage   *string
	Topics         []ReadTopicResult
}

// ReadTopicResult is a topic of the answer.
type ReadTopicResult struct {
	Name       string
	Partitions []ReadPartitionResult
}

// ReadPartitionResult is a partition of the answer.
type ReadPartitionResult struct {
	PartitionIndex  int32
	LastMirrorEpoch int32
	State           State
	ErrorCode       int16
	ErrorMessage    string `json:",omitempty"`
	PreviousState   State
	RetryAttempt    int16
	StateEpoch      int32
}

// WriteMirrorStatesRequest proposes states.
type WriteMirrorStatesRequest struct {
	MirrorName    string
	Topics        []WriteTopic
	StoppedTopics []string // the wish of these topics becomes STOPPED
}

// WriteTopic is a topic of a WriteMirrorStatesRequest.
type WriteTopic struct {
	Name       string
	Partitions []WritePartition
}

// WritePartition proposes one state.
type WritePartition struct {
	PartitionIndex  int32
	LastMirrorEpoch int32
	State           State
	StateEpoch      *int32 `json:",omitempty"` // nil: not checked

	Err              error  `json:"-"` // why, for FAILED; its Kind decides about retries
	LastMirrorOffset *int64 `json:"-"` // with LastMirrorEpoch: the last mirrored position, written once per stop
}

// WriteMirrorStatesResponse answers it.
type WriteMirrorStatesResponse struct {
	ThrottleTimeMs int32
	ErrorCode      int16
	ErrorMessage   *string
	Topics         []WriteTopicResult
}

// WriteTopicResult is a topic of the answer.
type WriteTopicResult struct {
	Name       string
	Partitions []WritePartitionResult
}

// WritePartitionResult is a partition of the answer.
type WritePartitionResult struct {
	PartitionIndex int32
	ErrorCode      int16
	ErrorMessage   string `json:",omitempty"`
	StateEpoch     int32
}
