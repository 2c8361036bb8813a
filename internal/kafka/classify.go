package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrord/internal/mirror"
)

// Codes by what may be done about them. Kafka's own retriable flag decides about all others; classify_test.go holds
// the table against every code there is.
var (
	// fencedCodes: a newer owner of the same identity or membership exists.
	fencedCodes = []*kerr.Error{
		kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.InvalidProducerEpoch,
		kerr.TransactionCoordinatorFenced, kerr.FencedInstanceID, kerr.ProducerFenced, kerr.FencedMemberEpoch,
		kerr.StaleMemberEpoch, kerr.FencedStateEpoch,
	}
	// unreachableCodes: the cluster is not able to serve now; waiting costs no attempt. A login that is refused belongs
	// here, since renewed credentials heal it and nothing was written.
	unreachableCodes = []*kerr.Error{
		kerr.LeaderNotAvailable, kerr.BrokerNotAvailable, kerr.NetworkException,
		kerr.CoordinatorNotAvailable, kerr.NotEnoughReplicas, kerr.KafkaStorageError, kerr.SaslAuthenticationFailed,
		kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState,
	}
	// refusedCodes: only an operator can change it.
	refusedCodes = []*kerr.Error{
		kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.OffsetMetadataTooLarge,
		kerr.InvalidTopicException, kerr.InvalidRequiredAcks, kerr.InvalidGroupID, kerr.InvalidSessionTimeout,
		kerr.InvalidCommitOffsetSize, kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed,
		kerr.ClusterAuthorizationFailed, kerr.InvalidTimestamp, kerr.UnsupportedVersion, kerr.TopicAlreadyExists,
		kerr.InvalidPartitions, kerr.InvalidReplicationFactor, kerr.InvalidReplicaAssignment, kerr.InvalidConfig,
		kerr.UnsupportedForMessageFormat, kerr.PolicyViolation, kerr.InvalidTransactionTimeout,
		kerr.TransactionalIDAuthorizationFailed, kerr.SecurityDisabled, kerr.LogDirNotFound,
		kerr.DelegationTokenAuthDisabled, kerr.DelegationTokenNotFound, kerr.DelegationTokenOwnerMismatch,
		kerr.DelegationTokenRequestNotAllowed, kerr.DelegationTokenAuthorizationFailed, kerr.DelegationTokenExpired,
		kerr.InvalidPrincipalType, kerr.TopicDeletionDisabled, kerr.UnsupportedCompressionType, kerr.InvalidRecord,
		kerr.UnacceptableCredential, kerr.InvalidUpdateVersion, kerr.FeatureUpdateFailed,
		kerr.PrincipalDeserializationFailure, kerr.MismatchedEndpointType, kerr.UnsupportedEndpointType,
		kerr.UnsupportedAssignor, kerr.InconsistentGroupProtocol, kerr.InvalidRegularExpression,
		kerr.GroupMaxSizeReached,
	}
)

// kindOfCode is what may be done about a code. What nobody named is tried again: giving up must be written down.
func kindOfCode(e *kerr.Error) mirror.Kind {
	switch {
	case slices.Contains(fencedCodes, e):
		return mirror.Fenced
	case slices.Contains(unreachableCodes, e):
		return mirror.Unreachable
	case slices.Contains(refusedCodes, e):
		return mirror.Refused
	}
	return mirror.Retriable
}

// Classify tells what may be done about an error: one of this package, of franz-go, of the network or of a context.
func Classify(err error) mirror.Kind {
	if e, ok := errors.AsType[*mirror.Error](err); ok {
		return e.Kind
	}
	if e, ok := errors.AsType[*kerr.Error](err); ok {
		return kindOfCode(e)
	}
	if isNetwork(err) || errors.Is(err, context.DeadlineExceeded) || kgo.IsRetryableBrokerErr(err) {
		return mirror.Unreachable
	}
	return mirror.Retriable
}

func isNetwork(err error) bool {
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	if _, ok := errors.AsType[*os.SyscallError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*kgo.ErrFirstReadEOF](err); ok {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, ErrClosed)
}

// ErrNotSent marks a call of which no byte left: whatever it asked for has not happened and will not.
var ErrNotSent = errors.New("request was not sent")

// notSent marks err as one of which nothing left; nil stays nil.
func notSent(err error) error {
	if err == nil || errors.Is(err, ErrNotSent) {
		return err
	}
	return mirror.Errorf(Classify(err), "%w: %w", ErrNotSent, err)
}

// ErrClosed marks a call that was lost with its connection: what it asked for may have happened, or may still happen.
var ErrClosed = errors.New("connection closed")

// ErrMissing marks a partition that the broker left out of its answer.
var ErrMissing = errors.New("missing in the answer")

