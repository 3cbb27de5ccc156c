//go:build unix

package pgtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"loquat/internal/faultproxy"
)

// The passwords of a cluster, and the user that Loquat logs in as.
const (
	clusterPassword = "cluster-secret"
	clusterUser     = "loquat"
)

// Cluster is a primary and a standby that Patroni and etcd manage, with the configuration that
// docs/failover.md shows.
type Cluster struct {
	Members [2]*Member

	place
	bin  string
	etcd *guarded
}

// Member is one PostgreSQL server of a cluster, with its Patroni.
type Member struct {
	Name string
	Port int // of PostgreSQL
	Rest int // of Patroni's REST API

	// EtcdLink is the network between this member and etcd, Replication the network between
	// this member's PostgreSQL and the other member. Clients do not use them.
	EtcdLink, Replication *faultproxy.Proxy

	cluster *Cluster
	config  string // file of Patroni's configuration
	process *guarded
}

// ClusterPrograms skips the test if a program that a cluster needs is not installed; if the
// variable CI is set, it fails the test.
func ClusterPrograms(t testing.TB) {
	t.Helper()
	Binaries(t)
	for program, what := range map[string]string{"patroni": "patroni", "etcd": "etcd, of etcd-server", "haproxy": "haproxy"} {
		if _, err := find(program); err != nil {
			Missing(t, what)
		}
	}
}

// find returns the path of a program, which may be in a folder of the administrator.
func find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", program))
}

// StartCluster starts a cluster and waits until its standby is synchronous. Stop stops it.
func StartCluster() (*Cluster, error) {
	bin, ok := installed()
	if !ok {
		return nil, errors.New("initdb, of PostgreSQL's server, is not installed")
	}
	c := &Cluster{bin: bin}
	if err := c.create(); err != nil {
		return nil, err
	}
	if err := c.start(); err != nil {
		logs := c.Logs()
		c.Stop()
		return nil, fmt.Errorf("start the cluster: %w\n%s", err, logs)
	}
	return c, nil
}

func (c *Cluster) start() error {
	etcd, err := c.startEtcd()
	if err != nil {
		return err
	}
	for i := range c.Members {
		m := &Member{Name: fmt.Sprintf("db%d", i+1), cluster: c}
		c.Members[i] = m
		if err := m.configure(etcd); err != nil {
			return err
		}
	}
	for _, m := range c.Members {
		if err := m.Start(); err != nil {
			return err
		}
	}
	if err := c.Await(90*time.Second, true); err != nil {
		return err
	}
	return c.Exec("postgres", fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", clusterUser, clusterPassword))
}

// startEtcd starts etcd and returns its address.
func (c *Cluster) startEtcd() (address string, err error) {
	program, err := find("etcd")
	if err != nil {
		return "", err
	}
	ports, err := freePorts(2)
	if err != nil {
		return "", err
	}
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	c.etcd = c.guard("etcd", "", program, "--enable-v2=true", "--data-dir", filepath.Join(c.dir, "etcd"), "--name", "etcd1",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "etcd1="+peer)
	if err := c.etcd.start(); err != nil {
		return "", err
	}
	return strings.TrimPrefix(client, "http://"), within(30*time.Second, "etcd answers", func() error {
		_, err := get(client + "/health")
		return err
	})
}

// configure writes the member's configuration: the one of docs/failover.md, with the
// addresses and folders of this test.
func (m *Member) configure(etcd string) error {
	c := m.cluster
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	m.Port, m.Rest = ports[0], ports[1]
	if m.EtcdLink, err = faultproxy.Start(faultproxy.Options{Target: etcd}); err != nil {
		return err
	}
	if m.Replication, err = faultproxy.Start(faultproxy.Options{Target: fmt.Sprintf("127.0.0.1:%d", m.Port)}); err != nil {
		return err
	}
	sample, err := Sample("failover.md", "yaml")
	if err != nil {
		return err
	}
	rest := fmt.Sprintf("127.0.0.1:%d", m.Rest)
	text, err := replaceAll(sample, [][2]string{
		{"name: db1\n", "name: " + m.Name + "\n"},
		{"listen: 0.0.0.0:8008", "listen: " + rest},
		{"connect_address: db1.example.org:8008", "connect_address: " + rest},
		// Without use_proxies Patroni would learn etcd's own address and go round the proxy.
		{"hosts: etcd1.example.org:2379,etcd2.example.org:2379,etcd3.example.org:2379", "hosts: " + m.EtcdLink.Addr() + "\n  use_proxies: true"},
		{"listen: 0.0.0.0:5432", fmt.Sprintf("listen: 127.0.0.1:%d", m.Port)},
		{"connect_address: db1.example.org:5432", "connect_address: " + m.Replication.Addr() + "\n  basebackup: [{checkpoint: fast}]"},
		{"data_dir: /var/lib/postgresql/15/loquat", "data_dir: " + m.data()},
		{"bin_dir: /usr/lib/postgresql/15/bin", "bin_dir: " + c.bin + "\n  pgpass: " + filepath.Join(c.dir, m.Name+".pgpass") + "\n  parameters: {unix_socket_directories: " + c.dir + "}"},
		{"samenet", "127.0.0.1/32"},
		{"'...'", "'" + clusterPassword + "'"},
	})
	if err != nil {
		return fmt.Errorf("the configuration of Patroni: %w", err)
	}
	m.config = filepath.Join(c.dir, m.Name+".yml")
	return os.WriteFile(m.config, []byte(text), 0o644)
}

// replaceAll replaces texts, each of which must occur.
func replaceAll(text string, pairs [][2]string) (string, error) {
	for _, pair := range pairs {
		if !strings.Contains(text, pair[0]) {
			return "", fmt.Errorf("it lacks %q", pair[0])
		}
		text = strings.ReplaceAll(text, pair[0], pair[1])
	}
	return text, nil
}

// Sample returns the first block of a language on a page of docs.
func Sample(page, language string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "docs", page))
		if err == nil {
			_, rest, found := strings.Cut(string(text), "\n```"+language+"\n")
			block, _, ended := strings.Cut(rest, "\n```\n")
			if !found || !ended {
				return "", fmt.Errorf("docs/%s has no block of %s", page, language)
			}
			return block + "\n", nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", err
		}
		dir = parent
	}
}

