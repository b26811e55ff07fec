package e2e

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/testkit"
)

func TestDoctorFindsTheWholeSystemSoundUntilOneServiceMayReadAnother(t *testing.T) {
	t.Parallel()
	s := up(t, t.TempDir())
	var report string
	testkit.Eventually(t, 5*time.Minute, func() (err error) { // a process that has just come up may be not ready for a moment
		if report, err = s.doctor(); err != nil {
			err = fmt.Errorf("%w: %s", err, report)
		}
		return err
	})
	for _, rule := range []string{
		"ready", "lease", "producer", "offsets", "rights", "databases", "clocks", "partitions", "cleanup", "retention", "making", "window",
	} {
		require.Regexp(t, `(?m)^ok +`+rule+` `, report)
	}

	notify, err := url.Parse(s.vars["NOTIFY_DATABASE_URL"])
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), notify.String())
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	name := strings.TrimPrefix(notify.Path, "/")
	_, err = conn.Exec(t.Context(), "GRANT CONNECT ON DATABASE "+pgx.Identifier{name}.Sanitize()+" TO PUBLIC")
	require.NoError(t, err)
	report, err = s.doctor()
	require.Error(t, err)
	require.Regexp(t, `(?m)^BAD +databases +points, role .*and may to `+name+` of (notify|sender)`, report)
}

// doctor is what payctl doctor says; the error is its exit code.
func (s *system) doctor() (string, error) {
	cmd := exec.Command(binary(s.t, "payctl"), "doctor") // tell runs it when the test's context has ended
	cmd.Env = os.Environ()
	for name, value := range s.vars {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}
