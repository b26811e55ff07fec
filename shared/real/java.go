package real

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"example.com/paycast/shared/embedded"
)

const oldestJava = 17

var javaVersion = regexp.MustCompile(`version "(?:1\.)?(\d+)`)

// javaHome finds a Java that is new enough: that of JAVA_HOME, or the one on the PATH.
func javaHome(ctx context.Context) (string, error) {
	program := filepath.Join(os.Getenv("JAVA_HOME"), "bin", "java")
	if os.Getenv("JAVA_HOME") == "" {
		found, err := exec.LookPath("java")
		if err != nil {
			return "", fmt.Errorf("the real parts need Java %d or newer, and there is none: install it (on Debian: apt-get install openjdk-17-jre-headless), or go without --kafka real and --search real", oldestJava)
		}
		if program, err = filepath.EvalSymlinks(found); err != nil {
			return "", err
		}
	}
	out, err := exec.CommandContext(ctx, program, "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("running %s -version: %w: %s", program, err, out)
	}
	version := javaVersion.FindSubmatch(out)
	if version == nil {
		return "", fmt.Errorf("%s does not say its version: %s", program, out)
	}
	if major, _ := strconv.Atoi(string(version[1])); major < oldestJava {
		return "", fmt.Errorf("the real parts need Java %d or newer, and %s is version %d: set JAVA_HOME to a newer one", oldestJava, program, major)
	}
	return filepath.Dir(filepath.Dir(program)), nil
}

// fetched returns a directory of the cache that Maven fills the first time, run in a project of its own.
func fetched(ctx context.Context, name, project string, goal func(dir string) []string) (string, error) {
	return embedded.Cached(name, func(tmp string) error {
		maven, err := exec.LookPath("mvn")
		if err != nil {
			return fmt.Errorf("%s has to be fetched first, and Maven is missing: install it (on Debian: apt-get install maven)", name)
		}
		work, err := os.MkdirTemp("", "paycast-maven-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(work) }()
		if err := os.WriteFile(filepath.Join(work, "pom.xml"), []byte(project), 0o600); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, maven, append([]string{"-B", "-ntp", "-q"}, goal(tmp)...)...)
		cmd.Dir = work
		if out, err := cmd.CombinedOutput(); err != nil {
			return errors.Join(fmt.Errorf("fetching %s with Maven: %w: %s", name, err, out), ctx.Err())
		}
		return nil
	})
}
