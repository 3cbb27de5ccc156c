//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// place is a temporary folder in which servers run as a user that is not root.
type place struct {
	dir     string
	account *account // nil is the user of the tests
	small   int      // MiB of the file system at smallDir; 0 means none
}

// create creates the folder.
func (p *place) create() (err error) {
	if p.account, err = serverAccount(); err != nil {
		return err
	}
	if p.dir, err = os.MkdirTemp("", "loquat-pg-"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(p.dir)
		}
	}()
	if p.account == nil {
		return nil
	}
	if err := os.Chown(p.dir, p.account.uid, p.account.gid); err != nil {
		return err
	}
	if p.small > 0 || nullIsClosed() {
		return p.makeNull()
	}
	return nil
}

func (p *place) smallDir() string { return filepath.Join(p.dir, "small") }

// account is the user that runs the servers.
type account struct{ uid, gid int }

// serverAccount returns the account to run the server as, or nil for the user of the tests.
// PostgreSQL refuses to run as root.
func serverAccount() (*account, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		return &account{uid, gid}, errors.Join(uidErr, gidErr)
	}
	return nil, errors.New("there is neither a user postgres nor a user nobody to run the server")
}

// mountScript mounts what the server needs and runs a command as the server's user.
const mountScript = `mount --bind "$0" /dev/null &&
	if [ "$4" != 0 ]; then mkdir -p "$3" && mount -t tmpfs -o size="$4"m,mode=700,uid="$1",gid="$2" tmpfs "$3"; fi &&
	exec setpriv --reuid "$1" --regid "$2" --clear-groups "${@:5}"`

// command returns a command that runs as the place's user.
func (p *place) command(name string, args ...string) *exec.Cmd {
	attributes := &syscall.SysProcAttr{Setpgid: true}
	if a := p.account; a != nil {
		if p.small > 0 || nullIsClosed() {
			// The server's mounts are visible to the server only. PostgreSQL's programs need
			// /dev/null.
			args = slices.Concat([]string{"--mount", "bash", "-c", mountScript, p.null(), strconv.Itoa(a.uid), strconv.Itoa(a.gid), p.smallDir(), strconv.Itoa(p.small), name}, args)
			name = "unshare"
		} else {
			attributes.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
		}
	}
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = attributes
	cmd.Dir = p.dir
	return cmd
}

// nullIsClosed reports whether users other than root cannot use /dev/null, as in some
// containers and virtual machines.
func nullIsClosed() bool {
	info, err := os.Stat(os.DevNull)
	return err == nil && info.Mode().Perm()&0o006 != 0o006
}

func (p *place) null() string { return filepath.Join(p.dir, "null") }

func (p *place) makeNull() error {
	if err := exec.Command("mknod", "-m", "666", p.null(), "c", "1", "3").Run(); err != nil {
		return fmt.Errorf("mknod: %w", err)
	}
	return nil
}
