package kafka

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
)

var exampleACL = ACL{"TOPIC", "orders", "LITERAL", "User:alice", "*", "READ", "ALLOW"}

func TestACLsRoundTrip(t *testing.T) {
	c, ctx := openFake(t, startFake(t)), testContext(t)
	acls := []ACL{
		exampleACL,
		{"TOPIC", "*", "LITERAL", "User:bob", "*", "WRITE", "DENY"},
		{"GROUP", "app-", "PREFIXED", "User:alice", "10.0.0.1", "DESCRIBE", "ALLOW"},
		{"CLUSTER", "kafka-cluster", "LITERAL", "User:ops", "*", "ALTER_CONFIGS", "ALLOW"},
		{"TRANSACTIONAL_ID", "tx", "LITERAL", "User:ops", "*", "WRITE", "ALLOW"},
	}
	for i, err := range c.CreateACLs(ctx, acls) {
		if err != nil {
			t.Errorf("create %v: %v", acls[i], err)
		}
	}
	byText := func(a, b ACL) int { return cmpStrings(a.String(), b.String()) }
	got, err := c.DescribeACLs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, byText)
	if want := slices.SortedFunc(slices.Values(acls), byText); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for i, err := range c.DeleteACLs(ctx, append(acls[:1:1], ACL{"TOPIC", "orders", "LITERAL", "User:nobody", "*", "READ", "ALLOW"})) {
		if err != nil {
			t.Errorf("delete %d: %v", i, err)
		}
	}
	if got, err := c.DescribeACLs(ctx); err != nil || len(got) != len(acls)-1 || slices.Contains(got, acls[0]) {
		t.Errorf("after deleting one of %d: %v, %v", len(acls), got, err)
	}
}

func cmpStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func TestACLsThatAreNoExactBindingAreNotSent(t *testing.T) {
	fake := startFake(t)
	c, ctx := openFake(t, fake), testContext(t)
	counts := countRequests(fake)
	for _, a := range []ACL{
		{"ANY", "orders", "LITERAL", "User:a", "*", "READ", "ALLOW"},
		{"TOPIC", "orders", "MATCH", "User:a", "*", "READ", "ALLOW"},
		{"TOPIC", "orders", "ANY", "User:a", "*", "READ", "ALLOW"},
		{"TOPIC", "orders", "LITERAL", "User:a", "*", "ANY", "ALLOW"},
		{"TOPIC", "orders", "LITERAL", "User:a", "*", "READ", "ANY"},
		{"UNKNOWN", "orders", "LITERAL", "User:a", "*", "READ", "ALLOW"},
	} {
		for what, errs := range map[string][]error{"create": c.CreateACLs(ctx, []ACL{a}), "delete": c.DeleteACLs(ctx, []ACL{a})} {
			if mirror.KindOf(errs[0]) != mirror.Refused {
				t.Errorf("%s %v: %v", what, a, errs[0])
			}
		}
	}
	if n := counts.of(kmsg.CreateACLs) + counts.of(kmsg.DeleteACLs); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestManyACLsInFewRequests(t *testing.T) {
	fake := startFake(t)
	c, ctx := openFake(t, fake), testContext(t)
	acls := make([]ACL, 2*namesPerRequest)
	for i := range acls {
		acls[i] = exampleACL
		acls[i].ResourceName = fmt.Sprintf("t-%d", i)
	}
	counts := countRequests(fake)
	for _, err := range c.CreateACLs(ctx, acls) {
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.DescribeACLs(ctx)
	if err != nil || len(got) != len(acls) {
		t.Errorf("%d ACLs, %v", len(got), err)
	}
	if creates, lists := counts.of(kmsg.CreateACLs), counts.of(kmsg.DescribeACLs); creates != 2 || lists != 1 {
		t.Errorf("%d CreateACLs, %d DescribeACLs", creates, lists)
	}
}

func TestMissingAuthorizerIsRecognised(t *testing.T) {
	fake := startFake(t)
	fake.ControlKey(kmsg.DescribeACLs.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.DescribeACLsResponse)
		resp.ErrorCode, resp.ErrorMessage = kerr.SecurityDisabled.Code, kmsg.StringPtr("No Authorizer is configured.")
		return resp, nil, true
	})
	if _, err := openFake(t, fake).DescribeACLs(testContext(t)); !SecurityDisabled(err) || mirror.KindOf(err) != mirror.Refused {
		t.Errorf("%v", err)
	}
}

func TestClusterOperations(t *testing.T) {
	ops, err := openFake(t, startFake(t)).ClusterOperations(testContext(t))
	if err != nil || !ops.MayWriteMarkers() || !ops.Has(OpAlterConfigs) || len(ops.Missing(OpAlter, OpCreate)) > 0 {
		t.Errorf("without an authorizer: %b, %v", ops, err)
	}
	if o := NoOperations; o.Known() || o.Has(OpAlter) || o.MayWriteMarkers() {
		t.Error("a set that the broker did not tell allows something")
	}
	if got := Operations(1<<OpDescribe).Missing(OpDescribe, OpAlter, OpClusterAction); !slices.Equal(got, []string{"ALTER", "CLUSTER_ACTION"}) {
		t.Errorf("missing %v", got)
	}
}

func TestOperationsOfTopicsAndGroups(t *testing.T) {
	_, c, _ := fakeWithTopic(t, 1)
	ctx := testContext(t)
	topics := c.TopicOperations(ctx, "t", "none")
	if o := topics["t"]; o.Err != nil || !o.Operations.Has(OpWrite) {
		t.Errorf("topic: %+v", o)
	}
	if o := topics["none"]; !UnknownTopic(o.Err) {
		t.Errorf("missing topic: %+v", o)
	}
	if o := c.GroupOperations(ctx, "g")["g"]; o.Err != nil || !o.Operations.Has(OpRead) {
		t.Errorf("group: %+v", o)
	}
}

func TestReportsForPlan(t *testing.T) {
	fake := startFake(t, kfake.Superuser("SCRAM-SHA-512", "root", "secret"))
	c, ctx := openFake(t, fake), testContext(t)
	if quotas, err := c.ClientQuotas(ctx); err != nil || len(quotas) > 0 {
		t.Errorf("quotas %v, %v", quotas, err)
	}
	req := kmsg.NewPtrAlterClientQuotasRequest()
	entry := kmsg.NewAlterClientQuotasRequestEntry()
	user := kmsg.NewAlterClientQuotasRequestEntryEntity()
	user.Type, user.Name = "user", kmsg.StringPtr("alice")
	client := kmsg.NewAlterClientQuotasRequestEntryEntity()
	client.Type = "client-id"
	entry.Entity = append(entry.Entity, user, client)
	op := kmsg.NewAlterClientQuotasRequestEntryOp()
	op.Key, op.Value = "producer_byte_rate", 1000
	entry.Ops = append(entry.Ops, op)
	req.Entries = append(req.Entries, entry)
	if _, err := req.RequestWith(ctx, c.Client()); err != nil {
		t.Fatal(err)
	}
	quotas, err := c.ClientQuotas(ctx)
	if err != nil || len(quotas) != 1 || quotas[0].Entity.String() != "client-id=<default>,user=alice" || quotas[0].Values["producer_byte_rate"] != 1000 {
		t.Errorf("quotas %v, %v", quotas, err)
	}
	if users, err := c.ScramUsers(ctx); err != nil {
		t.Errorf("users %v, %v", users, err)
	}
}