// brokerError is an error code with what the broker said about it.
type brokerError struct {
	code    int16
	message string
}

func (e *brokerError) Error() string {
	known := kerr.TypedErrorForCode(e.code)
	text := known.Message
	if known.Code != e.code { // newer than this release
		text = fmt.Sprintf("error code %d", e.code)
	}
	if e.message != "" {
		return text + ": " + e.message
	}
	return text
}

// Unwrap gives franz-go's value, by which codes are compared.
func (e *brokerError) Unwrap() error { return kerr.ErrorForCode(e.code) }

// kafkaError is nil for code 0.
func kafkaError(code int16, message *string) error { return kafkaErrorOf("", code, message) }

// kafkaErrorOf is kafkaError with the next step that follows from what was asked.
func kafkaErrorOf(asked string, code int16, message *string) error {
	if code == 0 {
		return nil
	}
	e := &brokerError{code, deref(message)}
	if at := strings.LastIndex(e.message, "needs "); at > 0 && code == kerr.ClusterAuthorizationFailed.Code {
		e.message = e.message[at:] // what stands before is the request, another one each time
	}
	return &mirror.Error{Kind: kindOfCode(kerr.TypedErrorForCode(code)), Err: e, Hint: hintOf(asked, code)}
}

// kafkaErrorIn finds the code in an error.
func kafkaErrorIn(err error) (*kerr.Error, bool) { return errors.AsType[*kerr.Error](err) }

// withCause adds why a context ended, in place of the fact that it has.
func withCause(ctx context.Context, err error) error {
	nothingElse := err == context.Canceled || err == context.DeadlineExceeded //nolint:errorlint // not what wraps them
	switch cause := context.Cause(ctx); {
	case cause != nil && !errors.Is(err, cause) && nothingElse:
		return said(cause.Error(), errors.Join(cause, err))
	case cause != nil && !errors.Is(err, cause):
		return fmt.Errorf("%w (%w)", err, cause)
	case err == context.DeadlineExceeded: //nolint:errorlint // as above
		return said("no answer in time", err)
	}
	return err
}

// requestError wraps what a request failed with, so that its kind can be read by mirror.KindOf alone.
func requestError(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	err = withCause(ctx, err)
	if _, ok := errors.AsType[*mirror.Error](err); ok {
		return fmt.Errorf("%s: %w", op, err)
	}
	failed := mirror.Errorf(Classify(err), "%s: %w", op, err)
	if e, ok := kafkaErrorIn(err); ok { // found out on the way, such as by who looks for a coordinator
		failed.Hint = hintOf(op, e.Code)
	}
	return failed
}

func is(err error, codes ...*kerr.Error) bool {
	e, ok := errors.AsType[*kerr.Error](err)
	return ok && slices.Contains(codes, e)
}

// NotLeader tells that the broker asked does not lead the partition, or not any more. As an answer to Produce it does not tell
// whether the batch was stored (see AfterAppendDoubt).
func NotLeader(err error) bool {
	return is(err, kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.ReplicaNotAvailable, kerr.ListenerNotFound,
		kerr.BrokerNotAvailable, kerr.KafkaStorageError)
}

// FencedLeaderEpoch tells that the leader epoch in the request is older or newer than the broker's.
func FencedLeaderEpoch(err error) bool {
	return is(err, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch)
}

// OutOfRange tells that the offset lies outside the log.
func OutOfRange(err error) bool { return is(err, kerr.OffsetOutOfRange) }

// OffsetNotAvailable tells that a new leader does not know its high watermark yet.
func OffsetNotAvailable(err error) bool { return is(err, kerr.OffsetNotAvailable) }

// OutOfOrderSequence tells that the batch is not the next one of its producer identity; nothing was stored.
func OutOfOrderSequence(err error) bool { return is(err, kerr.OutOfOrderSequenceNumber) }

// DuplicateSequence tells that the batch was stored before, longer ago than the broker remembers offsets.
func DuplicateSequence(err error) bool { return is(err, kerr.DuplicateSequenceNumber) }

// InvalidProducerEpoch tells that a newer producer epoch of the same identity exists.
func InvalidProducerEpoch(err error) bool {
	return is(err, kerr.InvalidProducerEpoch, kerr.ProducerFenced)
}

// TransactionUnverified reports that a broker asked its coordinator about a transactional batch, which knows nothing of the
// producer: transaction.partition.verification.enable.
func TransactionUnverified(err error) bool {
	return is(err, kerr.InvalidProducerIDMapping, kerr.InvalidTxnState)
}

// CoordinatorFenced tells that a marker with a higher coordinator epoch was written before.
func CoordinatorFenced(err error) bool { return is(err, kerr.TransactionCoordinatorFenced) }

