package doctor

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/settings"
)

const second = settings.Duration(time.Second)

// healthy is a system in which every rule has something to check and nothing to say.
func healthy() *Facts {
	return &Facts{
		Horizon: kafka.Retention, Tolerance: time.Second,
		Kafka: settings.Kafka{
			Brokers: map[int32]string{0: "false", 1: "false"},
			Topics:  []settings.Topic{{Topic: event.Topic, Partitions: event.Partitions, Cleanup: "delete", Retention: kafka.Retention}},
		},
		Processes: []Process{{
			Name: "p", RoundTrip: 2 * time.Millisecond,
			Report: settings.Report{
				Process:   "p",
				Leases:    []settings.Lease{{Of: "rows", Lease: 15 * second, Deadline: 5 * second, Margin: 2 * second}},
				Producers: []settings.Producer{{Acks: "all", Idempotent: true, OpenRequests: 1}},
				Groups: []settings.Group{{
					Group: "g", Topics: []string{event.Topic}, Initial: "oldest", Session: 10 * second, Rejoin: 20 * second, Deadline: 10 * second,
				}},
				Windows:   []settings.Window{{Of: "consume log"}},
				Databases: []settings.Database{{Name: "p", Role: "p", RoundTrip: second / 1000, Reaches: []string{"postgres"}}},
			},
		}, {
			Name:   "other",
			Report: settings.Report{Process: "other", Databases: []settings.Database{{Name: "o", Role: "o"}}},
		}},
	}
}

func TestHealthySystemPassesEveryRule(t *testing.T) {
	t.Parallel()
	rules := map[string]bool{}
	for _, found := range Check(*healthy()) {
		require.True(t, found.OK, "%+v", found)
		require.NotEmpty(t, found.Arithmetic, found.Rule)
		rules[found.Rule] = true
	}
	// "topics" has nothing to say while all of them are there; three rules are not for a process alone, or are notes.
	want := append(settings.Rules(), "ready", "databases", "handler")
	rules[settings.MissingTopic] = true
	require.ElementsMatch(t, want, slices.Collect(maps.Keys(rules)))
}

