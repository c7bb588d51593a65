package vcenter

import (
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// diskGate serves the virtual disk manager.
type diskGate struct {
	*simulator.VirtualDiskManager
	unlocked
	strict *strict
}

func (g *diskGate) start(ctx *simulator.Context, method, name string, run func(*simulator.Context) types.BaseMethodFault) types.ManagedObjectReference {
	return g.strict.start(ctx, job{
		entity: g.Self, method: method, description: describe("VirtualDiskManager", method), names: []string{name},
		run: func(ctx *simulator.Context) (types.AnyType, types.BaseMethodFault) {
			fault := run(ctx)
			g.strict.account(ctx)
			return nil, fault
		},
	})
}

// describe is vCenter's name of an operation, "VirtualDiskManager.createVirtualDisk".
func describe(kind, method string) string {
	name := strings.TrimSuffix(method, "_Task")
	return kind + "." + strings.ToLower(name[:1]) + name[1:]
}

// CreateVirtualDiskTask creates a VMDK with a UUID of its own.
func (g *diskGate) CreateVirtualDiskTask(ctx *simulator.Context, req *types.CreateVirtualDisk_Task) soap.HasFault {
	s := g.strict
	ref := g.start(ctx, "CreateVirtualDisk_Task", req.Name, func(ctx *simulator.Context) types.BaseMethodFault {
		p, fault := s.resolve(ctx, req.Datacenter, req.Name)
		if fault != nil {
			return fault
		}
		spec, ok := req.Spec.(types.BaseFileBackedVirtualDiskSpec)
		if !ok || path.Ext(p.path) != ".vmdk" || spec.GetFileBackedVirtualDiskSpec().CapacityKb <= 0 {
			return &types.InvalidArgument{InvalidProperty: "spec"}
		}
		capacity := spec.GetFileBackedVirtualDiskSpec().CapacityKb * 1024
		if fault := s.vacant(p); fault != nil {
			return fault
		}
		if fault := s.fits(p, capacity); fault != nil {
			return fault
		}
		if fault := newDiskFiles(p, capacity); fault != nil {
			return fault
		}
		s.register(p, "", capacity)
		return nil
	})
	return &methods.CreateVirtualDisk_TaskBody{Res: &types.CreateVirtualDisk_TaskResponse{Returnval: ref}}
}

// vacant: the directory exists, the file does not.
func (s *strict) vacant(p place) types.BaseMethodFault {
	if _, err := os.Stat(p.file); err == nil {
		return &types.FileAlreadyExists{FileFault: types.FileFault{File: p.path}}
	}
	if _, err := os.Stat(filepath.Dir(p.file)); err != nil {
		return &types.FileNotFound{FileFault: types.FileFault{File: path.Dir(p.path)}}
	}
	return nil
}

func newDiskFiles(p place, capacity int64) types.BaseMethodFault {
	if err := writeDescriptor(p.file, capacity); err != nil {
		return &types.CannotCreateFile{FileFault: types.FileFault{File: p.path}}
	}
	if err := os.WriteFile(simulator.VirtualDiskBackingFileName(p.file), nil, 0o600); err != nil {
		return &types.CannotCreateFile{FileFault: types.FileFault{File: p.path}}
	}
	return nil
}

// DeleteVirtualDiskTask refuses what a VM has.
func (g *diskGate) DeleteVirtualDiskTask(ctx *simulator.Context, req *types.DeleteVirtualDisk_Task) soap.HasFault {
	s := g.strict
	ref := g.start(ctx, "DeleteVirtualDisk_Task", req.Name, func(ctx *simulator.Context) types.BaseMethodFault {
		p, fault := s.existing(ctx, req.Datacenter, req.Name)
		if fault != nil {
			return fault
		}
		if _, ok := s.disk(p); !ok {
			return &types.FileFault{File: p.path}
		}
		if fault := s.unattached(ctx, p); fault != nil {
			return fault
		}
		s.deleteFiles(p)
		return nil
	})
	return &methods.DeleteVirtualDisk_TaskBody{Res: &types.DeleteVirtualDisk_TaskResponse{Returnval: ref}}
}

func (s *strict) existing(ctx *simulator.Context, dc *types.ManagedObjectReference, name string) (place, types.BaseMethodFault) {
	p, fault := s.resolve(ctx, dc, name)
	if fault != nil {
		return p, fault
	}
	if _, err := os.Stat(p.file); err != nil {
		return p, &types.FileNotFound{FileFault: types.FileFault{File: p.path}}
	}
	return p, nil
}

// unattached refuses to touch a VMDK, or a directory with one, that a VM has.
func (s *strict) unattached(ctx *simulator.Context, p place) types.BaseMethodFault {
	holders := s.holdersOf(ctx, types.ManagedObjectReference{})
	file := strings.Replace(p.file, "-flat.vmdk", ".vmdk", 1)
	for _, disk := range s.disks.under(file) {
		for _, h := range holders[disk.uuid] {
			s.record(Violation{
				Kind: DeletedWhileAttached, VM: h.name, Ref: h.vm.Self.Value, Disk: disk.path,
				Detail: "the disk was to be deleted or moved (" + p.path + ") while the VM has it",
			})
			return &types.FileLocked{FileFault: types.FileFault{File: disk.path}}
		}
	}
	return nil
}

// MoveVirtualDiskTask renames a VMDK, which keeps its UUID.
func (g *diskGate) MoveVirtualDiskTask(ctx *simulator.Context, req *types.MoveVirtualDisk_Task) soap.HasFault {
	s := g.strict
	ref := g.start(ctx, "MoveVirtualDisk_Task", req.SourceName, func(ctx *simulator.Context) types.BaseMethodFault {
		return s.move(ctx, req.SourceDatacenter, req.SourceName, req.DestDatacenter, req.DestName, req.Force)
	})
	return &methods.MoveVirtualDisk_TaskBody{Res: &types.MoveVirtualDisk_TaskResponse{Returnval: ref}}
}

func (s *strict) move(ctx *simulator.Context, fromDC *types.ManagedObjectReference, fromName string, toDC *types.ManagedObjectReference, toName string, force *bool) types.BaseMethodFault {
	from, fault := s.existing(ctx, fromDC, fromName)
	if fault != nil {
		return fault
	}
	if toDC == nil {
		toDC = fromDC
	}
	to, fault := s.resolve(ctx, toDC, toName)
	if fault != nil {
		return fault
	}
	if fault := s.unattached(ctx, from); fault != nil {
		return fault
	}
	if fault := s.vacant(to); fault != nil {
		if _, exists := fault.(*types.FileAlreadyExists); !exists || force == nil || !*force {
			return fault
		}
		if fault := s.unattached(ctx, to); fault != nil {
			return fault
		}
		s.deleteFiles(to)
	}
	if err := os.Rename(from.file, to.file); err != nil {
		return &types.CannotAccessFile{FileFault: types.FileFault{File: from.path}}
	}
	if flat := simulator.VirtualDiskBackingFileName(from.file); flat != from.file {
		_ = os.Rename(flat, simulator.VirtualDiskBackingFileName(to.file))
	}
	s.disks.move(from.file, to.file, to.path, to.datastore.Self, to.datacenter.Name)
	return nil
}

// CopyVirtualDiskTask makes a VMDK of the same size with a UUID of its own. The content is not copied.
func (g *diskGate) CopyVirtualDiskTask(ctx *simulator.Context, req *types.CopyVirtualDisk_Task) soap.HasFault {
	s := g.strict
	ref := g.start(ctx, "CopyVirtualDisk_Task", req.SourceName, func(ctx *simulator.Context) types.BaseMethodFault {
		from, fault := s.existing(ctx, req.SourceDatacenter, req.SourceName)
		if fault != nil {
			return fault
		}
		disk, ok := s.disk(from)
		if !ok {
			return &types.FileFault{File: from.path}
		}
		dc := req.DestDatacenter
		if dc == nil {
			dc = req.SourceDatacenter
		}
		to, fault := s.resolve(ctx, dc, req.DestName)
		if fault != nil {
			return fault
		}
		if fault := s.vacant(to); fault != nil {
			return fault
		}
		if fault := s.fits(to, disk.capacity); fault != nil {
			return fault
		}
		if fault := newDiskFiles(to, disk.capacity); fault != nil {
			return fault
		}
		s.register(to, "", disk.capacity)
		return nil
	})
	return &methods.CopyVirtualDisk_TaskBody{Res: &types.CopyVirtualDisk_TaskResponse{Returnval: ref}}
}

// ExtendVirtualDiskTask grows a VMDK that no running VM has.
func (g *diskGate) ExtendVirtualDiskTask(ctx *simulator.Context, req *types.ExtendVirtualDisk_Task) soap.HasFault {
	s := g.strict
	ref := g.start(ctx, "ExtendVirtualDisk_Task", req.Name, func(ctx *simulator.Context) types.BaseMethodFault {
		p, fault := s.existing(ctx, req.Datacenter, req.Name)
		if fault != nil {
			return fault
		}
		disk, ok := s.disk(p)
		if !ok {
			return &types.FileFault{File: p.path}
		}
		capacity := req.NewCapacityKb * 1024
		if capacity < disk.capacity {
			return &types.InvalidArgument{InvalidProperty: "newCapacityKb"}
		}
		for _, h := range s.holders(ctx, disk, types.ManagedObjectReference{}) {
			if h.runs() {
				return &types.FileLocked{FileFault: types.FileFault{File: p.path}}
			}
		}
		if fault := s.fits(p, capacity-disk.capacity); fault != nil {
			return fault
		}
		s.resize(p, capacity)
		return nil
	})
	return &methods.ExtendVirtualDisk_TaskBody{Res: &types.ExtendVirtualDisk_TaskResponse{Returnval: ref}}
}

// QueryVirtualDiskUuid answers with the UUID that a device backed by the VMDK shows.
func (g *diskGate) QueryVirtualDiskUuid(ctx *simulator.Context, req *types.QueryVirtualDiskUuid) soap.HasFault {
	body := &methods.QueryVirtualDiskUuidBody{}
	p, fault := g.strict.existing(ctx, req.Datacenter, req.Name)
	if fault != nil {
		body.Fault_ = simulator.Fault(messageOf(fault), fault)
		return body
	}
	disk, ok := g.strict.disk(p)
	if !ok {
		body.Fault_ = simulator.Fault("not a virtual disk", &types.FileFault{File: p.path})
		return body
	}
	body.Res = &types.QueryVirtualDiskUuidResponse{Returnval: disk.uuid}
	return body
}

// SetVirtualDiskUuid is refused: what keeps contents by UUID would lose them.
func (g *diskGate) SetVirtualDiskUuid(*simulator.Context, *types.SetVirtualDiskUuid) soap.HasFault {
	return &methods.SetVirtualDiskUuidBody{Fault_: simulator.Fault("the simulated vCenter does not change UUIDs of disks", &types.NotSupported{})}
}

// fileGate serves the file manager.
type fileGate struct {
	*simulator.FileManager
	unlocked
	strict *strict
}

func (g *fileGate) start(ctx *simulator.Context, method, name string, run func(*simulator.Context) types.BaseMethodFault) types.ManagedObjectReference {
	return g.strict.start(ctx, job{
		entity: g.Self, method: method, description: describe("FileManager", method), names: []string{name},
		run: func(ctx *simulator.Context) (types.AnyType, types.BaseMethodFault) {
			fault := run(ctx)
			g.strict.account(ctx)
			return nil, fault
		},
	})
}

// DeleteDatastoreFileTask deletes a file, or a directory with all below it, unless a VM has a disk of it. Of a VMDK it
// deletes the descriptor only: the extent leaks, as on a real datastore.
func (g *fileGate) DeleteDatastoreFileTask(ctx *simulator.Context, req *types.DeleteDatastoreFile_Task) soap.HasFault {
	s := g.strict
	ref := g.start(ctx, "DeleteDatastoreFile_Task", req.Name, func(ctx *simulator.Context) types.BaseMethodFault {
		p, fault := s.existing(ctx, req.Datacenter, req.Name)
		if fault != nil {
			return fault
		}
		if p.root {
			return &types.CannotDeleteFile{FileFault: types.FileFault{File: p.path}}
		}
		if fault := s.unattached(ctx, p); fault != nil {
			return fault
		}
		if err := os.RemoveAll(p.file); err != nil {
			return &types.CannotDeleteFile{FileFault: types.FileFault{File: p.path}}
		}
		s.disks.drop(p.file)
		return nil
	})
	return &methods.DeleteDatastoreFile_TaskBody{Res: &types.DeleteDatastoreFile_TaskResponse{Returnval: ref}}
}

// MoveDatastoreFileTask renames a file or a directory.
func (g *fileGate) MoveDatastoreFileTask(ctx *simulator.Context, req *types.MoveDatastoreFile_Task) soap.HasFault {
	s := g.strict
	ref := g.start(ctx, "MoveDatastoreFile_Task", req.SourceName, func(ctx *simulator.Context) types.BaseMethodFault {
		return s.move(ctx, req.SourceDatacenter, req.SourceName, req.DestinationDatacenter, req.DestinationName, req.Force)
	})
	return &methods.MoveDatastoreFile_TaskBody{Res: &types.MoveDatastoreFile_TaskResponse{Returnval: ref}}
}

// CopyDatastoreFileTask copies a file.
func (g *fileGate) CopyDatastoreFileTask(ctx *simulator.Context, req *types.CopyDatastoreFile_Task) soap.HasFault {
	s := g.strict
	ref := g.start(ctx, "CopyDatastoreFile_Task", req.SourceName, func(ctx *simulator.Context) types.BaseMethodFault {
		from, fault := s.existing(ctx, req.SourceDatacenter, req.SourceName)
		if fault != nil {
			return fault
		}
		dc := req.DestinationDatacenter
		if dc == nil {
			dc = req.SourceDatacenter
		}
		to, fault := s.resolve(ctx, dc, req.DestinationName)
		if fault != nil {
			return fault
		}
		if fault := s.vacant(to); fault != nil && (req.Force == nil || !*req.Force) {
			return fault
		}
		if err := copyFile(from.file, to.file); err != nil {
			return &types.CannotCreateFile{FileFault: types.FileFault{File: to.path}}
		}
		return nil
	})
	return &methods.CopyDatastoreFile_TaskBody{Res: &types.CopyDatastoreFile_TaskResponse{Returnval: ref}}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

// MakeDirectory creates a directory of a datastore.
func (g *fileGate) MakeDirectory(ctx *simulator.Context, req *types.MakeDirectory) soap.HasFault {
	body := &methods.MakeDirectoryBody{}
	p, fault := g.strict.resolve(ctx, req.Datacenter, req.Name)
	if fault == nil {
		fault = makeDirectory(p, req.CreateParentDirectories != nil && *req.CreateParentDirectories)
	}
	if fault != nil {
		body.Fault_ = simulator.Fault(messageOf(fault), fault)
		return body
	}
	body.Res = &types.MakeDirectoryResponse{}
	return body
}

func makeDirectory(p place, parents bool) types.BaseMethodFault {
	mkdir := os.Mkdir
	if parents {
		mkdir = os.MkdirAll
	}
	err := mkdir(p.file, 0o700)
	switch {
	case err == nil:
		return nil
	case os.IsExist(err):
		return &types.FileAlreadyExists{FileFault: types.FileFault{File: p.path}}
	case os.IsNotExist(err):
		return &types.FileNotFound{FileFault: types.FileFault{File: path.Dir(p.path)}}
	default:
		return &types.CannotCreateFile{FileFault: types.FileFault{File: p.path}}
	}
}

// datastoreGate serves datastores.
type datastoreGate struct {
	*simulator.Datastore
	unlocked
	strict *strict
}

// RefreshDatastore computes the free space; vcsim would reset the capacity.
func (g *datastoreGate) RefreshDatastore(ctx *simulator.Context, _ *types.RefreshDatastore) soap.HasFault {
	g.strict.account(ctx)
	return &methods.RefreshDatastoreBody{Res: &types.RefreshDatastoreResponse{}}
}
