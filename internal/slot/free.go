package slot

// NodeFact is what the workload cluster says about the Node of a slot's host name.
type NodeFact string

const (
	// NodeGone: there is none, or it belongs to the server that now has the place.
	NodeGone NodeFact = "Gone"
	// NodeStale: one is there; its deletion was asked for.
	NodeStale NodeFact = "Stale"
	// NodeUnknown: the workload cluster cannot be asked. A worker's slot waits.
	NodeUnknown NodeFact = "Unknown"
	// NodeUnaskable: it cannot be asked because no other control plane is left to ask; the slot goes on.
	NodeUnaskable NodeFact = "Unaskable"
	// NodeIrrelevant: the whole Cluster is being deleted.
	NodeIrrelevant NodeFact = "Irrelevant"
)
