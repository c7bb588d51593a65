//go:build tools

// Package tools pins the clusterctl that tests move clusters with.
package tools

import _ "sigs.k8s.io/cluster-api/cmd/clusterctl"
