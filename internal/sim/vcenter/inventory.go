package vcenter

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/types"
)

// Inventory is what exists when the simulated vCenter starts.
type Inventory struct {
	Datacenters []DatacenterSpec
}

// DatacenterSpec describes a datacenter with one compute cluster.
type DatacenterSpec struct {
	Name string
	// Cluster of Hosts hosts named <cluster>-h<n>.
	Cluster string
	Hosts   int
	// ResourcePool is a child of the cluster's root pool, Folder a child of the datacenter's VM folder.
	ResourcePool, Folder string
	// Datastores are shared: mounted on every host.
	Datastores []DatastoreSpec
	// Networks are port groups of a distributed switch that every host is a member of.
	Networks []string
	// Templates are placed in the datacenter's VM folder, on the first datastore and the first network.
	Templates []TemplateSpec
}

// DatastoreSpec describes a shared datastore.
type DatastoreSpec struct {
	Name        string
	CapacityGiB int64
}

// TemplateSpec describes a VM template: one thin system disk on a paravirtual SCSI controller, one vmxnet3 NIC.
type TemplateSpec struct {
	Name      string
	DiskGiB   int64
	NumCPUs   int32
	MemoryMiB int64
	// HardwareVersion like "vmx-19".
	HardwareVersion string
	GuestID         string
	// Kubernetes is the version of the kubeadm and kubelet in the image ("v1.36.3"), kept under ImageVersionKey. Empty: the
	// image does not say, and its guests have whatever version their cluster asks for.
	Kubernetes string
}

// ImageVersionKey is the key of a template's extra configuration that says which Kubernetes version its image was built with.
// A clone takes it over, as it takes over every key that its own configuration does not set.
const ImageVersionKey = "image.kubernetesVersion"

// DefaultInventory is two datacenters, dc-a and dc-b, each with a cluster (cl-a, cl-b) of three hosts, a resource pool and
// a VM folder k8s, shared datastores (ds-shared-a and ds-shared-a2, ds-shared-b), port groups pg-node and pg-stor, and these
// templates, in both:
//
//	os-v136-3    Kubernetes v1.36.3, the version of the programs that control planes run
//	os-v136-3-b  v1.36.3 again, a later build: another image, the same version
//	os-v136-4    v1.36.4, the next patch version
//	os-v137-0    v1.37.0, the next minor version: joins only once the control plane has that version
//	os-v132-0    v1.32.0, four minor versions older than v1.36: joins no such cluster
//	os-no-boot   the disk holds no operating system
//
// The kubelet of a guest has the version of its image. A control plane's kube-apiserver is the one that is there whatever the
// image, so that /version stays at v1.36.3 through an upgrade; Nodes, kubeadm-config and the tags in the static pods change.
func DefaultInventory() *Inventory {
	image := func(name, kubernetes string) TemplateSpec {
		return TemplateSpec{
			Name: name, Kubernetes: kubernetes, DiskGiB: 20, NumCPUs: 2, MemoryMiB: 2048, HardwareVersion: "vmx-19", GuestID: "ubuntu64Guest",
		}
	}
	noBoot := image("os-no-boot", "")
	noBoot.GuestID = "otherGuest64"
	templates := []TemplateSpec{
		image("os-v136-3", "v1.36.3"), image("os-v136-3-b", "v1.36.3"), image("os-v136-4", "v1.36.4"),
		image("os-v137-0", "v1.37.0"), image("os-v132-0", "v1.32.0"), noBoot,
	}
	networks := []string{"pg-node", "pg-stor"}
	return &Inventory{Datacenters: []DatacenterSpec{
		{
			Name: "dc-a", Cluster: "cl-a", Hosts: 3, ResourcePool: "k8s", Folder: "k8s", Networks: networks, Templates: templates,
			Datastores: []DatastoreSpec{{Name: "ds-shared-a", CapacityGiB: 64 << 10}, {Name: "ds-shared-a2", CapacityGiB: 16 << 10}},
		},
		{
			Name: "dc-b", Cluster: "cl-b", Hosts: 3, ResourcePool: "k8s", Folder: "k8s", Networks: networks, Templates: templates,
			Datastores: []DatastoreSpec{{Name: "ds-shared-b", CapacityGiB: 64 << 10}},
		},
	}}
}

