// Package compose is what the Compose project's one-shot jobs do: make the secrets, create the topics, tell the story.
//
// The secrets job is run at each start. All secrets derive from one random key, so that a run that was cut off is
// completed by the next one and a volume that was lost is made again with the same contents.
package compose

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The folders that are no service's: they are for Postgres's first start, the migrations, the world and the demo.
var special = []string{"postgres", "migrate", "world", "demo"}

// Secrets fills each folder below root, which is one volume, with what its reader needs and nothing else. Every folder
// beyond the special ones belongs to a service of that name, which gets a database with an owner and a role of its own.
func Secrets(root string) error {
	key, err := loadKey(filepath.Join(root, "postgres", "key"))
	if err != nil {
		return err
	}
	derive := func(what string) []byte {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(what))
		return mac.Sum(nil)
	}
	password := func(what string) string { return hex.EncodeToString(derive(what))[:40] }
	url := func(service, role string) string {
		return fmt.Sprintf("postgres://%s:%s@postgres:5432/%s?sslmode=disable", role, password(role), service)
	}
	folders, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	files := map[string]string{
		"postgres/postgres_password": password("postgres"),
		"world/webhook_secrets":      "whsec_" + base64.StdEncoding.EncodeToString(derive("webhook")),
		"world/ops_token":            password("ops"),
		"demo/ops_token":             password("ops"),
		"demo/payment_database_url":  url("payment", "payment_owner"),
	}
	files["payment/webhook_secrets"] = files["world/webhook_secrets"]
	var databases strings.Builder
	for _, f := range folders {
		name := f.Name()
		if slices.Contains(special, name) {
			continue
		}
		owner := name + "_owner"
		fmt.Fprintf(&databases, "%s %s %s\n", name, password(owner), password(name))
		files["migrate/"+name] = url(name, owner)
		files[name+"/database_url"] = url(name, name)
		files[name+"/ops_token"] = password("ops")
	}
	files["postgres/databases"] = databases.String()
	var bad []error
	for name, content := range files {
		bad = append(bad, write(filepath.Join(root, name), content))
	}
	return errors.Join(bad...)
}

// loadKey reads the key or makes one. It appears whole or not at all, and is never made twice.
func loadKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		key = make([]byte, 32)
		_, _ = rand.Read(key) // crypto/rand does not fail; it ends the process instead
		err = write(path, string(key))
	}
	if err == nil && len(key) != 32 {
		err = fmt.Errorf("%s is damaged: remove the volumes with docker compose down -v, which also removes the data", path)
	}
	return key, err
}

// write replaces path in one step. The volume is the border: whoever mounts it may read what is in it, and Postgres is
// another user than we are.
func write(path, content string) error {
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(tmp, []byte(content), 0o444); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
