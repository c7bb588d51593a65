package vcenter

import (
	"context"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

type counters struct {
	mu   sync.Mutex
	data Counters
}

func newCounters() *counters {
	c := &counters{}
	c.reset()
	return c
}

func (c *counters) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data = Counters{Since: time.Now(), Calls: map[string]int64{}, Clients: map[string]ClientCounters{}}
}

func (c *counters) snapshot() Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.data
	out.Calls = maps.Clone(c.data.Calls)
	out.Clients = make(map[string]ClientCounters, len(c.data.Clients))
	for name, client := range c.data.Clients {
		client.Calls = maps.Clone(client.Calls)
		out.Clients[name] = client
	}
	return out
}

// call counts one request; the first one of a connection tells whose connection it is.
func (c *counters) call(ctx context.Context, client, method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data.Calls[method]++
	c.data.Total++
	of := c.data.Clients[client]
	if of.Calls == nil {
		of.Calls = map[string]int64{}
	}
	of.Calls[method]++
	of.Total++
	if named, ok := ctx.Value(connectionKey{}).(*atomic.Bool); ok && named.CompareAndSwap(false, true) {
		of.Connections++
	}
	c.data.Clients[client] = of
}

type loginResult int

const (
	loginSucceeded loginResult = iota
	loginFailed
	loginLocked
)

func (c *counters) login(result loginResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch result {
	case loginSucceeded:
		c.data.Logins.Succeeded++
	case loginFailed:
		c.data.Logins.Failed++
	case loginLocked:
		c.data.Logins.Locked++
	}
}

type connectionKey struct{}

// connection is called once per accepted connection.
func (c *counters) connection(ctx context.Context, _ net.Conn) context.Context {
	c.mu.Lock()
	c.data.Connections++
	c.mu.Unlock()
	return context.WithValue(ctx, connectionKey{}, &atomic.Bool{})
}
