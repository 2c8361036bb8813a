package daemon

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

func TestMessageLimitIsRaisedOnce(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(t.TempDir()), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	destination, err := kafka.Open(kafka.Config{Connection: mirror.Connection{BootstrapServers: c.ListenAddrs()}})
	if err != nil {
		t.Fatal(err)
	}
	defer destination.Close()
	ctx := context.Background()
	meta, err := destination.Metadata(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	target := mirror.Target{Topic: "t", DestinationID: meta.Topics["t"].ID}
	limit := func() string { return destination.TopicConfigs(ctx, "t")["t"].Explicit()[keyMaxMessageBytes] }

	fenced := errors.New("lease over")
	l := messageLimit{destination, func() error { return fenced }}
	if err := l.raise(ctx, target, 5_000_000); !errors.Is(err, fenced) || limit() != "" {
		t.Fatalf("raised without the lease: %v, limit %q", err, limit())
	}
	l.lease = func() error { return nil }
	for _, bytes := range []int{5_000_000, 2_000_000} { // the second fits already
		if err := l.raise(ctx, target, bytes); err != nil {
			t.Fatal(err)
		}
		if limit() != "5000000" {
			t.Fatalf("limit %q after a batch of %d bytes", limit(), bytes)
		}
	}
	small := []kafka.ConfigChange{{Topic: "t", Set: map[string]string{keySegmentBytes: "2000000"}}}
	if err := destination.AlterTopicConfigs(kafka.WithLease(ctx, l.lease), small)["t"]; err != nil {
		t.Fatal(err)
	}
	if err := l.raise(ctx, target, 3_000_000); err != nil || destination.TopicConfigs(ctx, "t")["t"].Explicit()[keySegmentBytes] != "3000000" {
		t.Fatalf("segments that are smaller than the batch: %v, %v", err, destination.TopicConfigs(ctx, "t")["t"].Explicit())
	}
	target.DestinationID = mirror.TopicID{1}
	if err := l.raise(ctx, target, 9_000_000); mirror.KindOf(err) != mirror.DestinationGone || limit() != "5000000" {
		t.Fatalf("raised on another topic: %v, limit %q", err, limit())
	}
}
