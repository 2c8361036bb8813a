package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// right is a row of docs/rights.md.
type right struct{ cluster, operation, resource, name string }

func (r right) String() string {
	return strings.Join([]string{r.cluster, r.operation, r.resource}, " ")
}

// rule is the access rule that grants a right to a user.
func (r right) rule(user string) string {
	return strings.Join([]string{"ALLOW", r.operation, "User:" + user, r.resource, "LITERAL", r.name}, " ")
}

func documentedRights(t *testing.T) (rights []right) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/rights.md")
	must(t, err)
	row := regexp.MustCompile(`(?m)^\| (source|destination) \| (\w+) \| (\w+) (\S+) \|`)
	for _, m := range row.FindAllStringSubmatch(string(doc), -1) {
		rights = append(rights, right{m[1], m[2], m[3], m[4]})
	}
	if len(rights) < 12 {
		t.Fatalf("docs/rights.md has %d rights", len(rights))
	}
	return rights
}

// everyFunction needs the right: without it an instance does nothing.
var everyFunction = []string{"records", "creation", "growth", "settings", "groups", "deleted offsets", "rights", "log start"}

// needs says which functions are lost with a right, and what has to be told about it: words that stand together in the
// log or in what describe says.
var needs = map[string]struct{ lost, told []string }{
	"source READ TOPIC": {
		[]string{"records", "creation", "growth", "settings", "groups", "deleted offsets", "log start"},
		[]string{"source", "TOPIC_AUTHORIZATION_FAILED", "READ on the topic"},
	},
	"source DESCRIBE_CONFIGS TOPIC":        {[]string{"creation", "settings"}, []string{"source", "read settings of t", "DESCRIBE_CONFIGS on the topic"}},
	"source DESCRIBE CLUSTER":              {[]string{"rights"}, []string{"source", "list ACLs", "DESCRIBE on the cluster"}},
	"source DESCRIBE GROUP":                {[]string{"groups", "deleted offsets"}, []string{"source", "offsets of group g", "DESCRIBE on the group"}},
	"destination READ TOPIC":               {everyFunction, []string{"destination", "READ and WRITE on topic __mirror_state"}},
	"destination WRITE TOPIC":              {everyFunction, []string{"destination", "READ and WRITE on topic __mirror_state"}},
	"destination CREATE CLUSTER":           {[]string{"creation"}, []string{"destination", "create topic", "CREATE on the topic"}},
	"destination ALTER TOPIC":              {[]string{"growth"}, []string{"destination", "grow topic", "ALTER on the topic"}},
	"destination ALTER_CONFIGS TOPIC":      {[]string{"settings"}, []string{"destination", "settings of t", "CONFIGS on the topic"}},
	"destination DELETE TOPIC":             {[]string{"log start"}, []string{"log start does not follow", "DELETE on the topic"}},
	"destination ALTER CLUSTER":            {[]string{"rights"}, []string{"destination", "ACL", "on the cluster"}},
	"destination DESCRIBE_CONFIGS CLUSTER": {nil, []string{"destination", "DESCRIBE_CONFIGS on the cluster"}},
	"destination READ GROUP":               {everyFunction, []string{"READ on group mirrord", "destination"}},
	"destination DELETE GROUP":             {[]string{"deleted offsets"}, []string{"destination", "delete offsets of group", "DELETE on the group"}},
	"destination WRITE TRANSACTIONAL_ID":   {everyFunction, []string{"destination", "WRITE on its transactional ids"}},
}

// quick are the rights that every run takes away; all of them are with MIRRORD_STORM=1.
var quick = []string{"source READ TOPIC", "source DESCRIBE GROUP", "destination ALTER_CONFIGS TOPIC", "destination DELETE GROUP", "destination READ GROUP"}