func (m *Member) data() string { return filepath.Join(m.cluster.dir, m.Name) }

// Start starts the member's Patroni, which starts PostgreSQL.
func (m *Member) Start() error {
	program, err := find("patroni")
	if err != nil {
		return err
	}
	if m.process != nil {
		m.process.stop()
	}
	m.process = m.cluster.guard(m.Name, m.data(), program, m.config)
	return m.process.start()
}

// Kill ends Patroni and PostgreSQL at once, as the failure of a machine would.
func (m *Member) Kill() error {
	err := errors.Join(m.process.signal(syscall.SIGSTOP), m.signalServer(syscall.SIGKILL), m.process.signal(syscall.SIGKILL))
	m.process.stop()
	return err
}

// KillServer ends all processes of PostgreSQL at once. Patroni continues.
func (m *Member) KillServer() error { return m.signalServer(syscall.SIGKILL) }

// Pause stops Patroni and PostgreSQL until Resume.
func (m *Member) Pause() error {
	return errors.Join(m.process.signal(syscall.SIGSTOP), m.signalServer(syscall.SIGSTOP))
}

// Resume ends Pause.
func (m *Member) Resume() error {
	return errors.Join(m.signalServer(syscall.SIGCONT), m.process.signal(syscall.SIGCONT))
}

func (m *Member) signalServer(signal syscall.Signal) error { return signalServer(m.data(), signal) }

// Cluster states, as Patroni's REST API shows them.
type clusterState struct {
	Members []struct {
		Name, Role, State string
		Timeline          int
	}
}

func (c *Cluster) state() (state clusterState, err error) {
	for _, m := range c.Members {
		var body []byte
		if body, err = get(fmt.Sprintf("http://127.0.0.1:%d/cluster", m.Rest)); err == nil {
			return state, json.Unmarshal(body, &state)
		}
	}
	return state, err
}

// Await waits until the cluster has a primary and a standby that replicates from it, which is
// synchronous if synchronous is set.
func (c *Cluster) Await(patience time.Duration, synchronous bool) error {
	return within(patience, "the cluster has a primary and a standby", func() error {
		state, err := c.state()
		if err != nil {
			return err
		}
		if _, err := c.Primary(); err != nil {
			return err
		}
		want := "replica"
		if synchronous {
			want = "sync_standby"
		}
		for _, m := range state.Members {
			if m.Role == want && (m.State == "running" || m.State == "streaming") {
				return c.replicates()
			}
		}
		return fmt.Errorf("the members are %+v", state.Members)
	})
}

// replicates returns an error if no standby receives the primary's changes.
func (c *Cluster) replicates() error {
	return c.Exec("postgres", `DO $$ BEGIN
		IF NOT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming') THEN RAISE 'no standby replicates'; END IF;
	END $$`)
}

// Primary returns the member that Patroni says is the primary.
func (c *Cluster) Primary() (*Member, error) {
	for _, m := range c.Members {
		if m.IsPrimary() {
			return m, nil
		}
	}
	return nil, errors.New("no member is the primary")
}

// IsPrimary reports whether the member's Patroni says that it is the primary. HAProxy asks the
// same.
func (m *Member) IsPrimary() bool {
	_, err := get(fmt.Sprintf("http://127.0.0.1:%d/primary", m.Rest))
	return err == nil
}

// AcceptsWrites reports whether the member's PostgreSQL runs as a primary. It asks PostgreSQL, because
// Patroni may call a server that was just killed the primary, or may not answer until it runs again.
func (m *Member) AcceptsWrites() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, m.cluster.url("postgres", "postgres", fmt.Sprintf("127.0.0.1:%d", m.Port))+"&target_session_attrs=read-write")
	if err != nil {
		return false
	}
	_ = conn.Close(ctx)
	return true
}

// Other returns the other member.
func (m *Member) Other() *Member {
	if m.cluster.Members[0] == m {
		return m.cluster.Members[1]
	}
	return m.cluster.Members[0]
}

