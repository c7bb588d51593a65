package vsphere

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/berth-dev/berth/internal/machine"
)

// markerTTL is how long the content of a place's marker file is believed; all disks of a place are handled within it.
const markerTTL = 30 * time.Second

// markers remembers marker files by datastore and directory. A nil marker means that there was none.
type markers struct {
	mu    sync.Mutex
	known map[string]knownMarker
}

type knownMarker struct {
	marker *marker
	read   time.Time
	// born: this session made the directory a moment ago, so nothing is in it but what this session put there.
	born bool
	put  map[string]bool
}

// site is where a volume is: its datacenter and datastore.
type site struct {
	dc, ds *node
	inv    *inventory
	at     location
}

// volumeSite resolves an address that was chosen before.
func (s *Session) volumeSite(ctx context.Context, spec machine.VolumeSpec) (site, error) {
	at, err := parseAddress(spec.Address)
	if err != nil {
		return site{}, err
	}
	shape, err := shapeOf(spec.Shape)
	if err != nil {
		return site{}, err
	}
	out := site{at: at}
	err = s.inventory.with(ctx, func(inv *inventory) error {
		out.inv = inv
		if out.dc, err = inv.datacenter(spec.Location, shape.Datacenter); err != nil {
			return err
		}
		out.ds, err = inv.find(kindDatastore.called("the datastore of "+spec.Address), out.dc, at.datastore)
		return err
	})
	return out, err
}

// PlanVolume implements machine.Platform. The name follows from the key; the datastore from the declaration, unless the disk
// is found on another one: then that is where it lies.
func (s *Session) PlanVolume(ctx context.Context, spec machine.VolumeSpec) (string, error) {
	shape, err := shapeOf(spec.Shape)
	if err != nil {
		return "", err
	}
	var planned string
	err = s.inventory.with(ctx, func(inv *inventory) error {
		planned, err = s.planVolume(ctx, inv, spec, shape)
		return err
	})
	return planned, err
}

func (s *Session) planVolume(ctx context.Context, inv *inventory, spec machine.VolumeSpec, shape Shape) (string, error) {
	if spec.Existing {
		return s.findVolume(ctx, inv, spec, shape)
	}
	dc, err := inv.datacenter(spec.Location, shape.Datacenter)
	if err != nil {
		return "", err
	}
	k := kindDatastore.called("persistentDisks[" + spec.Want.Name + "].datastore")
	name, policy, fallback := spec.Want.Datastore, spec.Want.StoragePolicy, shape.Datastore
	if name == "" && policy == "" && fallback == "" {
		policy = shape.StoragePolicyName
	}
	ds, _, unplaced := s.datastore(ctx, inv, dc, k, name, policy, fallback)
	var order, unread []*node
	look := func(n *node) {
		if readable(n) {
			order = append(order, n)
		} else {
			unread = append(unread, n)
		}
	}
	switch {
	case machine.IsNowhere(unplaced):
		// A datastore can be renamed, and the declaration too: the disk is looked for before the answer is no.
	case unplaced != nil:
		return "", unplaced
	default:
		look(ds)
	}
	for _, other := range inv.all(kindDatastore, dc) {
		if other != ds {
			look(other)
		}
	}
	if there, err := s.lies(ctx, inv, dc, order, spec.Key); there != "" || err != nil {
		return there, err
	}
	if len(unread) > 0 { // a blank disk must not be made beside one that is kept there
		return "", unseen(spec.Key, inv.list(unread, dc, kindDatastore))
	}
	if unplaced != nil {
		return "", unplaced
	}
	if err := s.promise(ctx, ds, "disk "+spec.Want.Name+" of "+spec.Key.HostName, spec.Want.SizeGiB); err != nil {
		return "", err
	}
	return address(ds.name, spec.Key), nil
}

