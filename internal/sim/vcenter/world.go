package vcenter

import "time"

// World is everything that exists in the simulated vCenter at one moment, for checks that must not depend on the API
// under test.
type World struct {
	Time       time.Time   `json:"time"`
	VMs        []VM        `json:"vms"`
	Disks      []Disk      `json:"disks"`
	Files      []File      `json:"files"`
	Datastores []Datastore `json:"datastores"`
	// Folders are the inventory paths of all VM folders.
	Folders  []string  `json:"folders"`
	Sessions []Session `json:"sessions"`
}

// VM is a virtual machine or a template.
type VM struct {
	// Ref is the managed object's value, "vm-42".
	Ref  string `json:"ref"`
	Name string `json:"name"`
	// Path is the inventory path, "/dc-a/vm/k8s/demo-cp-1".
	Path       string `json:"path"`
	Datacenter string `json:"datacenter"`
	Template   bool   `json:"template,omitempty"`
	// Power is "poweredOn", "poweredOff" or "suspended".
	Power string `json:"power"`
	// UUID is the BIOS UUID, InstanceUUID vCenter's own.
	UUID            string `json:"uuid"`
	InstanceUUID    string `json:"instanceUUID"`
	HardwareVersion string `json:"hardwareVersion"`
	NumCPUs         int32  `json:"numCPUs"`
	MemoryMiB       int32  `json:"memoryMiB"`
	// DiskUUIDEnabled: the guest sees the disks' UUIDs.
	DiskUUIDEnabled bool   `json:"diskUUIDEnabled"`
	Host            string `json:"host"`
	ResourcePool    string `json:"resourcePool"`
	// Directory holds the VM's own files, "[ds] name".
	Directory string         `json:"directory"`
	Disks     []AttachedDisk `json:"disks"`
	NICs      []NIC          `json:"nics"`
	Guest     Guest          `json:"guest"`
	// ExtraConfig has the keys only: values hold credentials and can be large.
	ExtraConfig []string `json:"extraConfig"`
	Snapshots   int      `json:"snapshots,omitempty"`
}

// AttachedDisk is a virtual disk device of a VM.
type AttachedDisk struct {
	Key int32 `json:"key"`
	// Bus is the controller's bus number, Unit the disk's unit number on it.
	Bus  int32 `json:"bus"`
	Unit int32 `json:"unit"`
	// Path is the backing file, "[ds] dir/disk.vmdk".
	Path          string `json:"path"`
	UUID          string `json:"uuid"`
	CapacityBytes int64  `json:"capacityBytes"`
	// Own: the file lies in the VM's directory.
	Own bool `json:"own"`
}

// NIC is a network adapter of a VM.
type NIC struct {
	Key     int32  `json:"key"`
	MAC     string `json:"mac"`
	Network string `json:"network"`
}

// Disk is a VMDK file.
type Disk struct {
	Datacenter string `json:"datacenter"`
	// Path is the datastore path, "[ds] dir/disk.vmdk".
	Path          string `json:"path"`
	UUID          string `json:"uuid"`
	CapacityBytes int64  `json:"capacityBytes"`
	// AttachedTo are the Refs of the VMs that have it as a device.
	AttachedTo []string `json:"attachedTo"`
	// HasContent: something was written, that is, its directory under DisksDir exists.
	HasContent bool      `json:"hasContent"`
	Created    time.Time `json:"created"`
}

// File is a file or directory of a datastore.
type File struct {
	Datacenter string `json:"datacenter"`
	// Path is the datastore path, "[ds] dir/file".
	Path      string `json:"path"`
	Directory bool   `json:"directory,omitempty"`
}

// Datastore with its accounting: free is the capacity less what the disks on it are provisioned for.
type Datastore struct {
	Ref           string `json:"ref"`
	Name          string `json:"name"`
	Datacenter    string `json:"datacenter"`
	CapacityBytes int64  `json:"capacityBytes"`
	FreeBytes     int64  `json:"freeBytes"`
}

// Session is an open session.
type Session struct {
	Key string `json:"key"`
	// REST: the session is one of the REST endpoints (tags, cluster modules), not of the vSphere API.
	REST       bool      `json:"rest,omitempty"`
	User       string    `json:"user"`
	UserAgent  string    `json:"userAgent"`
	Login      time.Time `json:"login"`
	LastActive time.Time `json:"lastActive"`
}

// Guest is what VMware Tools report from inside a guest.
type Guest struct {
	HostName     string     `json:"hostName"`
	ToolsRunning bool       `json:"toolsRunning"`
	NICs         []GuestNIC `json:"nics"`
}

// GuestNIC is an adapter as the guest sees it. The MAC address names the device; Network is informative.
type GuestNIC struct {
	MAC     string `json:"mac"`
	Network string `json:"network,omitempty"`
	// Addresses without prefix length.
	Addresses []string `json:"addresses"`
}

// ViolationKind names what a client did that it never should.
type ViolationKind string

