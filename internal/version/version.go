// Package version says which Berth this is.
package version

// Version is set by the linker: a tag, or the commit with "-dirty" if the tree had changes.
var Version = "unknown"