// Configure changes the dynamic configuration of the cluster, with a JSON object.
func (c *Cluster) Configure(change string) error {
	m, err := c.Primary()
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPatch, fmt.Sprintf("http://127.0.0.1:%d/config", m.Rest), strings.NewReader(change))
	if err != nil {
		return err
	}
	_, err = do(req)
	return err
}

// Exec runs statements in a database of the primary, as the superuser.
func (c *Cluster) Exec(database, statements string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.url("postgres", database, c.hosts())+"&target_session_attrs=read-write&connect_timeout=5")
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.PgConn().Exec(ctx, statements).ReadAll()
	return err
}

// hosts returns the addresses of both servers.
func (c *Cluster) hosts() string {
	return fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d", c.Members[0].Port, c.Members[1].Port)
}

func (c *Cluster) url(user, database, hosts string) string {
	return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", user, clusterPassword, hosts, database)
}

// URL returns the URL of a database, with both servers as hosts or with the address of a proxy.
func (c *Cluster) URL(database string, proxy ...string) string {
	hosts := c.hosts()
	if len(proxy) > 0 {
		hosts = proxy[0]
	}
	return c.url(clusterUser, database, hosts)
}

var clusterDatabases atomic.Int64

// Database creates an empty database, which belongs to Loquat's user, and returns its name.
func (c *Cluster) Database() (name string, err error) {
	name = fmt.Sprintf("loquat%d", clusterDatabases.Add(1))
	return name, c.Exec("postgres", fmt.Sprintf("CREATE DATABASE %s OWNER %s ENCODING 'UTF8' TEMPLATE template0", name, clusterUser))
}

// StartHAProxy starts HAProxy in front of the cluster, with the configuration that
// docs/failover.md shows, waits until it leads to the primary, and returns its address. It
// must never lead to a standby. The end of the test stops it.
func (c *Cluster) StartHAProxy(t testing.TB) (address string) {
	t.Helper()
	program, err := find("haproxy")
	if err != nil {
		Missing(t, "haproxy")
	}
	sample, err := Sample("failover.md", "haproxy")
	if err != nil {
		t.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	address = fmt.Sprintf("127.0.0.1:%d", port)
	pairs := [][2]string{{"bind :5000", "bind " + address}}
	primary, err := c.Primary()
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range []*Member{primary, primary.Other()} { // HAProxy checks the last server last
		pairs = append(pairs, [2]string{
			fmt.Sprintf("db%d.example.org:5432 check port 8008", i+1),
			fmt.Sprintf("127.0.0.1:%d check port %d", m.Port, m.Rest),
		})
	}
	text, err := replaceAll(sample, pairs)
	if err != nil {
		t.Fatalf("the configuration of HAProxy: %v", err)
	}
	file := filepath.Join(c.dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	proxy := c.guard("haproxy", "", program, "-db", "-f", file)
	if err := proxy.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.stop)
	for range c.Members { // HAProxy takes turns
		if err := within(30*time.Second, "HAProxy leads to the primary", func() error { return c.leadsToPrimary(t, address) }); err != nil {
			t.Fatalf("%v\n%s", err, c.Logs())
		}
	}
	return address
}

// leadsToPrimary returns an error while a proxy refuses connections. It fails the test if the
// proxy leads to a standby.
func (c *Cluster) leadsToPrimary(t testing.TB, proxy string) error {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.url("postgres", "postgres", proxy))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var standby bool
	if err := conn.QueryRow(ctx, `SELECT pg_is_in_recovery()`).Scan(&standby); err != nil {
		return err
	}
	if standby {
		t.Errorf("%s leads to a standby", proxy)
	}
	return nil
}

// Logs returns the end of the log of each process.
func (c *Cluster) Logs() string {
	const most = 4 << 10
	var out strings.Builder
	files, _ := filepath.Glob(filepath.Join(c.dir, "*.log"))
	for _, file := range files {
		b, _ := os.ReadFile(file)
		fmt.Fprintf(&out, "--- %s\n%s\n", filepath.Base(file), b[max(0, len(b)-most):])
	}
	return out.String()
}

// Stop stops all processes and removes the cluster.
func (c *Cluster) Stop() {
	for _, m := range c.Members {
		if m == nil {
			continue
		}
		if m.process != nil {
			m.process.stop()
		}
		for _, proxy := range []*faultproxy.Proxy{m.EtcdLink, m.Replication} {
			if proxy != nil {
				_ = proxy.Close()
			}
		}
	}
	if c.etcd != nil {
		c.etcd.stop()
	}
	os.RemoveAll(c.dir)
}

// within repeats check until it returns nil.
func within(patience time.Duration, what string, check func() error) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %s it is not true that %s: %w", patience, what, err)
		}
	}
}

// restClient asks Patroni and etcd. A paused Patroni does not answer.
var restClient = &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func get(url string) ([]byte, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return do(req)
}

func do(req *http.Request) ([]byte, error) {
	resp, err := restClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s %s", req.Method, req.URL, resp.Status, body)
	}
	return body, err
}