// The kinds of violations. Those marked refused got a fault, the others took effect as on a real vCenter.
const (
	// HotDetach: a disk was removed from a VM that runs.
	HotDetach ViolationKind = "HotDetach"
	// HotDiskChange: a disk was added to or edited on a VM that runs.
	HotDiskChange ViolationKind = "HotDiskChange"
	// AttachedTwice: a disk was attached to a second VM while the first still has it.
	AttachedTwice ViolationKind = "AttachedTwice"
	// LockedAtPowerOn: a VM was powered on while another that runs holds one of its disks. Refused.
	LockedAtPowerOn ViolationKind = "LockedAtPowerOn"
	// DeletedWhileAttached: a VMDK, or a directory with one, was to be deleted while a VM has it. Refused.
	DeletedWhileAttached ViolationKind = "DeletedWhileAttached"
	// ForeignDiskDestroyed: a VM was destroyed together with a disk that lies outside of its own directory.
	ForeignDiskDestroyed ViolationKind = "ForeignDiskDestroyed"
	// DuplicateAddress: two running VMs report the same IP address.
	DuplicateAddress ViolationKind = "DuplicateAddress"
	// DuplicateHostName: two running VMs report the same host name.
	DuplicateHostName ViolationKind = "DuplicateHostName"
	// DuplicateInstanceUUID: two VMs were given the same instance UUID.
	DuplicateInstanceUUID ViolationKind = "DuplicateInstanceUUID"
)

// Violation is one recorded misdeed.
type Violation struct {
	Time time.Time     `json:"time"`
	Kind ViolationKind `json:"kind"`
	// VM is the name of the VM that was acted on, Ref its reference.
	VM  string `json:"vm,omitempty"`
	Ref string `json:"ref,omitempty"`
	// Disk is a datastore path.
	Disk string `json:"disk,omitempty"`
	// Detail says it in a sentence.
	Detail string `json:"detail"`
}

// Counters count requests since the start or the last reset.
type Counters struct {
	Since time.Time `json:"since"`
	// Calls by SOAP method, or "REST <verb> <path>".
	Calls map[string]int64 `json:"calls"`
	Total int64            `json:"total"`
	// Connections is the number of TLS connections accepted.
	Connections int64 `json:"connections"`
	// Clients breaks it down by User-Agent, so that a manager's calls can be told from those of simulated guests.
	Clients map[string]ClientCounters `json:"clients"`
	Logins  LoginCounters             `json:"logins"`
}

// ClientCounters are the counters of one User-Agent.
type ClientCounters struct {
	Calls       map[string]int64 `json:"calls"`
	Total       int64            `json:"total"`
	Connections int64            `json:"connections"`
}

// LoginCounters count logins by result.
type LoginCounters struct {
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	// Locked is the number of logins refused because the account was locked, or too many sessions were open.
	Locked int64 `json:"locked"`
}

// FaultKind says where an injected fault strikes.
type FaultKind string

// The kinds of faults.
const (
	// FaultBefore answers with a fault; nothing happened.
	FaultBefore FaultKind = "before"
	// FaultAfter lets the call take effect, then answers with a fault.
	FaultAfter FaultKind = "after"
	// FaultDelay answers late.
	FaultDelay FaultKind = "delay"
	// FaultDrop lets the call take effect, then cuts the connection without an answer.
	FaultDrop FaultKind = "drop"
	// FaultCut cuts the connection before the call takes effect.
	FaultCut FaultKind = "cut"
	// FaultTask accepts the call; its task fails without effect.
	FaultTask FaultKind = "task"
	// FaultTaskAfter accepts the call; its task takes effect, then fails.
	FaultTaskAfter FaultKind = "task-after"
	// FaultTaskHang accepts the call; its task does not end before Delay is over (an hour if 0), then goes on.
	FaultTaskHang FaultKind = "task-hang"
)

// Fault is a rule that makes calls fail.
type Fault struct {
	// Method is the SOAP method ("CloneVM_Task"), "" for every one of them, or a REST call ("REST POST /rest/com/vmware/cis/session"),
	// whose faults are the status 503, or 401 with the type NotAuthenticated.
	Method string `json:"method,omitempty"`
	// Object is a regular expression on the name of the call's object (a VM's name, for clones also the new one's; a
	// datastore path for disk and file operations), "" for every object.
	Object string `json:"object,omitempty"`
	// Client is a regular expression on the caller's User-Agent, "" for every caller.
	Client string `json:"client,omitempty"`
	// Skip lets so many matching calls pass first.
	Skip int `json:"skip,omitempty"`
	// Count is how many calls are struck; 0 means one, -1 all.
	Count int       `json:"count,omitempty"`
	Kind  FaultKind `json:"kind"`
	// Type is the vSphere fault ("NoDiskSpace", "HostCommunication"). Default "SystemError" for calls,
	// "GenericVmConfigFault" for tasks.
	Type    string `json:"type,omitempty"`
	Message string `json:"message,omitempty"`
	// Delay of the kind delay, in nanoseconds as Go's Duration.
	Delay time.Duration `json:"delay,omitempty"`
	// Struck counts the calls that this rule hit. Set by the server.
	Struck int `json:"struck,omitempty"`
}
