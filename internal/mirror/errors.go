package mirror

import (
	"errors"
	"fmt"
)

// Kind is what may be done about an error. Retry schedule, metric label and operator hint follow from the kind, never
// from the text.
type Kind uint8

// The kinds.
const (
	Retriable       Kind = iota // back off and try again; nothing is lost
	Unreachable                 // a cluster does not answer: retried for ever, uses up no attempt
	Fenced                      // a newer owner exists: stop at once, write nothing
	Diverged                    // the destination has more or other records than the source
	SourceGone                  // the source topic was deleted or recreated
	DestinationGone             // the destination topic was deleted or recreated by somebody else
	SourceChanged               // another cluster answers at the source's address
	IdentityBroken              // an offset shifted: a foreign write, or a residue named by the protocol
	Loop                        // mirroring would go in a circle
	LostRange                   // records expired at the source before they were copied, under on_lost_range: fail
	Refused                     // the destination refuses this for a reason that only an operator can change
	CorruptSource               // a batch of the source stays damaged after it was fetched again
)

var kindNames = [...]string{
	"retriable", "unreachable", "fenced", "diverged", "source_gone", "destination_gone",
	"source_changed", "identity_broken", "loop", "lost_range", "refused", "corrupt_source",
}

// Kinds lists all kinds.
func Kinds() []Kind {
	kinds := make([]Kind, len(kindNames))
	for i := range kinds {
		kinds[i] = Kind(i)
	}
	return kinds
}

// String is the value of the label "kind" in metrics.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Retryable reports whether waiting can help: those kinds are retried with back-off, the others wait for an operator
// (RetryAttempt −1).
func (k Kind) Retryable() bool {
	return k == Retriable || k == Unreachable || k == Fenced || k == Refused || k == CorruptSource
}

// Error is an error with a kind and, where there is one, the operator's next step.
type Error struct {
	Kind Kind
	Err  error
	Hint string
}

// Errorf makes an Error of a kind.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Err: fmt.Errorf(format, args...)}
}

// OtherCluster is the error of a mirror at whose source's address another cluster answers than the one that is meant.
func OtherCluster(id, want string) *Error {
	return Errorf(SourceChanged, "another cluster answers at the source's address: %s instead of %s; "+
		"put the address right and recover, or set source.cluster.id=%s to accept it", id, want, id)
}

// WithHint adds the operator's next step.
func (e *Error) WithHint(hint string) *Error {
	e.Hint = hint
	return e
}

// Error is the cause, then the hint.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Err.Error()
	}
	return e.Err.Error() + "; " + e.Hint
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the first error in the chain that knows its own. An error nobody classified is Retriable:
// giving up must be written down.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Retriable
}
