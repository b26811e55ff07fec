package service

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"strings"

	"github.com/caarlos0/env/v11"
)

// Env is the environment of one program. A NAME_FILE that could not be replaced is still there: it may be another program's, so only Parse complains.
type Env map[string]string

// ConfigError is a fault of the configuration; trying again does not help.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return "configuration: " + e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// Parse fills cfg, a pointer to a struct with `env` tags. A variable may be given as NAME_FILE as well, the path of a
// file that holds it. Fields that no variable names keep their value, so defaults are set before the call. All problems
// are reported in one *ConfigError.
func (e Env) Parse(cfg any) error {
	params, err := env.GetFieldParams(cfg)
	if err != nil {
		return &ConfigError{err}
	}
	given := maps.Clone(e)
	var lines []string
	for _, p := range params {
		value, ok, err := e.Lookup(p.Key)
		switch {
		case err != nil:
			lines = append(lines, err.Error())
			given[p.Key] = "-" // said once; it is not missing as well
		case ok:
			given[p.Key] = value
		}
	}
	if err := env.ParseWithOptions(cfg, env.Options{Environment: given}); err != nil {
		var all env.AggregateError
		if !errors.As(err, &all) {
			return &ConfigError{err}
		}
		for _, one := range all.Errors {
			lines = append(lines, describe(one, cfg))
		}
	}
	if len(lines) > 0 {
		return &ConfigError{errors.New(strings.Join(lines, "; "))}
	}
	if v, ok := cfg.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return &ConfigError{err}
		}
	}
	return nil
}

// Lookup gives the variable, or the content of the file that NAME_FILE points at, without the line's end. Other
// programs' NAME_FILE variables are never looked at.
func (e Env) Lookup(name string) (value string, ok bool, err error) {
	value, ok = e[name]
	path, isFile := e[name+"_FILE"]
	switch {
	case !isFile || path == "":
		return value, ok, nil
	case ok:
		return "", false, fmt.Errorf("both %s and %s_FILE are set; keep one", name, name)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", false, fmt.Errorf("%s_FILE: %w", name, err)
	}
	return strings.TrimRight(string(content), "\r\n"), true, nil
}

// describe says what is wrong without the variable's value, which may be a secret.
func describe(err error, cfg any) string {
	var unset env.VarIsNotSetError
	var empty env.EmptyVarError
	var parse env.ParseError
	switch {
	case errors.As(err, &unset):
		return unset.Key + " is not set"
	case errors.As(err, &empty):
		return empty.Key + " is empty"
	case errors.As(err, &parse):
		return fmt.Sprintf("%s cannot be read as %s", variable(reflect.TypeOf(cfg).Elem(), parse.Name), parse.Type)
	default:
		return err.Error()
	}
}

// variable is the name in the environment of the field that is called so, in t or in what t embeds.
func variable(t reflect.Type, field string) string {
	for _, f := range reflect.VisibleFields(t) {
		if f.Name == field {
			name, _, _ := strings.Cut(f.Tag.Get("env"), ",")
			return name
		}
	}
	return field
}

// Environ is the environment of this program. Main hands it to a Command; programs with a command line of their own ask
// for it.
func Environ() Env { return environment(os.Environ()) }

func environment(list []string) Env {
	env := Env{}
	for _, pair := range list {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	return env
}

// samples are values that stand in examples everywhere; whoever knows them can sign.
var samples = []string{"changeme", "change-me", "secret", "password", "example", "sample", "test", "token"}

// CheckSecret refuses a secret that is missing, short or taken from an example. The error never holds the value.
func CheckSecret(name, value string) error {
	lower := strings.ToLower(strings.TrimSpace(value))
	for _, s := range samples {
		if lower == s {
			return fmt.Errorf("%s is a sample value; generate one, for example with: openssl rand -hex 32", name)
		}
	}
	if len(lower) < 16 {
		return fmt.Errorf("%s is empty or shorter than 16 characters; generate one, for example with: openssl rand -hex 32", name)
	}
	return nil
}
