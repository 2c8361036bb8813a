package kafka

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

func TestCommittedOffsetsRoundTrip(t *testing.T) {
	_, c, _ := fakeWithTopic(t, 3)
	ctx := testContext(t)
	want := map[TopicPartition]CommittedOffset{{"t", 0}: {5, -1, "note"}, {"t", 2}: {0, -1, ""}}
	if failed := c.CommitOffsets(ctx, "g", want); len(failed) > 0 {
		t.Fatal(failed)
	}
	got := c.FetchOffsets(ctx, "g", "nobody")
	if got["g"].Err != nil || !maps.Equal(got["g"].Offsets, want) {
		t.Errorf("fetched %+v, want %v", got["g"], want)
	}
	if got["nobody"].Err != nil || len(got["nobody"].Offsets) > 0 {
		t.Errorf("a group that does not exist: %+v", got["nobody"])
	}
	if failed := c.DeleteOffsets(ctx, "g", []TopicPartition{{"t", 0}}); len(failed) > 0 {
		t.Fatal(failed)
	}
	if o := c.FetchOffsets(ctx, "g")["g"].Offsets; len(o) != 1 || o[TopicPartition{"t", 2}].Offset != 0 {
		t.Errorf("after deleting one: %v", o)
	}
	if failed := c.DeleteGroups(ctx, "g"); len(failed) > 0 {
		t.Fatal(failed)
	}
	groups, err := c.ListGroups(ctx)
	if err != nil || len(groups) > 0 {
		t.Errorf("after deleting the group: %v, %v", groups, err)
	}
}

func TestOffsetsOfManyGroupsInFewRequests(t *testing.T) {
	const n = 2 * groupsPerFetch
	fake := startFake(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "t"))
	c, ctx := openFake(t, fake), testContext(t)
	commits := map[string]map[TopicPartition]CommittedOffset{}
	var ids []string
	for i := range n {
		id := fmt.Sprintf("g-%d", i)
		ids = append(ids, id)
		commits[id] = map[TopicPartition]CommittedOffset{{"t", 0}: {int64(i), -1, ""}}
	}
	if failed := c.CommitMany(ctx, commits); len(failed) > 0 {
		t.Fatal(failed)
	}
	counts := countRequests(fake)
	groups, err := c.ListGroups(ctx)
	if err != nil || len(groups) != n {
		t.Fatalf("%d groups, %v", len(groups), err)
	}
	for _, g := range groups {
		if g.Active() || g.Type != ClassicGroup {
			t.Fatalf("%+v holds offsets only", g)
		}
	}
	for id, o := range c.FetchOffsets(ctx, ids...) {
		if o.Err != nil || !maps.Equal(o.Offsets, commits[id]) {
			t.Fatalf("%s: %+v", id, o)
		}
	}
	if lists, fetches := counts.of(kmsg.ListGroups), counts.of(kmsg.OffsetFetch); lists != 3 || fetches > 2*3 {
		t.Errorf("%d ListGroups and %d OffsetFetch for %d groups on 3 brokers", lists, fetches, n)
	}
}

func TestFetchOffsetsOfOldBrokers(t *testing.T) {
	fake := startFake(t, kfake.MaxVersions(kversion.V2_1_0()), kfake.SeedTopics(2, "t"))
	c, ctx := openFake(t, fake), testContext(t)
	want := map[TopicPartition]CommittedOffset{{"t", 1}: {7, -1, ""}}
	for _, id := range []string{"a", "b"} {
		if failed := c.CommitOffsets(ctx, id, want); len(failed) > 0 {
			t.Fatal(failed)
		}
	}
	for id, o := range c.FetchOffsets(ctx, "a", "b") {
		if o.Err != nil || !maps.Equal(o.Offsets, want) {
			t.Errorf("%s: %+v", id, o)
		}
	}
	groups, err := c.ListGroups(ctx)
	if err != nil || len(groups) != 2 || groups[0].Type != ClassicGroup || !groups[0].Active() {
		t.Errorf("groups %+v, %v; a state that is not told counts as active", groups, err)
	}
}