// functions are what mirrord does around and with the records, each as something to do at the source and what has to
// come of it. round makes each time another one.
func functions(t *testing.T, p Pair, round int) (do func(), checks map[string]func() error) {
	n := int64(round)
	topic, group := fmt.Sprint("new-", round), fmt.Sprint("gone-", round)
	do = func() {
		p.S.Send(t, nil, Numbered("t", 0, round, 1)...)
		p.S.Topic(t, topic, 1)
		p.S.Grow(t, "growing", round+2)
		p.S.Set(t, "t", "segment.ms", fmt.Sprint(3600000+round))
		p.S.Commit(t, "g", "t", 0, n)
		var gone kadm.TopicsSet
		gone.Add("t", 0)
		_, err := p.S.Admin().DeleteOffsets(context.Background(), group, gone)
		must(t, err)
		p.S.Grant(t, fmt.Sprintf("ALLOW READ User:r%d TOPIC LITERAL t", round))
		_, err = p.S.Admin().DeleteRecords(context.Background(), offsetsOf("trimmed", n))
		must(t, err)
	}
	return do, map[string]func() error{
		"records":         func() error { return p.D.wantEnd("t", 0, 101+n) },
		"creation":        func() error { return p.D.wantPartitions(topic, 1) },
		"growth":          func() error { return p.D.wantPartitions("growing", round+2) },
		"settings":        func() error { return p.D.wantSettings("t", "segment.ms", fmt.Sprint(3600000+round)) },
		"groups":          func() error { return p.D.wantCommitted("g", "t", 0, n) },
		"deleted offsets": func() error { return p.D.wantCommitted(group, "t", 0, -1) },
		"rights":          func() error { return p.D.wantACLs(fmt.Sprintf("ALLOW READ User:r%d TOPIC LITERAL t", round)) },
		"log start":       func() error { return p.D.wantStart("trimmed", 0, n) },
	}
}

// With exactly the documented rights everything works. Without any one of them the lack is told with cluster, operation
// and right, what does not need it goes on, and once it is granted again all goes on without a restart (case B066).
func TestB066_EachDocumentedRightIsNeededAndMissed(t *testing.T) {
	t.Parallel()
	p := GuardedPair(t)
	on := map[string]*Cluster{"source": p.S, "destination": p.D}
	rights := documentedRights(t)
	for _, r := range rights {
		on[r.cluster].Grant(t, r.rule(Limited))
	}
	for _, topic := range []string{"t", "growing", "trimmed"} {
		p.S.Topic(t, topic, 1)
		p.S.Send(t, nil, Numbered(topic, 0, 0, 100)...)
	}
	s := p.As(t, Limited, ".*")
	s.Retry = "max_backoff: 1s"
	m := NewDaemon(t, s)
	m.Start()
	storm := os.Getenv("MIRRORD_STORM") != ""
	round := 0
	for _, r := range rights {
		need, ok := needs[r.String()]
		if !ok {
			t.Errorf("the test does not know what needs %s", r)
		}
		if !storm && !slices.Contains(quick, r.String()) {
			continue
		}
		t.Run(r.String(), func(t *testing.T) {
			m := m.In(t)
			gone := fmt.Sprint("gone-", round)
			p.S.Commit(t, gone, "t", 0, 5)
			Eventually(t, soon, func() error { return p.D.wantCommitted(gone, "t", 0, 5) })
			Eventually(t, soon, func() error { return m.wantGroup(gone, "t", "synced", "") })
			do, checks := functions(t, p, round)
			round++
			before := len(m.Log())
			on[r.cluster].Revoke(t, r.rule(Limited))
			if need.lost == nil { // it is asked for when a mirror is created
				define(t, m, p, fmt.Sprint("west-", round))
			}
			do()
			Eventually(t, soon, func() error {
				described := m.Run("describe")
				return holds(m.Log()[before:]+described.Out+described.Err, need.told)
			})
			for name, check := range checks {
				if !slices.Contains(need.lost, name) {
					Eventually(t, soon, func() error { return named(name, check()) })
				}
			}
			on[r.cluster].Grant(t, r.rule(Limited))
			for name, check := range checks {
				Eventually(t, soon, func() error { return named(name, check()) })
			}
		})
	}
	if !m.p.alive() {
		t.Error("mirrord has ended")
	}
}

func named(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// holds demands a line with all the words.
func holds(text string, words []string) error {
lines:
	for line := range strings.Lines(text) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue lines
			}
		}
		return nil
	}
	return errors.New("nothing says " + strings.Join(words, " … ") + ":\n" + text)
}

// define creates one more mirror, from S to D as the instance's user.
func define(t *testing.T, m *Daemon, p Pair, name string) {
	t.Helper()
	file := m.dir + "/" + name + ".properties"
	password := m.dir + "/" + name + ".password"
	must(t, os.WriteFile(password, []byte(Limited), 0o600))
	must(t, os.WriteFile(file, fmt.Appendf(nil, "bootstrap.servers=%s\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=%s\nsasl.password=${file:%s}\n",
		p.S.Proxied(), Limited, password), 0o600))
	m.Do("create", "--mirror", name, "--mirror-config", file)
}