// findVolume says where a volume lies, on whatever datastore of its datacenter; where nothing says which datacenter that is, of
// any. A datastore that cannot be looked at may have it.
func (s *Session) findVolume(ctx context.Context, inv *inventory, spec machine.VolumeSpec, shape Shape) (string, error) {
	dcs, named := inv.all(kindDatacenter, nil), spec.Location
	if named == "" || named == "*" {
		named = shape.Datacenter
	}
	if named != "" && named != "*" {
		dc, err := inv.datacenter(spec.Location, shape.Datacenter)
		if err != nil {
			return "", err
		}
		dcs = []*node{dc}
	}
	var dark []string
	for _, dc := range dcs {
		var order, unread []*node
		for _, ds := range inv.all(kindDatastore, dc) {
			if readable(ds) {
				order = append(order, ds)
			} else {
				unread = append(unread, ds)
			}
		}
		if there, err := s.lies(ctx, inv, dc, order, spec.Key); there != "" || err != nil {
			return there, err
		}
		if len(unread) > 0 {
			dark = append(dark, inv.list(unread, dc, kindDatastore))
		}
	}
	if len(dark) > 0 {
		return "", unseen(spec.Key, strings.Join(dark, ", "))
	}
	return "", &machine.Error{
		Kind: machine.NotFound, Message: "disk " + spec.Key.Disk + " of " + spec.Key.HostName + " is on no datastore",
	}
}

// unseen: whether a disk exists cannot be told, because of datastores that cannot be looked at.
func unseen(key machine.VolumeKey, dark string) *machine.Error {
	return busy(ReasonDatastore, time.Minute, "disk %s of %s is on no datastore that can be looked at, and may be on one that "+
		"is not accessible: %s", key.Disk, key.HostName, dark)
}

// lies looks for a volume on these datastores: in a directory with its place's marker. "" says that it is on none of them.
func (s *Session) lies(ctx context.Context, inv *inventory, dc *node, order []*node, key machine.VolumeKey) (string, error) {
	found, err := s.markedOn(ctx, inv, dc, order, key)
	if err != nil {
		return "", err
	}
	for _, candidate := range found {
		there := address(candidate.name, key)
		if s.markers.empty(candidate.ref.Value+"/"+directory(key), fileName(key)) {
			continue
		}
		if _, err := s.diskUUID(ctx, dc, there); err == nil {
			return there, nil
		} else if !machine.Is(err, machine.NotFound) {
			return "", err
		}
	}
	return "", nil
}

