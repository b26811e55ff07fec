package consumertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/service"
	"example.com/paycast/shared/settings"
	"example.com/paycast/shared/testkit"
)

const (
	within   = 5 * time.Minute // more than a slow machine needs
	password = "rows-only-password"
	sound    = "the settings keep every rule"
	broken   = "a setting breaks a rule"
)

// site is a consumer's process with a database and topics that the test may spoil before it starts.
type site struct {
	*testing.T
	broker     *testkit.Broker
	partitions int32
	topics     map[string]*string // their configuration
	owner      string             // the database, with all rights
	env        service.Env
	process    *testkit.Process
}

func newSite(t *testing.T) *site {
	s := &site{T: t, broker: testkit.Kafka(t), partitions: event.Partitions, owner: testkit.Postgres(t, migrations...)}
	s.topics = map[string]*string{}
	s.set("cleanup.policy", "delete")
	s.set("retention.ms", strconv.FormatInt((7*24*time.Hour).Milliseconds(), 10))
	s.env = service.Env{
		"DATABASE_URL": s.rowsOnly(), "KAFKA_BROKERS": s.broker.Brokers(), "OPS_ADDR": testkit.FreeAddr(t), "LOG_LEVEL": "info",
	}
	return s
}

func (s *site) set(name, value string) { s.topics[name] = &value }

// rowsOnly makes a role that may do what a service needs, and gives its address.
func (s *site) rowsOnly() string {
	u, err := url.Parse(s.owner)
	require.NoError(s, err)
	role := "rows_" + strings.TrimPrefix(u.Path, "/") // roles belong to the server and databases have names of their own
	s.sql("CREATE ROLE " + role + " LOGIN PASSWORD '" + password + "'")
	s.Cleanup(func() { s.sql("DROP OWNED BY " + role + "; DROP ROLE " + role) })
	s.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO " + role)
	s.sql("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO " + role)
	u.User = url.UserPassword(role, password)
	return u.String()
}

func (s *site) sql(statement string) {
	ctx := context.WithoutCancel(s.Context()) // for the end of the test as well
	conn, err := pgx.Connect(ctx, s.owner)
	require.NoError(s, err)
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, statement)
	require.NoError(s, err)
}

func (s *site) create(topics ...string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.broker.Brokers()))
	require.NoError(s, err)
	defer client.Close()
	made, err := kadm.NewClient(client).CreateTopics(s.Context(), s.partitions, 1, s.topics, topics...)
	require.NoError(s, err)
	require.NoError(s, made.Error())
}

func (s *site) start() {
	s.process = testkit.Exec(s, "./internal/subject", s.env, "right")
	s.process.WaitReady(s.env["OPS_ADDR"], within)
}

// breaks waits until the metric says that exactly these rules are broken, by so many things.
func (s *site) breaks(want map[string]int) {
	s.Helper()
	testkit.Eventually(s, within, func() error {
		got, err := s.gauge()
		if err == nil && !maps.Equal(got, want) {
			err = fmt.Errorf("the metric says %v, not %v", got, want)
		}
		return err
	})
}

var series = regexp.MustCompile(`(?m)^setting_rule_broken\{rule="([a-z]+)"\} (\d+)$`)

// gauge is what is not 0. Each rule must be there.
func (s *site) gauge() (map[string]int, error) {
	resp, err := http.Get("http://" + s.env["OPS_ADDR"] + "/metrics")
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	all := series.FindAllStringSubmatch(string(page), -1)
	if len(all) != len(settings.Rules()) {
		return nil, fmt.Errorf("%d rules in the metric", len(all))
	}
	got := map[string]int{}
	for _, one := range all {
		if n, err := strconv.Atoi(one[2]); err != nil || n != 0 {
			got[one[1]] = n
		}
	}
	return got, nil
}

// line waits for the ERROR line about the rule that shows the arithmetic.
func (s *site) line(rule, arithmetic string) {
	s.Helper()
	testkit.Eventually(s, within, func() error {
		for text := range strings.Lines(s.process.Stderr()) {
			var line struct{ Level, Msg, Rule, Arithmetic, Otherwise string }
			if json.Unmarshal([]byte(text), &line) == nil && line.Msg == broken && line.Rule == rule && line.Level == "ERROR" &&
				strings.Contains(line.Arithmetic, arithmetic) && line.Otherwise != "" {
				return nil
			}
		}
		return fmt.Errorf("no line about %s with %q", rule, arithmetic)
	})
}

func (s *site) says(text string) {
	s.Helper()
	testkit.Eventually(s, within, func() error {
		if !strings.Contains(s.process.Stderr(), text) {
			return errors.New("not yet: " + text)
		}
		return nil
	})
}

func TestAStartWithSoundSettingsSaysSoInOneLine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.create(event.Topic, event.RedeliveryTopic("subject"))
	s.start()
	s.says(sound)
	s.breaks(map[string]int{})
	require.NotContains(t, s.process.Stderr(), broken)
	require.NotContains(t, s.process.Stderr(), password)
}

// TestABrokenSettingIsNamedAfterTheStartWithItsArithmetic: the process runs all the same, and no other rule is broken.
func TestABrokenSettingIsNamedAfterTheStartWithItsArithmetic(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(s *site)
		rule  string
		of    int // things that break it
		shows string
	}{
		"a role that owns everything": {func(s *site) { s.env["DATABASE_URL"] = s.owner }, "rights", 1, "is a superuser; "},
		"topics of three partitions":  {func(s *site) { s.partitions = 3 }, "partitions", 2, "partitions 3 = 12"},
		"compacted topics":            {func(s *site) { s.set("cleanup.policy", "compact") }, "cleanup", 2, "cleanup.policy compact = delete"},
		"topics kept for an hour":     {func(s *site) { s.set("retention.ms", "3600000") }, "retention", 2, "retention.ms 1h0m0s >= replay horizon 168h0m0s"},
		"a log shorter than Kafka": {func(s *site) {
			s.set("retention.ms", strconv.FormatInt((400*time.Hour).Milliseconds(), 10))
			s.env["CONSUME_LOG_ARCHIVE_AFTER"] = "200h" // no less than what we would make topics with, so it is not refused
		}, "window", 1, "kept 200h0m0s >= max(Kafka's retention, replay horizon 168h0m0s) = 400h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			c.spoil(s)
			s.create(event.Topic, event.RedeliveryTopic("subject"))
			s.start()
			s.breaks(map[string]int{c.rule: c.of})
			s.line(c.rule, c.shows)
			require.NotContains(t, s.process.Stderr(), sound)
			require.NotContains(t, s.process.Stderr(), password)
		})
	}
}

func TestWithoutKafkaTheStartIsNotHeldUpAndItsTopicsAreCheckedWhenItComes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.env["DATABASE_URL"], s.partitions = s.owner, 3
	s.create(event.Topic, event.RedeliveryTopic("subject"))
	s.broker.Kill()
	s.start()
	s.breaks(map[string]int{"rights": 1})
	s.says("some settings cannot be checked yet")
	s.broker.Restart()
	s.breaks(map[string]int{"rights": 1, "partitions": 2})
	s.line("partitions", "partitions 3 = 12")
}

func TestATopicThatIsMissingAtTheStartIsNamedUntilItIsThere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.create(event.Topic)
	s.start()
	s.breaks(map[string]int{settings.MissingTopic: 1})
	s.line(settings.MissingTopic, "it does not exist")
	s.create(event.RedeliveryTopic("subject"))
	s.breaks(map[string]int{})
	s.says(sound)
}