// ConcurrentTransactions tells that the transactional id's last transaction is being completed; ask again.
func ConcurrentTransactions(err error) bool { return is(err, kerr.ConcurrentTransactions) }

// notAttempted: the item is fine, but another one of the request is not.
func notAttempted(err error) bool { return is(err, kerr.OperationNotAttempted) }

// CoordinatorMoved tells that another broker coordinates the group or transactional id now, or none does yet.
func CoordinatorMoved(err error) bool {
	return is(err, kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress)
}

// TooLarge tells that the batch is larger than the topic or a segment admits.
func TooLarge(err error) bool { return is(err, kerr.MessageTooLarge, kerr.RecordListTooLarge) }

// Corrupt tells that the bytes did not survive their way.
func Corrupt(err error) bool { return is(err, kerr.CorruptMessage) }

// InvalidRecord tells that the destination refuses the form of a batch.
func InvalidRecord(err error) bool { return is(err, kerr.InvalidRecord, kerr.InvalidTimestamp) }

// UnknownTopic tells that no topic of that name or id, as far as the broker asked knows.
func UnknownTopic(err error) bool {
	return is(err, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InconsistentTopicID, kerr.InvalidTopicException)
}

// TopicExists tells that a topic of that name exists already.
func TopicExists(err error) bool { return is(err, kerr.TopicAlreadyExists) }

// TopicAuthorization tells that a right on the topic is missing.
func TopicAuthorization(err error) bool { return is(err, kerr.TopicAuthorizationFailed) }

// ClusterAuthorization tells that a right on the cluster is missing.
func ClusterAuthorization(err error) bool { return is(err, kerr.ClusterAuthorizationFailed) }

// Authorization tells that some right is missing.
func Authorization(err error) bool {
	return is(err, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.GroupAuthorizationFailed,
		kerr.TransactionalIDAuthorizationFailed, kerr.DelegationTokenAuthorizationFailed)
}

// InvalidConfig tells that a setting's name or value is refused; the text says which.
func InvalidConfig(err error) bool { return is(err, kerr.InvalidConfig) }

// GroupActive tells that the group has members, so that nobody else may change its offsets.
func GroupActive(err error) bool {
	return is(err, kerr.UnknownMemberID, kerr.NonEmptyGroup, kerr.GroupSubscribedToTopic, kerr.IllegalGeneration,
		kerr.StaleMemberEpoch, kerr.RebalanceInProgress)
}

// GroupNotFound tells that there is no group of that name, or not of that type.
func GroupNotFound(err error) bool { return is(err, kerr.GroupIDNotFound) }

// SecurityDisabled tells that the cluster has no authorizer.
func SecurityDisabled(err error) bool { return is(err, kerr.SecurityDisabled) }

// UnsupportedVersion tells that the broker does not serve the request, or not in a form that has what it asks for.
func UnsupportedVersion(err error) bool {
	return is(err, kerr.UnsupportedVersion) || errors.Is(err, errUnsupported)
}

// PolicyViolation tells that a rule of the cluster or topic forbids it, such as deleting records of a compacted topic.
func PolicyViolation(err error) bool { return is(err, kerr.PolicyViolation) }

// SessionLost tells that the broker does not know the fetch session, or not at this epoch.
func SessionLost(err error) bool {
	return is(err, kerr.FetchSessionIDNotFound, kerr.InvalidFetchSessionEpoch, kerr.FetchSessionTopicIDError)
}

// notAppended lists the answers to Produce that are given before anything is stored, and that say nothing about
// earlier batches either.
var notAppended = []*kerr.Error{
	kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.CorruptMessage, kerr.InvalidRecord,
	kerr.InvalidTimestamp, kerr.InvalidProducerEpoch, kerr.ProducerFenced, kerr.InvalidTxnState,
	kerr.InvalidProducerIDMapping, kerr.TransactionAbortable, kerr.TopicAuthorizationFailed,
	kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed, kerr.UnknownTopicOrPartition,
	kerr.UnknownTopicID, kerr.InconsistentTopicID, kerr.InvalidTopicException, kerr.NotEnoughReplicas,
	kerr.UnsupportedCompressionType, kerr.UnsupportedVersion, kerr.UnsupportedForMessageFormat,
	kerr.InvalidRequiredAcks, kerr.PolicyViolation, kerr.LeaderNotAvailable, kerr.TransactionCoordinatorFenced,
}

// AfterAppendDoubt reports whether, after this answer to a Produce or a marker, it is open what the log holds
// (protocol R6): then nothing may be repeated before it was looked at. A lost leadership is such an answer: it is also
// given to a batch that was stored and not replicated in time.
func AfterAppendDoubt(err error) bool {
	return err != nil && !errors.Is(err, ErrNotSent) && !is(err, notAppended...)
}

var errUnsupported = errors.New("not served by this broker")
