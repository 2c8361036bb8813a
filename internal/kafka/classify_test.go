package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// lastCode is the highest code that franz-go knows; a new one fails the test below until somebody has looked at it.
const lastCode = 136

// kindTable is the judgement about every code that Kafka does not call retriable. The others are Retriable, or named.
var retriableAnyway = []*kerr.Error{
	kerr.UnknownServerError, kerr.OffsetOutOfRange, kerr.InvalidFetchSize,
	kerr.StaleControllerEpoch, kerr.RebalanceInProgress, kerr.InvalidRequest, kerr.OutOfOrderSequenceNumber,
	kerr.DuplicateSequenceNumber, kerr.InvalidTxnState, kerr.InvalidProducerIDMapping, kerr.ConcurrentTransactions,
	kerr.OperationNotAttempted, kerr.UnknownProducerID, kerr.ReassignmentInProgress, kerr.NonEmptyGroup, kerr.GroupIDNotFound,
	kerr.StaleBrokerEpoch, kerr.MemberIDRequired, kerr.NoReassignmentInProgress, kerr.GroupSubscribedToTopic,
	kerr.ResourceNotFound, kerr.DuplicateResource, kerr.InconsistentVoterSet, kerr.SnapshotNotFound, kerr.PositionOutOfRange,
	kerr.DuplicateBrokerRegistration, kerr.BrokerIDNotRegistered, kerr.InconsistentClusterID, kerr.TransactionalIDNotFound,
	kerr.IneligibleReplica, kerr.NewLeaderElected, kerr.OffsetMovedToTieredStorage, kerr.UnreleasedInstanceID,
	kerr.UnknownControllerID, kerr.UnknownSubscriptionID, kerr.TelemetryTooLarge, kerr.InvalidRegistration,
	kerr.TransactionAbortable, kerr.InvalidRecordState, kerr.ShareSessionNotFound, kerr.InvalidShareSessionEpoch,
	kerr.InvalidVoterKey, kerr.DuplicateVoter, kerr.VoterNotFound, kerr.RebootstrapRequired, kerr.StreamsInvalidTopology,
	kerr.StreamsInvalidTopologyEpoch, kerr.StreamsTopologyFenced, kerr.GroupDeletionFailed,
	kerr.StreamsTopologyDescriptionUpdateFailed, kerr.ControllerIDNotRegistered,
}

func TestEveryCodeIsJudged(t *testing.T) {
	lists := [][]*kerr.Error{fencedCodes, unreachableCodes, refusedCodes, retriableAnyway}
	for code := int16(-1); code <= lastCode; code++ {
		e := kerr.TypedErrorForCode(code)
		if e == nil { // 0
			continue
		}
		if e.Code != code {
			t.Errorf("code %d is not known any more", code)
		}
		named := 0
		for _, list := range lists {
			if slices.Contains(list, e) {
				named++
			}
		}
		if named > 1 || named == 0 && !e.Retriable {
			t.Errorf("%s is judged %d times", e.Message, named)
		}
		if slices.Contains(refusedCodes, e) && e.Retriable {
			t.Errorf("%s: refused, though Kafka calls it retriable", e.Message)
		}
		err := kafkaError(code, nil)
		if Classify(err) != kindOfCode(e) || mirror.KindOf(err) != kindOfCode(e) || Classify(fmt.Errorf("x: %w", e)) != kindOfCode(e) {
			t.Errorf("%s: kind %v", e.Message, Classify(err))
		}
		if !strings.Contains(err.Error(), e.Message) {
			t.Errorf("%s is not named in %q", e.Message, err)
		}
	}
	if e := kerr.TypedErrorForCode(lastCode + 1); e != kerr.UnknownServerError {
		t.Errorf("%s is new: judge it", e.Message)
	}
}

func TestUnknownCodeKeepsItsNumber(t *testing.T) {
	said := "what now"
	err := kafkaError(31999, &said)
	if !strings.Contains(err.Error(), "31999") || !strings.Contains(err.Error(), said) || Classify(err) != mirror.Retriable {
		t.Errorf("%v: %v", Classify(err), err)
	}
	if kafkaError(0, &said) != nil {
		t.Error("an error out of code 0")
	}
}

