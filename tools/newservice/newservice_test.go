package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

// tree is a copy of this repository that a test may change.
func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel("../..", path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && rel != "." && (strings.HasPrefix(d.Name(), ".") || rel == "bin"):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(root, rel), 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(root, rel), content, info.Mode().Perm())
	}))
	return root
}

// sum changes when anything below root does, an empty folder included.
func sum(t *testing.T, root string) string {
	t.Helper()
	h := sha256.New()
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %s\n", path, d.Type())
		if !d.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(path)
		fmt.Fprintf(h, "%d\n%s\n", len(content), content)
		return err
	}))
	return hex.EncodeToString(h.Sum(nil))
}

func run(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %s\n%s", program, strings.Join(args, " "), out)
	return string(out)
}

func TestACopyForEachEventCompiles(t *testing.T) {
	t.Parallel()
	root := tree(t)
	for name, event := range map[string]string{"cancelfee": "OrderCanceled", "farewell": "OrderClosed"} {
		require.NoError(t, create(io.Discard, root, name, event))
		run(t, root, "go", "vet", "./services/"+name+"/...")
	}
}

func TestNothingOfTheTemplateIsLeftInACopy(t *testing.T) {
	t.Parallel()
	root := tree(t)
	require.NoError(t, create(io.Discard, root, "coupon", "PaymentSucceeded"))
	require.NoError(t, filepath.WalkDir(filepath.Join(root, "services/coupon"), func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		require.NotContains(t, d.Name(), "points")
		if d.IsDir() || strings.HasPrefix(d.Name(), "go.") {
			return nil
		}
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		text := strings.ToLower(strings.ReplaceAll(string(content), "entry point", ""))
		require.NotContains(t, text, "point", path)
		require.NotContains(t, text, "// flow ", path)
		return nil
	}))
}

func TestPortsAndNamesOfAllServicesStayTheirOwn(t *testing.T) {
	t.Parallel()
	root := tree(t)
	for _, name := range []string{"coupon", "welcome", "loyalty"} {
		require.NoError(t, create(io.Discard, root, name, "PaymentSucceeded"))
	}
	services, err := readServices(root)
	require.NoError(t, err)
	names, ports := map[string]bool{}, map[int]bool{0: true, 8087: true, 9087: true} // the world's
	for _, s := range services {
		for _, p := range s.Processes {
			require.False(t, names[p.Name], p.Name)
			require.False(t, ports[p.Ops] || p.HTTP != 0 && ports[p.HTTP], p.Name)
			names[p.Name], ports[p.Ops], ports[p.HTTP] = true, true, true
		}
	}
	require.True(t, names["coupon"] && names["welcome"] && names["loyalty"])
}

// TestComposeHasTheCopyInEveryPlaceWhereItHasTheTemplate loads the file as the engine does.
func TestComposeHasTheCopyInEveryPlaceWhereItHasTheTemplate(t *testing.T) {
	t.Parallel()
	root := tree(t)
	made, err := newPlan(root, "coupon", "PaymentSucceeded")
	require.NoError(t, err)
	require.NoError(t, made.apply(t.TempDir()))
	path := filepath.Join(root, "deploy/compose/compose.yaml")
	options, err := cli.NewProjectOptions([]string{path})
	require.NoError(t, err)
	project, err := options.LoadProject(t.Context())
	require.NoError(t, err)

	text := func(service string) string {
		s := project.Services[service]
		s.Environment = maps.Clone(s.Environment)
		for name := range s.Environment {
			if name != "DATABASE_URL_FILE" { // the rest is one for all, and looked at below
				delete(s.Environment, name)
			}
		}
		text, err := json.Marshal(s)
		require.NoError(t, err)
		return string(text)
	}
	words := strings.NewReplacer("points", "coupon", `"8082"`, fmt.Sprintf(`"%d"`, made.ports.http), `"9082"`, fmt.Sprintf(`"%d"`, made.ports.ops))
	for _, kind := range []string{"", "-migrate"} {
		require.JSONEq(t, words.Replace(text("points"+kind)), text("coupon"+kind))
	}
	env := project.Services["reconcile"].Environment
	require.Equal(t, "http://coupon:8080", *env["COUPON_URL"])
	require.Equal(t, "http://coupon:9080", *env["COUPON_OPS_URL"])
	require.Contains(t, strings.Split(*env["FACTS_URLS"], ","), "coupon=http://coupon:9080")
	require.Contains(t, strings.Split(*env["FACTS_URLS"], ","), "points=http://points:9080")
	require.Contains(t, project.Services["topics"].Command, "coupon")
	require.Contains(t, project.Services["demo"].DependsOn, "coupon")
	require.Contains(t, project.Volumes, "secrets-coupon")
	require.True(t, mounts(project.Services["secrets"], "secrets-coupon", "/secrets/coupon"))
	require.True(t, mounts(project.Services["coupon"], "secrets-coupon", "/run/secrets"))
}

