package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Users of a guarded cluster; each one's password is its name. SuperUser may do everything, the others what rules grant
// them. Who comes to the direct listener is a super user too: that is the tests' own client.
const (
	SuperUser = "mirrord"
	Limited   = "limited"
	App       = "app"
	OtherApp  = "other"
)

// Guarded are the options of a cluster with an authorizer whose proxied listener demands a SCRAM login.
func Guarded() Options {
	return Options{Props: map[string]string{
		"listener.security.protocol.map":                       "DIRECT:PLAINTEXT,PROXIED:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"sasl.enabled.mechanisms":                              "SCRAM-SHA-512",
		"listener.name.proxied.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
		"authorizer.class.name":                                "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":                                          "User:ANONYMOUS;User:" + SuperUser,
		"auto.create.topics.enable":                            "false",
	}}
}

// GuardedPair is SharedPair with an authorizer and logins on both sides. Access rules are gone, too, when a test ends.
func GuardedPair(t *testing.T) Pair {
	t.Helper()
	p := guarded.take(t, func(dir string) (*Cluster, error) { return newGuarded(dir, "") })
	t.Cleanup(func() {
		for _, c := range []*Cluster{p.S, p.D} {
			c.Nodes[0].Proxy.Heal()
			c.dropACLs(t)
			c.Reset(t)
		}
		guarded.give(p)
	})
	return p
}

// StartGuarded starts a cluster with an authorizer that ends with the test.
func StartGuarded(t *testing.T, heap string) *Cluster {
	t.Helper()
	c, err := newGuarded(t.TempDir(), heap)
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

func newGuarded(dir, heap string) (*Cluster, error) {
	o := Guarded()
	o.Heap = heap
	c, err := NewCluster(dir, o)
	if err != nil {
		return nil, err
	}
	var users []kadm.UpsertSCRAM
	for _, name := range []string{SuperUser, Limited, App, OtherApp} {
		users = append(users, kadm.UpsertSCRAM{User: name, Mechanism: kadm.ScramSha512, Iterations: 4096, Password: name})
	}
	altered, err := c.adm.AlterUserSCRAMs(context.Background(), nil, users)
	if err == nil {
		err = altered.Error()
	}
	return c, err
}

func (c *Cluster) dropACLs(t testing.TB) {
	t.Helper()
	f := kmsg.NewDeleteACLsRequestFilter()
	f.ResourceType, f.ResourcePatternType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny
	f.Operation, f.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	req := kmsg.NewPtrDeleteACLsRequest()
	req.Filters = append(req.Filters, f)
	resp, err := req.RequestWith(context.Background(), c.cl)
	must(t, err)
	must(t, kerr.ErrorForCode(resp.Results[0].ErrorCode))
}

// Login is the security section of a configuration file for a user of a guarded cluster.
func Login(t testing.TB, user string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), user+".password")
	must(t, os.WriteFile(file, []byte(user+"\n"), 0o600))
	return fmt.Sprintf("protocol: SASL_PLAINTEXT, sasl: {mechanism: SCRAM-SHA-512, username: %s, password_file: %q}", user, file)
}

// As are the settings of a daemon that mirrors topics from S to D and logs in to both as a user.
func (p Pair) As(t testing.TB, user string, topics ...string) Settings {
	t.Helper()
	s := p.Mirror(topics...)
	s.Source, s.Destination, s.Direct = p.S.Proxied(), p.D.Proxied(), p.D.Bootstrap()
	s.SourceSecurity, s.Security = Login(t, user), Login(t, user)
	return s
}

// ProduceAs writes one record as a user of a guarded cluster and gives the broker's refusal, if any.
func (c *Cluster) ProduceAs(user, topic string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Proxied()), kgo.SASL(scram.Auth{User: user, Pass: user}.AsSha512Mechanism()),
		kgo.DisableClientMetrics(), kgo.RecordRetries(1), kgo.RecordDeliveryTimeout(8*time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	return cl.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Value: []byte("by " + user)}).FirstErr()
}