// TestEachRuleIsBrokenByItsOwnConfiguration: exactly one finding turns bad, it is the rule's, and it shows the numbers.
func TestEachRuleIsBrokenByItsOwnConfiguration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(f *Facts, p *Process)
		rule  string
		shows string
	}{
		"search's index has another mapping": {func(_ *Facts, p *Process) { p.NotOK = []string{"elasticsearch: the index is not as defined"} }, "ready", "not as defined"},
		"a lease no longer than its work":    {func(_ *Facts, p *Process) { p.Report.Leases[0].Lease = 7 * second }, "lease", "lease 7s > deadline 5s + margin 2s = 7s"},
		"a lease without a margin":           {func(_ *Facts, p *Process) { p.Report.Leases[0].Margin = 0 }, "lease", "margin 0s"},
		"acks of the leader alone":           {func(_ *Facts, p *Process) { p.Report.Producers[0].Acks = "leader" }, "producer", "acks=leader"},
		"a producer that is not idempotent":  {func(_ *Facts, p *Process) { p.Report.Producers[0].Idempotent = false }, "producer", "idempotent=false"},
		"five open requests":                 {func(_ *Facts, p *Process) { p.Report.Producers[0].OpenRequests = 5 }, "producer", "open requests 5"},
		"a group that begins at the end":     {func(_ *Facts, p *Process) { p.Report.Groups[0].Initial = "newest" }, "offsets", "newest = oldest"},
		"lost offsets are jumped over":       {func(_ *Facts, p *Process) { p.Report.Groups[0].Reset = true }, "offsets", "true = false"},
		"a handler slower than a rebalance":  {func(_ *Facts, p *Process) { p.Report.Groups[0].Deadline = 20 * second }, "handler", "20s < rebalance timeout 20s"},
		"a topic with fewer partitions":      {func(f *Facts, _ *Process) { f.Kafka.Topics[0].Partitions = 6 }, "partitions", "6 = 12"},
		"a compacted topic":                  {func(f *Facts, _ *Process) { f.Kafka.Topics[0].Cleanup = "compact,delete" }, "cleanup", "compact,delete = delete"},
		"a topic kept for a day":             {func(f *Facts, _ *Process) { f.Kafka.Topics[0].Retention = 24 * time.Hour }, "retention", "24h0m0s >= replay horizon 168h0m0s"},
		"no topic":                           {func(f *Facts, _ *Process) { f.Kafka.Topics = nil }, "topics", "does not exist"},
		"kafka cannot be asked":              {func(f *Facts, _ *Process) { f.Kafka, f.KafkaErr = settings.Kafka{}, errors.New("out of brokers") }, "topics", "out of brokers"},
		"a log shorter than Kafka":           {func(_ *Facts, p *Process) { p.Report.Windows[0].Keeps = 24 * 3600 * second }, "window", "24h0m0s >= max"},
		"sent events archived too soon": {func(_ *Facts, p *Process) {
			p.Report.Windows = append(p.Report.Windows, settings.Window{Of: "sent events", Keeps: 100 * 3600 * second})
		}, "window", "kept 100h0m0s >= max(Kafka's retention, replay horizon 168h0m0s) = 168h0m0s"},
		"a log shorter than a topic for ever": {func(f *Facts, p *Process) {
			f.Kafka.Topics[0].Retention, p.Report.Windows[0].Keeps = -1, 9999*3600*second
		}, "window", "for ever"},
		"a role that owns its tables":          {func(_ *Facts, p *Process) { p.Report.Databases[0].Excess = []string{"may change or drop tables"} }, "rights", "drop tables"},
		"a role that reads another's database": {func(_ *Facts, p *Process) { p.Report.Databases[0].Reaches = []string{"o", "postgres"} }, "databases", "connects to p, and may to o of other"},
		"a role that can change the audit":     {func(_ *Facts, p *Process) { p.Report.Databases[0].Excess = []string{"may change what t_audit says"} }, "rights", "t_audit"},
		"a producer that makes topics":         {func(_ *Facts, p *Process) { p.Report.Producers[0].MakesTopics = true }, "making", "true = false"},
		"a member that makes topics":           {func(_ *Facts, p *Process) { p.Report.Groups[0].MakesTopics = true }, "making", "true = false"},
		"a broker that makes topics":           {func(f *Facts, _ *Process) { f.Kafka.Brokers[1] = "true" }, "making", "auto.create.topics.enable true = false"},
		"a broker that does not tell":          {func(f *Facts, _ *Process) { f.Kafka.Brokers[1] = "" }, "making", "(not told) = false"},
		"the database's clock runs ahead":      {func(_ *Facts, p *Process) { p.Report.Databases[0].Ahead = 3 * second }, "clocks", "apart by 3s"},
		"the process's clock runs late":        {func(_ *Facts, p *Process) { p.Ahead = -5 * time.Second }, "clocks", "apart by 5s"},
		"a process that cannot be asked":       {func(_ *Facts, p *Process) { *p = Process{Name: "p", Err: errors.New("connection refused")} }, "ready", "refused"},
		"a replay that reaches farther back":   {func(f *Facts, _ *Process) { f.Horizon = 30 * 24 * time.Hour }, "retention", "168h0m0s >= replay horizon 720h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := healthy()
			c.spoil(f, &f.Processes[0])
			var bad []settings.Finding
			for _, found := range Check(*f) {
				if !found.OK {
					bad = append(bad, found)
				}
			}
			require.Len(t, bad, 1)
			require.Equal(t, c.rule, bad[0].Rule)
			require.Contains(t, bad[0].Arithmetic, c.shows)
			require.NotEmpty(t, bad[0].Otherwise)
			require.Equal(t, c.rule == "handler", bad[0].Note)
		})
	}
}

func TestSlowAnswerIsNotTakenForASkewedClock(t *testing.T) {
	t.Parallel()
	f := healthy()
	f.Processes[0].Ahead, f.Processes[0].RoundTrip = -1500*time.Millisecond, 3*time.Second
	for _, found := range Check(*f) {
		require.True(t, found.OK, "%+v", found)
	}
}