// consume joins a group and stays in it until the test ends.
func consume(t *testing.T, fake *kfake.Cluster, group string, opts ...kgo.Opt) {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(fake.ListenAddrs()...), kgo.ConsumerGroup(group),
		kgo.ConsumeTopics("t"), kgo.ClientID("app"), kgo.FetchMaxWait(50 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.CloseAllowingRebalance)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for {
		if id, _ := cl.GroupMetadata(); id != "" {
			return
		}
		poll, stop := context.WithTimeout(ctx, 50*time.Millisecond)
		cl.PollFetches(poll)
		stop()
		if ctx.Err() != nil {
			t.Fatal("never joined")
		}
	}
}

func TestActiveGroupsAreToldWithTheirMembers(t *testing.T) {
	fake := startFake(t, kfake.SeedTopics(2, "t"), kfake.MaxVersions(kversion.V4_2_0()))
	c, ctx := openFake(t, fake), testContext(t)
	consume(t, fake, "classic")
	consume(t, fake, "next", kgo.ServerSideBalancer())
	groups, err := c.ListGroups(ctx)
	for err == nil && len(groups) < 2 && ctx.Err() == nil { // a KIP-848 member has its id before the group knows it
		groups, err = c.ListGroups(ctx)
	}
	if err != nil || len(groups) != 2 || groups[0].Type != ClassicGroup || groups[1].Type != ConsumerGroup {
		t.Fatalf("%+v, %v", groups, err)
	}
	details := c.DescribeGroups(ctx, append(groups, Group{ID: "s", Type: StreamsGroup}))
	for _, g := range groups {
		if d := details[g.ID]; !g.Active() || d.Err != nil || len(d.Members) != 1 || d.Members[0].ClientID != "app" {
			t.Errorf("%+v: %+v", g, d)
		}
		at := map[TopicPartition]CommittedOffset{{"t", 0}: {1, -1, ""}}
		if failed := c.CommitOffsets(ctx, g.ID, at); len(failed) != 1 {
			t.Errorf("committed into group %s while it has a member", g.ID)
		}
	}
	if !UnsupportedVersion(details["s"].Err) {
		t.Errorf("streams group: %+v", details["s"])
	}
}

func TestShareOffsetsRoundTrip(t *testing.T) {
	fake := startFake(t, kfake.SeedTopics(2, "t"), kfake.MaxVersions(kversion.V4_2_0()))
	c, ctx := openFake(t, fake), testContext(t)
	want := map[TopicPartition]int64{{"t", 0}: 3, {"t", 1}: 0}
	if failed := c.AlterShareOffsets(ctx, "s", want); len(failed) > 0 {
		t.Fatal(failed)
	}
	if got := c.FetchShareOffsets(ctx, "s")["s"]; got.Err != nil || !maps.Equal(got.Starts, want) {
		t.Errorf("%+v, want %v", got, want)
	}
	groups, err := c.ListGroups(ctx)
	if err != nil || len(groups) != 1 || groups[0].Type != ShareGroup || groups[0].Active() {
		t.Errorf("%+v, %v", groups, err)
	}
	if d := c.DescribeGroups(ctx, groups)["s"]; d.Err != nil || len(d.Members) != 0 || d.State != "Empty" {
		t.Errorf("described: %+v", d)
	}
	if failed := c.DeleteShareOffsets(ctx, "s", "t"); len(failed) > 0 {
		t.Fatal(failed)
	}
	if got := c.FetchShareOffsets(ctx, "s")["s"]; len(got.Starts) > 0 {
		t.Errorf("after deleting: %+v", got)
	}
}

func TestGroupListingIsWholeOrSaysSo(t *testing.T) {
	fake := startFake(t, kfake.NumBrokers(3))
	c := openFake(t, fake)
	fake.ControlKey(kmsg.ListGroups.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if fake.CurrentNode() != 1 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
		resp.ErrorCode = 29
		return resp, nil, true
	})
	if _, err := c.ListGroups(testContext(t)); !Authorization(err) {
		t.Errorf("a coordinator refused and the listing says %v", err)
	}
}