// builder creates an inventory through the vSphere API, as an administrator would.
type builder struct {
	ctx    context.Context
	server *Server
	client *vim25.Client
}

func (b *builder) create(inv *Inventory) error {
	root := object.NewRootFolder(b.client)
	for _, spec := range inv.Datacenters {
		if err := b.datacenter(root, spec); err != nil {
			return fmt.Errorf("creating datacenter %s: %w", spec.Name, err)
		}
	}
	return nil
}

func (b *builder) datacenter(root *object.Folder, spec DatacenterSpec) error {
	dc, err := root.CreateDatacenter(b.ctx, spec.Name)
	if err != nil {
		return err
	}
	folders, err := dc.Folders(b.ctx)
	if err != nil {
		return err
	}
	dvs, err := b.distributedSwitch(folders, spec)
	if err != nil {
		return err
	}
	pool, hosts, err := b.cluster(folders, dvs, spec)
	if err != nil {
		return err
	}
	for _, ds := range spec.Datastores {
		if err := b.datastore(spec.Name, ds, hosts); err != nil {
			return fmt.Errorf("datastore %s: %w", ds.Name, err)
		}
	}
	if spec.Folder != "" {
		if _, err := folders.VmFolder.CreateFolder(b.ctx, spec.Folder); err != nil {
			return err
		}
	}
	for _, tmpl := range spec.Templates {
		if err := b.template(folders, pool, spec, tmpl); err != nil {
			return fmt.Errorf("template %s: %w", tmpl.Name, err)
		}
	}
	return nil
}

func (b *builder) distributedSwitch(folders *object.DatacenterFolders, spec DatacenterSpec) (*object.DistributedVirtualSwitch, error) {
	config := &types.VMwareDVSConfigSpec{}
	config.Name = "dvs-" + spec.Name
	task, err := folders.NetworkFolder.CreateDVS(b.ctx, types.DVSCreateSpec{ConfigSpec: config})
	if err != nil {
		return nil, err
	}
	info, err := task.WaitForResult(b.ctx, nil)
	if err != nil {
		return nil, err
	}
	dvs := object.NewDistributedVirtualSwitch(b.client, info.Result.(types.ManagedObjectReference))
	for _, name := range spec.Networks {
		task, err := dvs.AddPortgroup(b.ctx, []types.DVPortgroupConfigSpec{{
			Name: name, Type: string(types.DistributedVirtualPortgroupPortgroupTypeEarlyBinding), NumPorts: 512,
		}})
		if err != nil {
			return nil, err
		}
		if err := task.Wait(b.ctx); err != nil {
			return nil, fmt.Errorf("port group %s: %w", name, err)
		}
	}
	return dvs, nil
}

func (b *builder) cluster(folders *object.DatacenterFolders, dvs *object.DistributedVirtualSwitch, spec DatacenterSpec) (*object.ResourcePool, []*object.HostSystem, error) {
	cluster, err := folders.HostFolder.CreateCluster(b.ctx, spec.Cluster, types.ClusterConfigSpecEx{})
	if err != nil {
		return nil, nil, err
	}
	var hosts []*object.HostSystem
	for n := range spec.Hosts {
		host, err := b.host(cluster, dvs, fmt.Sprintf("%s-h%d", spec.Cluster, n+1))
		if err != nil {
			return nil, nil, err
		}
		hosts = append(hosts, host)
	}
	pool, err := cluster.ResourcePool(b.ctx)
	if err != nil {
		return nil, nil, err
	}
	if spec.ResourcePool != "" {
		if _, err := pool.Create(b.ctx, spec.ResourcePool, types.DefaultResourceConfigSpec()); err != nil {
			return nil, nil, err
		}
	}
	return pool, hosts, nil
}

func (b *builder) host(cluster *object.ClusterComputeResource, dvs *object.DistributedVirtualSwitch, name string) (*object.HostSystem, error) {
	task, err := cluster.AddHost(b.ctx, types.HostConnectSpec{HostName: name}, true, nil, nil)
	if err != nil {
		return nil, err
	}
	info, err := task.WaitForResult(b.ctx, nil)
	if err != nil {
		return nil, err
	}
	host := object.NewHostSystem(b.client, info.Result.(types.ManagedObjectReference))
	task, err = dvs.Reconfigure(b.ctx, &types.DVSConfigSpec{Host: []types.DistributedVirtualSwitchHostMemberConfigSpec{{
		Operation: string(types.ConfigSpecOperationAdd), Host: host.Reference(),
	}}})
	if err != nil {
		return nil, err
	}
	return host, task.Wait(b.ctx)
}

