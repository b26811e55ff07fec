package compose

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/paycast/shared/webhook"
)

func volumes(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		require.NoError(t, os.Mkdir(filepath.Join(root, name), 0o755))
	}
	return root
}

func contents(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	files, err := filepath.Glob(filepath.Join(root, "*", "*"))
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		rel, err := filepath.Rel(root, f)
		require.NoError(t, err)
		all[rel] = string(text)
	}
	return all
}

func TestEachReaderFindsItsOwnSecretsAndNoOthers(t *testing.T) {
	t.Parallel()
	root := volumes(t, "postgres", "migrate", "world", "demo", "payment", "points")
	require.NoError(t, Secrets(root))
	all := contents(t, root)
	require.ElementsMatch(t, []string{
		"postgres/key", "postgres/postgres_password", "postgres/databases", "migrate/payment", "migrate/points",
		"payment/database_url", "payment/ops_token", "payment/webhook_secrets", "points/database_url", "points/ops_token",
		"world/webhook_secrets", "world/ops_token", "demo/ops_token", "demo/payment_database_url",
	}, keys(all))
	require.NotContains(t, all["points/database_url"], "owner", "the running service must not be able to change tables")
	require.Equal(t, all["payment/webhook_secrets"], all["world/webhook_secrets"])
	_, err := webhook.ParseSecrets(all["payment/webhook_secrets"])
	require.NoError(t, err)
	for _, line := range strings.Split(strings.TrimSpace(all["postgres/databases"]), "\n") {
		fields := strings.Fields(line)
		require.Contains(t, all["migrate/"+fields[0]], fields[1])
		require.Contains(t, all[fields[0]+"/database_url"], fields[2])
	}
}

func TestALostVolumeIsMadeAgainWithTheSameContents(t *testing.T) {
	t.Parallel()
	root := volumes(t, "postgres", "migrate", "world", "demo", "payment")
	require.NoError(t, Secrets(root))
	before := contents(t, root)
	for name := range before {
		if name != "postgres/key" {
			require.NoError(t, os.Remove(filepath.Join(root, name)))
		}
	}
	require.NoError(t, Secrets(root))
	require.Equal(t, before, contents(t, root))
}

func TestADamagedKeyIsNotReplaced(t *testing.T) {
	t.Parallel()
	root := volumes(t, "postgres", "migrate", "world", "demo", "payment")
	require.NoError(t, os.WriteFile(filepath.Join(root, "postgres", "key"), []byte("short"), 0o600))
	require.ErrorContains(t, Secrets(root), "is damaged", "new passwords would lock everybody out of the data")
}

func keys(m map[string]string) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	return all
}
