//go:build !linux

package real

import "syscall"

// notRoot changes nothing: run Elasticsearch as an ordinary user here.
func notRoot() *syscall.SysProcAttr { return nil }