// markedOn looks on all these datastores for the place's marker. A place that lost its records may have its disks on any of
// them: what the declaration says today need not be what it said when they were made.
func (s *Session) markedOn(ctx context.Context, inv *inventory, dc *node, datastores []*node, key machine.VolumeKey) ([]*node, error) {
	const atOnce = 8
	marks := make([]*marker, len(datastores))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, ds := range datastores {
		group.Go(func() (err error) {
			marks[i], err = s.marker(ctx, inv, dc, ds, directory(key))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var out []*node
	for i, m := range marks {
		if m != nil && *m == markerOf(key) {
			out = append(out, datastores[i])
		}
	}
	return out, nil
}

// marker reads the marker file of a directory, nil if there is none.
func (s *Session) marker(ctx context.Context, inv *inventory, dc, ds *node, dir string) (*marker, error) {
	key := ds.ref.Value + "/" + dir
	s.markers.mu.Lock()
	known, ok := s.markers.known[key]
	s.markers.mu.Unlock()
	if ok && time.Since(known.read) < markerTTL {
		return known.marker, nil
	}
	data, err := s.client.file(ctx, http.MethodGet, strings.TrimPrefix(inv.path(dc), "/"), ds.name, dir+"/"+markerName, nil)
	var m *marker
	switch {
	case errors.Is(err, errNoFile):
	case err != nil:
		return nil, failed(err, "reading [%s] %s/%s", ds.name, dir, markerName)
	default:
		m = new(marker)
		if json.Unmarshal(data, m) != nil {
			*m = marker{} // whatever it is, it is not ours
		}
	}
	s.remember(key, knownMarker{marker: m})
	return m, nil
}

// empty reports whether a directory was made by this session a moment ago and the file was not.
func (m *markers) empty(key, file string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.known[key]
	return ok && known.born && !known.put[file] && time.Since(known.read) < markerTTL
}

// putting notes that a file is being made in a directory.
func (m *markers) putting(key, file string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.known[key]; ok && known.put != nil {
		known.put[file] = true
	}
}

func (s *Session) remember(key string, m knownMarker) {
	s.markers.mu.Lock()
	defer s.markers.mu.Unlock()
	for k, known := range s.markers.known {
		if time.Since(known.read) >= markerTTL {
			delete(s.markers.known, k)
		}
	}
	m.read = time.Now()
	s.markers.known[key] = m
}

// diskUUID asks for the UUID of a disk's file, NotFound if there is none. The virtual disk manager's other questions are of
// no use: some vCenters answer them for files that do not exist.
func (s *Session) diskUUID(ctx context.Context, dc *node, path string) (string, error) {
	res, err := methods.QueryVirtualDiskUuid(ctx, s.client.vim, &types.QueryVirtualDiskUuid{
		This: *s.client.vim.ServiceContent.VirtualDiskManager, Name: path, Datacenter: &dc.ref,
	})
	if err != nil {
		return "", failed(err, "reading the UUID of %s", path)
	}
	return normalUUID(res.Returnval), nil
}

// LookupVolume implements machine.Platform. SizeGiB stays 0: vCenter tells the size of a disk only where it is attached.
func (s *Session) LookupVolume(ctx context.Context, spec machine.VolumeSpec) (*machine.Volume, error) {
	at, err := s.volumeSite(ctx, spec)
	if err != nil {
		return nil, err
	}
	id, err := s.diskUUID(ctx, at.dc, at.at.path())
	if err != nil {
		return nil, err
	}
	marked, err := s.marked(ctx, at, spec.Key)
	if err != nil {
		return nil, err
	}
	return &machine.Volume{
		Disk: spec.Key.Disk, Volume: at.at.path(), Identity: id, Unit: spec.Want.Unit, Marked: marked,
	}, nil
}

// marked: the directory's marker names this place, and the file's name this disk.
func (s *Session) marked(ctx context.Context, at site, key machine.VolumeKey) (bool, error) {
	if at.at.file != fileName(key) {
		return false, nil
	}
	m, err := s.marker(ctx, at.inv, at.dc, at.ds, at.at.dir)
	return err == nil && m != nil && *m == markerOf(key), err
}

// CreateVolume implements machine.Platform: directory, marker, then the disk, thin. What exists is never replaced (VS-D14).
func (s *Session) CreateVolume(ctx context.Context, spec machine.VolumeSpec) (machine.Operation, error) {
	at, err := s.volumeSite(ctx, spec)
	if err != nil {
		return machine.Operation{}, err
	}
	if err := s.ensurePlace(ctx, at, spec.Key); err != nil {
		return machine.Operation{}, err
	}
	s.markers.putting(at.ds.ref.Value+"/"+at.at.dir, at.at.file)
	policyID := ""
	if spec.Want.StoragePolicy != "" {
		if policyID, _, err = s.compatible(ctx, at.inv, at.dc, spec.Want.StoragePolicy); err != nil {
			return machine.Operation{}, err
		}
	}
	return s.start(ctx, act{kind: machine.OpCreateVolume, doing: "creating " + at.at.path()},
		func(ctx context.Context) (types.ManagedObjectReference, error) {
			res, err := methods.CreateVirtualDisk_Task(ctx, s.client.vim, &types.CreateVirtualDisk_Task{
				This: *s.client.vim.ServiceContent.VirtualDiskManager, Name: at.at.path(), Datacenter: &at.dc.ref,
				Spec: &types.FileBackedVirtualDiskSpec{
					VirtualDiskSpec: types.VirtualDiskSpec{
						DiskType:    string(types.VirtualDiskTypeThin),
						AdapterType: string(types.VirtualDiskAdapterTypeLsiLogic),
					},
					CapacityKb: int64(spec.Want.SizeGiB) << 20,
					Profile:    storageProfile(policyID),
				},
			})
			if err != nil {
				return types.ManagedObjectReference{}, err
			}
			return res.Returnval, nil
		})
}

// ensurePlace makes the place's directory with its marker in it. A directory with another marker, or with files and no
// marker, is somebody else's.
func (s *Session) ensurePlace(ctx context.Context, at site, key machine.VolumeKey) error {
	want := markerOf(key)
	if s.knownPlace(at, want) {
		return nil
	}
	born := true
	_, err := methods.MakeDirectory(ctx, s.client.vim, &types.MakeDirectory{
		This: *s.client.vim.ServiceContent.FileManager, Name: at.at.directory(), Datacenter: &at.dc.ref,
		CreateParentDirectories: types.NewBool(false),
	})
	if isFault[*types.FileAlreadyExists](err) {
		born = false
		s.markers.mu.Lock()
		delete(s.markers.known, at.ds.ref.Value+"/"+at.at.dir)
		s.markers.mu.Unlock()
		m, err := s.marker(ctx, at.inv, at.dc, at.ds, at.at.dir)
		switch {
		case err != nil:
			return err
		case m != nil && *m == want:
			return nil
		case m != nil:
			return conflict(ReasonDirectory, "directory %s belongs to %s of pool %s/%s: it is not used", at.at.directory(),
				m.HostName, m.Namespace, m.Pool)
		}
		// A crash between directory and marker leaves an empty directory; any other content is a stranger's.
		files, err := s.list(ctx, at)
		if err != nil {
			return err
		}
		if len(files) > 0 {
			return conflict(ReasonDirectory, "directory %s exists, has no marker of Berth and holds %s: it is not used",
				at.at.directory(), listNames(files))
		}
	} else if err != nil {
		return failed(err, "making directory %s", at.at.directory())
	}
	_, err = s.client.file(ctx, http.MethodPut, strings.TrimPrefix(at.inv.path(at.dc), "/"), at.ds.name,
		at.at.dir+"/"+markerName, want.encode())
	if err != nil {
		return failed(err, "writing %s/%s", at.at.directory(), markerName)
	}
	s.remember(at.ds.ref.Value+"/"+at.at.dir, knownMarker{marker: &want, born: born, put: map[string]bool{}})
	return nil
}

// knownPlace: the marker was read or written a moment ago.
func (s *Session) knownPlace(at site, want marker) bool {
	s.markers.mu.Lock()
	defer s.markers.mu.Unlock()
	known, ok := s.markers.known[at.ds.ref.Value+"/"+at.at.dir]
	return ok && known.marker != nil && *known.marker == want && time.Since(known.read) < markerTTL
}

// list names the files of a directory. NotFound if there is none.
func (s *Session) list(ctx context.Context, at site) ([]string, error) {
	browser, _ := at.ds.props["browser"].(types.ManagedObjectReference)
	res, err := methods.SearchDatastore_Task(ctx, s.client.vim, &types.SearchDatastore_Task{
		This: browser, DatastorePath: at.at.directory(),
		SearchSpec: &types.HostDatastoreBrowserSearchSpec{MatchPattern: []string{"*"}},
	})
	if err != nil {
		return nil, failed(err, "listing %s", at.at.directory())
	}
	t, err := s.await(ctx, res.Returnval, "List", "listing "+at.at.directory())
	if err != nil {
		return nil, failed(err, "listing %s", at.at.directory())
	}
	found, ok := t.result.(types.HostDatastoreBrowserSearchResults)
	if !ok {
		return nil, failed(errors.New("the answer has no list"), "listing %s", at.at.directory())
	}
	var files []string
	for _, f := range found.File {
		files = append(files, f.GetFileInfo().Path)
	}
	slices.Sort(files)
	return files, nil
}

// DeleteVolume implements machine.Platform. It proves first, live, that the file is the volume on record and that no virtual
// machine holds it.
func (s *Session) DeleteVolume(ctx context.Context, spec machine.VolumeSpec, volume machine.Volume) (machine.Operation, error) {
	spec.Address = volume.Volume
	at, err := s.volumeSite(ctx, spec)
	if err != nil {
		return machine.Operation{}, err
	}
	id, err := s.diskUUID(ctx, at.dc, at.at.path())
	if err != nil {
		return machine.Operation{}, err
	}
	if volume.Identity != "" && id != normalUUID(volume.Identity) {
		return machine.Operation{}, conflict(ReasonForeignDisk, "%s has UUID %s, on record is %s: it is another disk and is not "+
			"deleted", at.at.path(), id, volume.Identity)
	}
	if volume.Identity == "" {
		marked, err := s.marked(ctx, at, spec.Key)
		if err != nil {
			return machine.Operation{}, err
		}
		if !marked {
			return machine.Operation{}, conflict(ReasonForeignDisk, "nothing says that %s is disk %s of %s: it is not deleted",
				at.at.path(), spec.Key.Disk, spec.Key.HostName)
		}
	}
	held, err := s.Holders(ctx, spec.Location, []machine.Volume{volume})
	if err != nil {
		return machine.Operation{}, err
	}
	if holder, ok := held[volume.Volume]; ok {
		return machine.Operation{}, busy(ReasonStillAttached, 30*time.Second, "%s is attached to virtual machine %s and is not "+
			"deleted", at.at.path(), holder)
	}
	return s.start(ctx, act{kind: machine.OpDeleteVolume, doing: "deleting " + at.at.path()},
		func(ctx context.Context) (types.ManagedObjectReference, error) {
			// The virtual disk manager deletes descriptor and data; the file manager would leave the data behind (VS-D45).
			res, err := methods.DeleteVirtualDisk_Task(ctx, s.client.vim, &types.DeleteVirtualDisk_Task{
				This: *s.client.vim.ServiceContent.VirtualDiskManager, Name: at.at.path(), Datacenter: &at.dc.ref,
			})
			if err != nil {
				return types.ManagedObjectReference{}, err
			}
			return res.Returnval, nil
		})
}

// Forget implements machine.Platform. Only a directory that holds our marker and nothing else goes.
func (s *Session) Forget(ctx context.Context, spec machine.VolumeSpec) error {
	at, err := s.volumeSite(ctx, spec)
	if err != nil {
		return err
	}
	files, err := s.list(ctx, at)
	if machine.Is(err, machine.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if slices.Contains(files, markerName) {
		s.markers.mu.Lock()
		delete(s.markers.known, at.ds.ref.Value+"/"+at.at.dir)
		s.markers.mu.Unlock()
		m, err := s.marker(ctx, at.inv, at.dc, at.ds, at.at.dir)
		if err != nil {
			return err
		}
		if m == nil || *m != markerOf(spec.Key) {
			return conflict(ReasonDirectory, "directory %s carries another place's marker: it is not removed", at.at.directory())
		}
	}
	others := slices.DeleteFunc(slices.Clone(files), func(f string) bool { return f == markerName })
	if len(others) > 0 {
		return refused(ReasonDirectory, "directory %s is not removed: it still holds %s", at.at.directory(), listNames(others))
	}
	if at.at.dir != directory(spec.Key) && !slices.Contains(files, markerName) {
		return refused(ReasonDirectory, "directory %s is empty, but nothing says that it was ours: remove it by hand",
			at.at.directory())
	}
	res, err := methods.DeleteDatastoreFile_Task(ctx, s.client.vim, &types.DeleteDatastoreFile_Task{
		This: *s.client.vim.ServiceContent.FileManager, Name: at.at.directory(), Datacenter: &at.dc.ref,
	})
	if err != nil {
		return failed(err, "removing %s", at.at.directory())
	}
	if _, err := s.await(ctx, res.Returnval, "Forget", "removing "+at.at.directory()); err != nil && !isFault[*types.FileNotFound](err) {
		return failed(err, "removing %s", at.at.directory())
	}
	s.markers.mu.Lock()
	delete(s.markers.known, at.ds.ref.Value+"/"+at.at.dir)
	s.markers.mu.Unlock()
	return nil
}
