package mirror

// Verb is what a command asks for. The texts are stored in __mirror_commands.
type Verb string

// The verbs.
const (
	VerbCreate  Verb = "create"
	VerbAlter   Verb = "alter"
	VerbStart   Verb = "start"
	VerbStop    Verb = "stop"
	VerbPause   Verb = "pause"
	VerbResume  Verb = "resume"
	VerbRecover Verb = "recover"
	VerbDelete  Verb = "delete"
)

// Command is an operator's request, a record of __mirror_commands keyed by its id, in the partition
// ShardOfMirror(Mirror).
type Command struct {
	ID       [16]byte // random; a command is executed once per id
	AtMillis int64    // when it was submitted, ms since the epoch
	Verb     Verb
	Mirror   string
	Topics   []string          // items as typed (literal or RE2)
	Exclude  []string          // start only
	Settings map[string]string // create and alter: properties by Kafka's names
	Drain    bool              // stop only
	Reseed   bool              // recover only
	// TimeoutMillis bounds a drain; 0: none. A drain that has not reached lag 0 by then promotes nothing.
	TimeoutMillis int64
}

// Outcome answers a command, once.
type Outcome struct {
	ID        [16]byte
	Verb      Verb
	Mirror    string
	AtMillis  int64
	Message   string // for the command as a whole; empty: fine
	Refused   bool   // the command as a whole was refused
	Topics    []TopicOutcome
	Requester string
}

// TopicOutcome is what a command did to one topic.
type TopicOutcome struct {
	Topic   string
	Refused bool
	Message string // why it was refused, or a path or hint
}
