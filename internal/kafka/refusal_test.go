package kafka

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Every refusal names the right that is missing: whatever this package asks for is in the table.
func TestEveryRefusalNamesTheRight(t *testing.T) {
	asked := regexp.MustCompile(`(?:answerError|partitionError)\("([^"]+)"|\bop :?= "([^"]+)"|(?:ask|effect|shards|effectShards)(?:\[[^\]]*\])?\(ctx, c, "([^"]+)"`)
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range asked.FindAllStringSubmatch(string(text), -1) {
			op := strings.Join(m[1:], "")
			if found++; rightFor(op, kerr.ClusterAuthorizationFailed.Code) == "the missing right" && !strings.HasPrefix(op, "ask for rights") {
				t.Errorf("%s: %q has no right in the table", f.Name(), op)
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d requests were found", found)
	}
}

func TestRefusal(t *testing.T) {
	long := "Request Request(processor=3, session=Session@41ab6820, listenerName=ListenerName(PROXIED), buffer=null) needs DESCRIBE permission."
	for _, tt := range []struct {
		asked   string
		code    int16
		message *string
		want    string
	}{
		{"read settings of t", kerr.TopicAuthorizationFailed.Code, nil, "grant the principal of mirrord DESCRIBE_CONFIGS on the topic"},
		{"read t-0 at 5", kerr.TopicAuthorizationFailed.Code, nil, "READ on the topic"},
		{"fetch offsets of group g", kerr.GroupAuthorizationFailed.Code, nil, "DESCRIBE on the group"},
		{"delete offsets of group g", kerr.TopicAuthorizationFailed.Code, nil, "READ on the topic"},
		{"delete offsets of group g", kerr.GroupAuthorizationFailed.Code, nil, "DELETE on the group"},
		{"produce", kerr.InvalidRecord.Code, nil, keylessHint},
		{"list ACLs", kerr.ClusterAuthorizationFailed.Code, &long, "needs DESCRIBE permission.; grant the principal of mirrord DESCRIBE on the cluster"},
	} {
		if got := answerError(tt.asked, tt.code, tt.message).Error(); !strings.HasSuffix(got, tt.want) {
			t.Errorf("%s: %q, want the end %q", tt.asked, got, tt.want)
		}
	}
	if err := ForWantOf("READ on group g", kerr.GroupAuthorizationFailed); !strings.HasSuffix(err.Error(), "grant the principal of mirrord READ on group g") ||
		!Authorization(err) {
		t.Error(err)
	}
	if err := ForWantOf("READ on group g", kerr.NotCoordinator); err.Error() != kerr.NotCoordinator.Error() {
		t.Error(err)
	}
}

// Of two beginnings that fit, the longer one must be found first.
func TestRefusalsAreOrdered(t *testing.T) {
	for i, r := range refusals {
		if slices.ContainsFunc(refusals[:i], func(before struct{ asked, right string }) bool { return strings.HasPrefix(r.asked, before.asked) }) {
			t.Errorf("%q is never reached", r.asked)
		}
	}
}
