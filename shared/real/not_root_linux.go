package real

import (
	"os"
	"syscall"
)

// notRoot lets a process of root see itself as an ordinary user, which Elasticsearch insists on: in a user namespace
// whose user 1000 is the root outside. Files keep their owner, so any directory of ours will do.
func notRoot() *syscall.SysProcAttr {
	if os.Geteuid() != 0 {
		return nil
	}
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: 0, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: 0, Size: 1}},
	}
}
