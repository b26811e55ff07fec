package fleet_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/service"
	"example.com/paycast/tools/payctl/internal/fleet"
)

func names(f fleet.Fleet) (all []string) {
	for _, p := range f.Processes {
		all = append(all, p.Name)
	}
	return all
}

func TestProcessesAreWhatTheNamesSayAndAFileSpeaksForItself(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "env")
	require.NoError(t, os.WriteFile(file, []byte("# a stack\nCOUPON_OPS_URL=http://127.0.0.1:1/\nPOINTS_2_OPS_URL=http://127.0.0.1:2\nOPS_TOKEN=a=b\nKAFKA_BROKERS=k:9092\n"), 0o600))
	env := func() service.Env {
		return service.Env{"PAYMENT_OPS_URL": "http://10.0.0.1:9081", "OPS_TOKEN": "other", "HOME": "/"}
	}

	f, err := fleet.Find(env(), "", time.Second)
	require.NoError(t, err)
	require.Equal(t, []string{"payment"}, names(f))
	require.Equal(t, "other", f.Processes[0].Token)

	f, err = fleet.Find(env(), file, time.Second)
	require.NoError(t, err)
	require.Equal(t, []string{"coupon", "points-2"}, names(f), "not payment: it is another system's")
	require.Equal(t, "a=b", f.Processes[0].Token)
	require.Equal(t, "http://127.0.0.1:1", f.Processes[0].BaseURL)
	require.Equal(t, "k:9092", f.Brokers)

	_, err = f.Only("coupons")
	require.ErrorContains(t, err, "coupon, points-2")
}

func TestMissingAndWrongAddressesSayWhatToDo(t *testing.T) {
	t.Parallel()
	_, err := fleet.Find(service.Env{}, "", time.Second)
	require.ErrorContains(t, err, "make local")
	_, err = fleet.Find(service.Env{}, filepath.Join(t.TempDir(), "gone"), time.Second)
	require.ErrorContains(t, err, "gone")
	_, err = fleet.Find(service.Env{"POINTS_OPS_URL": "points:9082"}, "", time.Second)
	require.ErrorContains(t, err, "POINTS_OPS_URL")
}
