package stack

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"
)

// database is one service's own: its owner, who may change tables and whom operators use, and the role of the running
// service, which may only read and write rows.
type database struct {
	name, owner, role string
	admin             *url.URL // the server, as somebody who may create roles and databases
	key               string   // for passwords
}

func (d database) ownerURL() string { return d.url(d.owner) }
func (d database) roleURL() string  { return d.url(d.role) }

func (d database) url(role string) string {
	u := *d.admin
	u.User, u.Path = url.UserPassword(role, d.password(role)), "/"+d.name
	return u.String()
}

// password is the same at every start, and knowing one role's tells nothing of another's. It is hexadecimal, so it
// needs no quoting.
func (d database) password(role string) string {
	mac := hmac.New(sha256.New, []byte(d.key))
	mac.Write([]byte(role))
	return hex.EncodeToString(mac.Sum(nil))[:40]
}

// ensure creates what is missing, and grants; run again it changes nothing.
func (d database) ensure(ctx context.Context) error {
	err := d.as(ctx, d.admin.String(), func(admin *pgx.Conn) error { return d.create(ctx, admin) })
	if err == nil {
		err = d.as(ctx, d.ownerURL(), func(owner *pgx.Conn) error { return d.grant(ctx, owner) })
	}
	if err != nil {
		return fmt.Errorf("creating database %s: %w", d.name, err)
	}
	return nil
}

func (d database) as(ctx context.Context, url string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return do(conn)
}

func (d database) create(ctx context.Context, admin *pgx.Conn) error {
	for _, role := range []string{d.owner, d.role} {
		exists, err := has(ctx, admin, `SELECT count(*) FROM pg_roles WHERE rolname = $1`, role)
		if err != nil {
			return err
		}
		verb := "CREATE"
		if exists {
			verb = "ALTER"
		}
		if _, err := admin.Exec(ctx, fmt.Sprintf(`%s ROLE %s LOGIN PASSWORD '%s'`, verb, quoted(role), d.password(role))); err != nil {
			return err
		}
	}
	exists, err := has(ctx, admin, `SELECT count(*) FROM pg_database WHERE datname = $1`, d.name)
	if err != nil || exists {
		return err
	}
	for _, statement := range []string{
		// Without the membership only a superuser could give the database to its owner.
		`GRANT ` + quoted(d.owner) + ` TO CURRENT_USER`,
		`CREATE DATABASE ` + quoted(d.name) + ` OWNER ` + quoted(d.owner),
		// By default every role may connect to every database, and make temporary tables in it.
		`REVOKE ALL ON DATABASE ` + quoted(d.name) + ` FROM PUBLIC`,
	} {
		if _, err := admin.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// grant runs as the owner, so that the defaults hold for all tables that its migrations will ever create.
func (d database) grant(ctx context.Context, owner *pgx.Conn) error {
	for _, statement := range []string{
		`GRANT CONNECT ON DATABASE ` + quoted(d.name) + ` TO ` + quoted(d.role),
		`ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO ` + quoted(d.role),
		`ALTER DEFAULT PRIVILEGES GRANT USAGE ON SEQUENCES TO ` + quoted(d.role),
	} {
		if _, err := owner.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func has(ctx context.Context, conn *pgx.Conn, query, name string) (bool, error) {
	var n int
	err := conn.QueryRow(ctx, query, name).Scan(&n)
	return n > 0, err
}

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }
