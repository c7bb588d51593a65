package hcs

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// forwarder is the data path of a listener: it accepts on the virtual address and connects to one member after the other.
type forwarder struct {
	on     net.Listener
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// connectTimeout to a member before the next is tried.
const connectTimeout = 2 * time.Second

// forwardFrom listens on the virtual address. Only loopback addresses are really listened on: others cannot be had.
func (c *cloud) forwardFrom(vip netip.Addr, l *listener) (*forwarder, error) {
	if !vip.IsLoopback() {
		return nil, nil
	}
	var config net.ListenConfig
	on, err := config.Listen(context.Background(), "tcp", net.JoinHostPort(vip.String(), strconv.Itoa(int(l.port))))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &forwarder{on: on, cancel: cancel}
	f.done.Add(1)
	go func() {
		defer f.done.Done()
		for turn := 0; ; turn++ {
			conn, err := on.Accept()
			if err != nil {
				return
			}
			f.done.Add(1)
			go func() {
				defer f.done.Done()
				f.carry(ctx, conn, c.targets(l.id, turn))
			}()
		}
	}()
	return f, nil
}

// targets are the members of a listener, beginning with another one at every turn.
func (c *cloud) targets(id string, turn int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.listeners[id]
	if l == nil || c.pools[l.pool] == nil {
		return nil
	}
	members := c.pools[l.pool].members
	var out []string
	for i := range members {
		m := members[(turn+i)%len(members)]
		out = append(out, net.JoinHostPort(m.address, strconv.Itoa(int(m.port))))
	}
	return out
}

// carry connects to the first member that answers and copies both ways until one side ends or the listener goes.
func (f *forwarder) carry(ctx context.Context, client net.Conn, targets []string) {
	defer func() { _ = client.Close() }()
	for _, target := range targets {
		server, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, "tcp", target)
		if err != nil {
			continue
		}
		stop := context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
		var both sync.WaitGroup
		both.Add(1)
		go func() {
			defer both.Done()
			_, _ = io.Copy(server, client)
			halfClose(server)
		}()
		_, _ = io.Copy(client, server)
		halfClose(client)
		both.Wait()
		stop()
		_ = server.Close()
		return
	}
}

// halfClose says that no more comes, and lets the other direction go on.
func halfClose(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
}

// stop ends the data path of a listener and every connection on it.
func (l *listener) stop() {
	if l.forward == nil {
		return
	}
	l.forward.cancel()
	_ = l.forward.on.Close()
	l.forward = nil
}
