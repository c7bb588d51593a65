// Package examples carries the ready manifests of this directory inside Berth's programs, one directory per platform and
// example: vsphere/v1beta1 and vsphere/v1beta2 describe the same cluster in two versions of the Cluster API types, the others are
// variants of it.
package examples

import "embed"

// Files holds the manifests. Their addresses are those of the environment with the range 127.64.0.0/16; the local environment
// rewrites them for its own.
//
//go:embed vsphere
var Files embed.FS