func mounts(s types.ServiceConfig, volume, at string) bool {
	for _, v := range s.Volumes {
		if v.Source == volume && v.Target == at {
			return true
		}
	}
	return false
}

func TestWhatCannotBeMadeIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	root := tree(t)
	require.NoError(t, create(io.Discard, root, "coupon", "PaymentSucceeded"))
	require.NoError(t, os.Mkdir(filepath.Join(root, "services", "leftover"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "docs", "services", "paged.md"), nil, 0o644))
	before := sum(t, root)
	for _, c := range []struct{ name, event, reason string }{
		{"coupon", "PaymentSucceeded", "there is a service coupon"}, // the second run
		{"notify", "PaymentSucceeded", "there is a service notify"},
		{"sender", "PaymentSucceeded", "is a process of services/notify"},
		{"leftover", "PaymentSucceeded", "services/leftover exists already"},
		{"paged", "PaymentSucceeded", "docs/services/paged.md exists already"},
		{"world", "PaymentSucceeded", "is the name of deploy/world"},
		{"inbox", "PaymentSucceeded", "is the name of shared/inbox"},
		{"demo", "PaymentSucceeded", "compose.yaml has a demo already"},
		{"postgres", "PaymentSucceeded", "is the name of shared/postgres"},
		{"account", "PaymentSucceeded", "is a name inside the template's code"},
		{"stack", "PaymentSucceeded", "is a name inside the template's code"},
		{"sms", "PaymentSucceeded", "the environment has a SMS_URL of another meaning"},
		{"database", "PaymentSucceeded", "the environment has a DATABASE_URL of another meaning"},
		{"func", "PaymentSucceeded", "means something in Go"},
		{"string", "PaymentSucceeded", "means something in Go"},
		{"template1", "PaymentSucceeded", "means something to Postgres"},
		{"credits", "PaymentSucceeded", "means something to the template"},
		{"Coupon", "PaymentSucceeded", "lower-case letters and digits"},
		{"gift-card", "PaymentSucceeded", "lower-case letters and digits"},
		{"gift_card", "PaymentSucceeded", "lower-case letters and digits"},
		{"../gift", "PaymentSucceeded", "lower-case letters and digits"},
		{"2gifts", "PaymentSucceeded", "lower-case letters and digits"},
		{"g", "PaymentSucceeded", "lower-case letters and digits"},
		{strings.Repeat("g", 31), "PaymentSucceeded", "lower-case letters and digits"},
		{"gift\n", "PaymentSucceeded", "lower-case letters and digits"},
		{"gift", "PaymentFailed", "there are OrderCanceled, OrderClosed, OrderCreated, PaymentSucceeded"},
		{"gift", "paymentsucceeded", `no event "paymentsucceeded"`},
	} {
		require.ErrorContains(t, create(io.Discard, root, c.name, c.event), c.reason, "%s %s", c.name, c.event)
		require.Equal(t, before, sum(t, root), "%s %s", c.name, c.event)
	}
}

func TestATemplateThatIsNotAsExpectedIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, old, new, reason string }{
		{"services/points/main.go", "the one to copy", "the one to imitate", "does not fit the template any more"},
		{"services/points/internal/points/handler.go", "func Handle", "func (", "expected"},
		{"deploy/compose/compose.yaml", "  points-migrate:", "  migrate-points:", "does not fit it any more"},
		{"go.work", "use (", "use  (", `no "use (" block`},
	} {
		root := tree(t)
		path := filepath.Join(root, c.file)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, bytes.Replace(text, []byte(c.old), []byte(c.new), 1), 0o644))
		before := sum(t, root)
		require.ErrorContains(t, create(io.Discard, root, "coupon", "PaymentSucceeded"), c.reason, c.file)
		require.Equal(t, before, sum(t, root), c.file)
	}
	root := tree(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, template, "notes.txt"), nil, 0o644))
	require.ErrorContains(t, create(io.Discard, root, "coupon", "PaymentSucceeded"), "notes.txt is no part of the template")
}

