package kafka

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// refusals says by the beginning of what was asked for which right is missing when it is refused. Of two beginnings that
// fit, the longer one stands first.
var refusals = []struct{ asked, right string }{
	{"metadata", "DESCRIBE"},
	{"list offsets", "DESCRIBE"},
	{"find leader epoch", "DESCRIBE"},
	{"describe producers", "READ"},
	{"fetch offset", "DESCRIBE"},
	{"fetch", "READ"},
	{"read settings", "DESCRIBE_CONFIGS"},
	{"read", "READ"},
	{"produce", "WRITE"},
	{"change settings", "ALTER_CONFIGS"},
	{"create topic", "CREATE"},
	{"grow topic", "ALTER"},
	{"delete topic", "DELETE"},
	{"delete records", "DELETE"},
	{"commit offsets", "READ"},
	{"set offsets of share group", "READ"},
	{"delete offsets", "DELETE"},
	{"delete group", "DELETE"},
	{"describe group", "DESCRIBE"},
	{"list groups", "DESCRIBE"},
	{"list ACLs", "DESCRIBE"},
	{"create ACL", "ALTER"},
	{"delete ACL", "ALTER"},
	{"write marker", "ALTER"},
	{"list reassignments", "DESCRIBE"},
	{"reassign", "ALTER"},
	{"cancel", "ALTER"},
	{"add a replica", "ALTER"},
	{"change placement", "ALTER"},
	{"elect preferred leader", "ALTER"},
	{"list transactions", "DESCRIBE"},
	{"describe transaction", "DESCRIBE"},
	{"initialise transactional id", "WRITE"},
	{"add partitions to transaction", "WRITE"},
	{"end transaction", "WRITE"},
	{"list SCRAM users", "DESCRIBE"},
	{"list client quotas", "DESCRIBE_CONFIGS"},
}

// resources names by code what the right is missing on.
var resources = map[int16]string{
	kerr.TopicAuthorizationFailed.Code:           "the topic",
	kerr.GroupAuthorizationFailed.Code:           "the group",
	kerr.ClusterAuthorizationFailed.Code:         "the cluster",
	kerr.TransactionalIDAuthorizationFailed.Code: "its transactional ids",
}

// hintOf is the operator's next step after a code was the answer to what was asked, where there is one that always holds.
func hintOf(asked string, code int16) string {
	resource, refused := resources[code]
	switch {
	case code == kerr.SaslAuthenticationFailed.Code:
		return "check the user name and the secret that the configuration refers to"
	case code == kerr.InvalidRecord.Code && asked == "produce":
		return keylessHint
	case !refused:
		return ""
	}
	return fmt.Sprintf("grant the principal of mirrord %s on %s", rightFor(asked, code), resource)
}

// keylessHint: a source that was switched to compaction serves its records without a key until they are cleaned away.
const keylessHint = "a compacted topic takes no record without a key: set cleanup.policy=delete at the source until the copy " +
	"is level, or recover once the source has cleaned them away"

func rightFor(asked string, code int16) string {
	if code == kerr.TopicAuthorizationFailed.Code && strings.HasPrefix(asked, "delete offsets") {
		return "READ" // the group is what has to be granted DELETE
	}
	for _, r := range refusals {
		if strings.HasPrefix(asked, r.asked) {
			return r.right
		}
	}
	return "the missing right"
}

// ForWantOf is err with the operator's next step, for refusals of requests that this package did not send.
func ForWantOf(rights string, err error) error {
	e, ok := kafkaErrorIn(err)
	if !ok || resources[e.Code] == "" {
		return err
	}
	return fmt.Errorf("%w; grant the principal of mirrord %s", err, rights)
}
