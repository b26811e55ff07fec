package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/inbox"
	"example.com/paycast/shared/outbox"
	"example.com/paycast/shared/service"
)

// TestAValueOutsideAClosedSetIsAUsageErrorAndNobodyIsAsked types a wrong value, and a right one, for each flag that has
// such a set. Nobody listens at the address: a command that asks fails, and its exit code is another.
func TestAValueOutsideAClosedSetIsAUsageErrorAndNobodyIsAsked(t *testing.T) {
	t.Parallel()
	payctl := func(line ...string) (int, string) {
		var out, complain bytes.Buffer
		return run(t.Context(), line, service.Env{"COUPON_OPS_URL": "http://127.0.0.1:0"}, &out, &complain), complain.String()
	}
	var c commands
	parsed, err := c.parse([]string{"status"})
	require.NoError(t, err)
	values := map[string][]string{}
	for _, command := range parsed.Model.Leaves(true) {
		path := strings.Fields(command.Path())
		line := path
		for _, flag := range command.Flags {
			if flag.Required {
				line = append(line, "--"+flag.Name+"=coupon")
			}
		}
		for _, flag := range command.Flags {
			switch flag.PlaceHolder {
			case "STATUS", "STATE", "CLASS":
				require.NotEmpty(t, flag.Enum, "%v --%s leaves a slip of the fingers to the services", path, flag.Name)
			}
			if flag.Enum == "" {
				continue
			}
			values[strings.Join(path, " ")] = flag.EnumSlice()
			code, complain := payctl(append(line, "--"+flag.Name+"=FOO")...)
			require.Equal(t, exitUsage, code, "%v\n%s", line, complain)
			for _, value := range flag.EnumSlice() {
				require.Contains(t, complain, fmt.Sprintf("%q", value), "%v: what there is", line)
			}
			code, complain = payctl(append(line, "--"+flag.Name+"="+flag.EnumSlice()[0])...)
			require.Equal(t, exitFailed, code, "%v\n%s", line, complain)
			require.Contains(t, complain, "coupon cannot be asked")
		}
	}
	require.ElementsMatch(t, []string{outbox.Pending, outbox.Sending, outbox.Sent, outbox.Retry, outbox.Dead}, values["outbox list"])
	require.ElementsMatch(t, []string{string(inbox.StatusProcessing), string(inbox.StatusSuccess), string(inbox.StatusRetry),
		string(inbox.StatusWaiting), string(inbox.StatusRejected), string(inbox.StatusDead)}, values["log list"])
	require.ElementsMatch(t, []string{inbox.ClassTransient, inbox.ClassWaiting, inbox.ClassBadData, inbox.ClassRefused, inbox.ClassPanic,
		inbox.ClassCrash, inbox.ClassConflict, inbox.ClassUndecodable}, values["replay plan"])

	code, complain := payctl("outbox", "list", "--status", "SENT")
	require.Equal(t, exitUsage, code)
	require.Contains(t, complain, "--order")
	code, complain = payctl("outbox", "list", "--limit", "0")
	require.Equal(t, exitUsage, code)
	require.Contains(t, complain, "--limit must be at least 1")
}