// datastore makes one directory a datastore of all hosts: vcsim recognises the name and mounts the first one again.
func (b *builder) datastore(datacenter string, spec DatastoreSpec, hosts []*object.HostSystem) error {
	dir := filepath.Join(b.server.opts.Dir, "datastores", datacenter, spec.Name)
	// The world is in memory: files of an earlier life would only look like orphans.
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, host := range hosts {
		system, err := host.ConfigManager().DatastoreSystem(b.ctx)
		if err != nil {
			return err
		}
		if _, err := system.CreateLocalDatastore(b.ctx, spec.Name, dir); err != nil {
			return err
		}
	}
	capacity := spec.CapacityGiB << 30
	ctx := b.server.internalContext()
	for _, ds := range b.server.strict.census.stores() {
		if ds.Summary.Url != dir {
			continue
		}
		ctx.WithLock(ds, func() {
			ds.Summary.Capacity, ds.Summary.FreeSpace = capacity, capacity
			ds.Summary.MultipleHostAccess = types.NewBool(true)
			ds.Summary.Type = string(types.HostFileSystemVolumeFileSystemTypeVMFS)
			ds.Info.GetDatastoreInfo().FreeSpace = capacity
		})
	}
	return nil
}

func (b *builder) template(folders *object.DatacenterFolders, pool *object.ResourcePool, dc DatacenterSpec, spec TemplateSpec) error {
	var devices object.VirtualDeviceList
	scsi, err := devices.CreateSCSIController("pvscsi")
	if err != nil {
		return err
	}
	devices = append(devices, scsi)
	dir := fmt.Sprintf("[%s] %s", dc.Datastores[0].Name, spec.Name)
	disk := devices.CreateDisk(scsi.(types.BaseVirtualController), types.ManagedObjectReference{}, dir+"/"+spec.Name+".vmdk")
	disk.CapacityInKB = spec.DiskGiB << 20
	devices = append(devices, disk)
	if len(dc.Networks) > 0 {
		backing, err := b.networkBacking(folders, dc.Networks[0])
		if err != nil {
			return err
		}
		nic, err := devices.CreateEthernetCard("vmxnet3", backing)
		if err != nil {
			return err
		}
		devices = append(devices, nic)
	}
	config := types.VirtualMachineConfigSpec{
		Name: spec.Name, GuestId: spec.GuestID, NumCPUs: spec.NumCPUs, MemoryMB: spec.MemoryMiB, Version: spec.HardwareVersion,
		Files: &types.VirtualMachineFileInfo{VmPathName: fmt.Sprintf("[%s]", dc.Datastores[0].Name)},
	}
	if spec.Kubernetes != "" {
		config.ExtraConfig = []types.BaseOptionValue{&types.OptionValue{Key: ImageVersionKey, Value: spec.Kubernetes}}
	}
	if config.DeviceChange, err = devices.ConfigSpec(types.VirtualDeviceConfigSpecOperationAdd); err != nil {
		return err
	}
	task, err := folders.VmFolder.CreateVM(b.ctx, config, pool, nil)
	if err != nil {
		return err
	}
	info, err := task.WaitForResult(b.ctx, nil)
	if err != nil {
		return err
	}
	return object.NewVirtualMachine(b.client, info.Result.(types.ManagedObjectReference)).MarkAsTemplate(b.ctx)
}

func (b *builder) networkBacking(folders *object.DatacenterFolders, name string) (types.BaseVirtualDeviceBackingInfo, error) {
	children, err := folders.NetworkFolder.Children(b.ctx)
	if err != nil {
		return nil, err
	}
	for _, child := range children {
		pg, ok := child.(*object.DistributedVirtualPortgroup)
		if !ok {
			continue
		}
		found, err := pg.ObjectName(b.ctx)
		if err != nil {
			return nil, err
		}
		if found == name {
			return pg.EthernetCardBackingInfo(b.ctx)
		}
	}
	return nil, fmt.Errorf("port group %q not found", name)
}
