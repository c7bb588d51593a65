//go:build tools

// Package tools pins etcd, the store of every API server that Berth starts locally.
package tools

import _ "go.etcd.io/etcd/server/v3"