func TestClassifyNetworkAndContext(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want mirror.Kind
	}{
		{io.EOF, mirror.Unreachable},
		{io.ErrUnexpectedEOF, mirror.Unreachable},
		{net.ErrClosed, mirror.Unreachable},
		{os.ErrDeadlineExceeded, mirror.Unreachable},
		{context.DeadlineExceeded, mirror.Unreachable},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, mirror.Unreachable},
		{&net.DNSError{IsNotFound: true}, mirror.Unreachable},
		{ErrClosed, mirror.Unreachable},
		{context.Canceled, mirror.Retriable},
		{errors.New("anything"), mirror.Retriable},
		{mirror.Errorf(mirror.Loop, "x"), mirror.Loop},
		{notSent(kerr.TopicAuthorizationFailed), mirror.Refused},
	} {
		if got := Classify(fmt.Errorf("op: %w", tt.err)); got != tt.want {
			t.Errorf("Classify(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}

func TestPredicates(t *testing.T) {
	all := map[string]func(error) bool{
		"NotLeader": NotLeader, "FencedLeaderEpoch": FencedLeaderEpoch, "OutOfRange": OutOfRange,
		"OffsetNotAvailable": OffsetNotAvailable, "OutOfOrderSequence": OutOfOrderSequence, "DuplicateSequence": DuplicateSequence,
		"InvalidProducerEpoch": InvalidProducerEpoch, "CoordinatorFenced": CoordinatorFenced,
		"ConcurrentTransactions": ConcurrentTransactions, "CoordinatorMoved": CoordinatorMoved, "TooLarge": TooLarge,
		"Corrupt": Corrupt, "InvalidRecord": InvalidRecord, "UnknownTopic": UnknownTopic, "TopicExists": TopicExists,
		"TopicAuthorization": TopicAuthorization, "ClusterAuthorization": ClusterAuthorization, "SecurityDisabled": SecurityDisabled,
		"UnsupportedVersion": UnsupportedVersion, "PolicyViolation": PolicyViolation, "SessionLost": SessionLost,
	}
	for name, e := range map[string]*kerr.Error{
		"NotLeader": kerr.NotLeaderForPartition, "FencedLeaderEpoch": kerr.UnknownLeaderEpoch,
		"OutOfRange": kerr.OffsetOutOfRange, "OffsetNotAvailable": kerr.OffsetNotAvailable,
		"OutOfOrderSequence": kerr.OutOfOrderSequenceNumber, "DuplicateSequence": kerr.DuplicateSequenceNumber,
		"InvalidProducerEpoch": kerr.InvalidProducerEpoch, "CoordinatorFenced": kerr.TransactionCoordinatorFenced,
		"ConcurrentTransactions": kerr.ConcurrentTransactions,
		"CoordinatorMoved":       kerr.NotCoordinator, "TooLarge": kerr.RecordListTooLarge, "Corrupt": kerr.CorruptMessage,
		"InvalidRecord": kerr.InvalidTimestamp, "UnknownTopic": kerr.UnknownTopicID, "TopicExists": kerr.TopicAlreadyExists,
		"TopicAuthorization": kerr.TopicAuthorizationFailed, "ClusterAuthorization": kerr.ClusterAuthorizationFailed,
		"SecurityDisabled": kerr.SecurityDisabled, "UnsupportedVersion": kerr.UnsupportedVersion,
		"PolicyViolation": kerr.PolicyViolation, "SessionLost": kerr.InvalidFetchSessionEpoch,
	} {
		for predicate, is := range all {
			if got := is(fmt.Errorf("op: %w", kafkaError(e.Code, nil))); got != (predicate == name) {
				t.Errorf("%s(%s) = %v", predicate, e.Message, got)
			}
			if is(nil) || is(io.EOF) {
				t.Errorf("%s holds of anything", predicate)
			}
		}
	}
	if !UnsupportedVersion(errUnsupported) || AfterAppendDoubt(nil) || notSent(nil) != nil {
		t.Error("corner cases")
	}
}

func TestCodec(t *testing.T) {
	text := []byte(strings.Repeat("the same again ", 500))
	for codec := range uint8(5) {
		small, err := Codec.Compress(codec, text)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Codec.Decompress(codec, small)
		if err != nil || string(back) != string(text) {
			t.Errorf("codec %d: %d bytes, %v", codec, len(back), err)
		}
		if codec > 0 && len(small) > len(text)/2 {
			t.Errorf("codec %d: %d of %d bytes", codec, len(small), len(text))
		}
		if _, err := Codec.Decompress(codec, []byte("no compressed data at all")); err == nil && codec > 0 {
			t.Errorf("codec %d takes anything", codec)
		}
	}
	if _, err := Codec.Compress(7, text); err == nil {
		t.Error("codec 7")
	}
	if _, err := Codec.Decompress(7, text); err == nil {
		t.Error("codec 7")
	}
}

// A payload that is large comes piece by piece; what is said to be small is never more than its bound.
func TestCodec_LargePayloads(t *testing.T) {
	large := bytes.Repeat([]byte("the same again "), 3*smallPayload/15)
	for codec := uint8(1); codec < 5; codec++ {
		packed, err := Codec.Compress(codec, large)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := Codec.Decompress(codec, packed); !errors.Is(err, recordbatch.ErrLarge) {
			t.Errorf("codec %d: %d bytes at once, %v", codec, len(out), err)
		}
		r, err := Codec.Inflate(codec, packed)
		if err != nil {
			t.Fatal(err)
		}
		if all, err := io.ReadAll(r); err != nil || !bytes.Equal(all, large) {
			t.Errorf("codec %d: %d bytes piece by piece, %v", codec, len(all), err)
		}
		r, err = Codec.Inflate(codec, packed[:len(packed)/2])
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		if err == nil {
			t.Errorf("codec %d takes half of it", codec)
		}
	}
}

// What a single snappy block, or a zstd frame, says to hold is believed within bounds only.
func TestCodec_Claims(t *testing.T) {
	claim := binary.AppendUvarint(nil, 1<<31-1)
	framed := append(append(append([]byte{}, snappyMagic...), 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5), claim...)
	for _, src := range [][]byte{claim, framed} {
		if _, err := Codec.Decompress(recordbatch.CodecSnappy, src); !errors.Is(err, recordbatch.ErrInflates) {
			t.Error(err)
		}
	}
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0x7f, 1, 0, 0} // a single segment of 2 GiB
	if _, err := Codec.Decompress(recordbatch.CodecZstd, frame); !errors.Is(err, recordbatch.ErrLarge) {
		t.Error(err)
	}
	r, err := Codec.Inflate(recordbatch.CodecZstd, frame)
	if err == nil {
		_, err = io.ReadAll(r)
	}
	if err == nil {
		t.Error("a window of 2 GiB is taken")
	}
}

func TestKafkaError_ClusterAuthorizationLeavesTheRequestOut(t *testing.T) {
	message := "Request Request(processor=3, session=org.apache.kafka.network.Session@7821d9f1, buffer=null, envelope=None) needs DESCRIBE permission."
	err := kafkaError(kerr.ClusterAuthorizationFailed.Code, &message)
	if text := err.Error(); strings.Contains(text, "Session") || !strings.Contains(text, "needs DESCRIBE permission") {
		t.Error(text)
	}
}
