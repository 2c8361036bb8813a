package daemon

import (
	"os/exec"
	"testing"
)

// The script judges the unit with systemd's own tools; where there is no systemd it says so and succeeds.
func TestTheUnitIsSandboxed(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), "sh", "../../deploy/systemd/verify.sh").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