func TestAFailureAnywhereIsTakenBack(t *testing.T) {
	t.Parallel()
	root := tree(t)
	staged := t.TempDir()
	p, err := newPlan(root, "coupon", "PaymentSucceeded")
	require.NoError(t, err)

	t.Log("what cannot be staged, as on a full disk")
	before := sum(t, root)
	p.files["services/coupon/main.go/inside.go"] = nil // no file can be made in a file
	require.Error(t, p.apply(staged))
	require.Equal(t, before, sum(t, root))
	delete(p.files, "services/coupon/main.go/inside.go")

	t.Log("what cannot be moved, when the service is there and its page is not")
	require.NoError(t, os.Rename(filepath.Join(root, "docs/services"), filepath.Join(root, "docs/pages")))
	before = sum(t, root)
	require.Error(t, p.apply(staged))
	require.Equal(t, before, sum(t, root))
	require.NoError(t, os.Rename(filepath.Join(root, "docs/pages"), filepath.Join(root, "docs/services")))

	t.Log("what cannot be changed, after all else")
	before = sum(t, root)
	p.edits = append(p.edits, edited{path: "no/such/file"})
	require.Error(t, p.apply(staged))
	require.Equal(t, before, sum(t, root))
}

func TestTheReasonIsToldAndNothingIsChangedWhereNothingCanBeWritten(t *testing.T) {
	t.Parallel()
	root := tree(t)
	page := filepath.Join(root, "docs", "services", "points.md")
	content, err := os.ReadFile(page)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(filepath.Dir(page)))
	require.NoError(t, os.WriteFile(filepath.Dir(page), nil, 0o644)) // a file where the folder was
	before := sum(t, root)
	require.ErrorContains(t, create(io.Discard, root, "coupon", "PaymentSucceeded"), "nothing was changed: ")
	require.Equal(t, before, sum(t, root))
	require.NoError(t, os.Remove(filepath.Dir(page)))
	require.NoError(t, write(page, content, 0o644))
	require.NoError(t, create(io.Discard, root, "coupon", "PaymentSucceeded"), "and once it can, it works")
}

func TestWhatAKilledRunHasLeftIsNotBuiltUpon(t *testing.T) {
	t.Parallel()
	root := tree(t)
	require.NoError(t, os.MkdirAll(filepath.Join(root, claim, "services", "coupon"), 0o755))
	before := sum(t, root)
	require.ErrorContains(t, create(io.Discard, root, "coupon", "PaymentSucceeded"), "nothing was changed: .new-service is there")
	require.Equal(t, before, sum(t, root))
}

func TestRunsAtTheSameTimeDoNotMixTheirChanges(t *testing.T) {
	t.Parallel()
	root := tree(t)
	names := []string{"coupon", "welcome", "loyalty", "farewell"}
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { errs[i] = create(io.Discard, root, name, "PaymentSucceeded") })
	}
	all.Wait()
	compose, err := os.ReadFile(filepath.Join(root, "deploy/compose/compose.yaml"))
	require.NoError(t, err)
	work, err := os.ReadFile(filepath.Join(root, "go.work"))
	require.NoError(t, err)
	ports, made := map[int]bool{}, 0
	services, err := readServices(root)
	require.NoError(t, err)
	for i, name := range names {
		at := slices.IndexFunc(services, func(s service) bool { return s.Name == name })
		require.Equal(t, errs[i] == nil, at >= 0, "%s: %v", name, errs[i])
		require.Equal(t, errs[i] == nil, strings.Contains(string(compose), "\n  "+name+":"), name)
		require.Equal(t, errs[i] == nil, strings.Contains(string(work), "./services/"+name+"\n"), name)
		if errs[i] != nil {
			require.ErrorContains(t, errs[i], "another run is under way")
			continue
		}
		made++
		require.False(t, ports[services[at].Processes[0].HTTP], name)
		ports[services[at].Processes[0].HTTP] = true
	}
	require.NotZero(t, made)
	require.NoDirExists(t, filepath.Join(root, claim))
}

func TestMakeTakesTheNameAsItStands(t *testing.T) {
	t.Parallel()
	root := tree(t)
	before := sum(t, root)
	for _, args := range [][]string{
		{"NAME=x; touch here", "EVENT=PaymentSucceeded"}, {"NAME=coupon"}, {},
	} {
		cmd := exec.CommandContext(t.Context(), "make", append([]string{"new-service"}, args...)...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "MAKEFLAGS=", "NAME=", "EVENT=")
		out, err := cmd.CombinedOutput()
		require.Error(t, err, "%s: %s", args, out)
		require.Equal(t, before, sum(t, root), "%s: %s", args, out)
	}
}
