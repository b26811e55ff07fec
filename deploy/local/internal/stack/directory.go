package stack

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"example.com/paycast/shared/webhook"
)

// own makes dir ours until the returned function is called or this process ends, however it ends.
func own(dir string) (release func(), err error) {
	if err := os.MkdirAll(filepath.Join(dir, "log"), 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		pid, _ := os.ReadFile(lock.Name()) // without it the message is only less helpful
		_ = lock.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", lock.Name(), err)
		}
		return nil, fmt.Errorf("%s belongs to the running paycast-local with pid %s: stop that one, or choose another directory with --dir",
			dir, strings.TrimSpace(string(pid)))
	}
	if err := lock.Truncate(0); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if _, err := fmt.Fprintf(lock, "%d\n", os.Getpid()); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return func() { _ = lock.Close() }, nil
}

// secrets are made once per directory and then kept: the data was written under them.
type secrets struct {
	ID            string `json:"id"` // tells this stack's databases from others' on a shared server
	OpsToken      string `json:"ops_token"`
	WebhookSecret string `json:"webhook_secret"`
	MerchantID    string `json:"merchant_id"`
	Superuser     string `json:"superuser"` // of our own PostgreSQL
	Roles         string `json:"roles"`     // each role's password is derived from it
}

func loadSecrets(dir string) (secrets, error) {
	file := filepath.Join(dir, "secrets.json")
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		s := secrets{
			ID: random(3), OpsToken: random(24), WebhookSecret: webhook.NewSecret(), MerchantID: "m-" + random(4),
			Superuser: random(24), Roles: random(24),
		}
		if text, err = json.MarshalIndent(s, "", "  "); err == nil {
			err = writeWhole(file, append(text, '\n'))
		}
		return s, err
	}
	if err != nil {
		return secrets{}, err
	}
	var s secrets
	if err := json.Unmarshal(text, &s); err != nil {
		return secrets{}, fmt.Errorf("reading %s: %w", file, err)
	}
	return s, nil
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // crypto/rand does not fail; it ends the process instead
	return hex.EncodeToString(b)
}

// writeWhole makes file appear with all of its content or not at all. It is for our own eyes.
func writeWhole(file string, content []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // gone already after the rename
	if _, err := tmp.Write(content); err != nil {
		return errors.Join(err, tmp.Close())
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}
