package guest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	script "github.com/berth-dev/berth/internal/guest"
	"github.com/berth-dev/berth/internal/sim/node"
)

// bootUp is what happens between power on and the login prompt. continued means that the guest was up already and only the
// program that runs the guests was restarted. An error is a guest that stands still.
func (g *machine) bootUp(ctx context.Context, continued bool) error {
	if continued {
		g.console.say("firmware", "the guest goes on after a restart of the simulator")
	} else {
		g.console.say("firmware", "power on: %d CPUs, %d MiB, %d disks, %d network adapters", g.hardware.CPUs, g.hardware.MemoryMiB,
			len(g.hardware.Disks), len(g.hardware.NICs))
		// A power cycle loses /run and every process.
		g.d.endProcesses(filepath.Base(g.dir))
		if err := os.RemoveAll(g.host(tmpfsDir)); err != nil {
			return err
		}
	}
	if err := g.mountSystem(); err != nil {
		return err
	}
	g.mountTableOfFstab()
	meta, userData, err := g.dataSource()
	if err != nil {
		return err
	}
	if err := g.bringUpNetwork(ctx, meta); err != nil {
		return err
	}
	fresh := g.isNewInstance(meta.InstanceID)
	interrupted := continued && !g.fs.exists(bootFinished)
	if fresh || interrupted {
		if err := g.runCloudInit(ctx, meta, userData, interrupted); err != nil {
			return err
		}
		return g.fs.write(bootFinished, []byte("finished\n"), 0o644)
	}
	g.console.say("cloud-init", "instance %s was initialised before; nothing to do", meta.InstanceID)
	if err := g.fs.write(bootFinished, []byte("finished\n"), 0o644); err != nil {
		return err
	}
	return g.startServices(ctx)
}

// imageInfo says on the system disk what the image was built with: from the first boot on the disk counts, not the virtual
// machine's configuration.
const (
	imageInfo        = "/etc/image-info"
	imageInfoVersion = "KUBERNETES_VERSION="
)

// imageVersion is the version of the kubeadm and kubelet on the system disk, "" if the image does not say.
func (g *machine) imageVersion() string {
	data, err := g.fs.read(imageInfo)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), imageInfoVersion); ok {
			return version
		}
	}
	return ""
}

// bootFinished exists once cloud-init has done its work since power on.
const bootFinished = "/run/cloud-init/boot-finished"

// mountSystem mounts the system disk, which carries the image's system if nothing was written to it yet, and the file
// systems that live in memory.
func (g *machine) mountSystem() error {
	disk, err := g.bootDisk()
	if err != nil {
		return err
	}
	unpacked := false
	content, meta := disk.probe()
	switch content {
	case script.Blank:
		// A template made for no known system has none on its disk: what an operator gets who picks the wrong image.
		if strings.HasPrefix(g.hardware.GuestID, "other") {
			return errors.New("no bootable device: the image of this virtual machine holds no operating system")
		}
		if meta, err = disk.format("ext4", "system"); err != nil {
			return fmt.Errorf("unpacking the image: %w", err)
		}
		unpacked = true
	case script.Filesystem:
	case script.Foreign, script.Unreadable:
		return fmt.Errorf("no bootable device: the first disk holds no system (%s)", meta.FSType)
	}
	g.fs.mount(Mount{Path: "/", Host: disk.rel("fs"), Device: disk.UUID, Type: meta.FSType})
	for _, dir := range []string{"/etc", "/var/lib", "/usr/local/bin", "/root", "/home", "/tmp"} {
		host, err := g.fs.Path(dir)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(host, 0o755); err != nil {
			return inGuest(err, dir)
		}
	}
	if unpacked && g.hardware.Image != "" {
		if err := g.fs.write(imageInfo, []byte(imageInfoVersion+g.hardware.Image+"\n"), 0o644); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(g.host(tmpfsDir), 0o755); err != nil {
		return err
	}
	g.fs.mount(Mount{Path: "/run", Host: filepath.Join(g.dir, tmpfsDir), Device: "tmpfs", Type: "tmpfs"})
	return nil
}

// mountTableOfFstab mounts what the disk script put into fstab in an earlier boot (VS-D33).
func (g *machine) mountTableOfFstab() {
	data, err := g.fs.read("/etc/fstab")
	if err != nil {
		return
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 3 || !strings.HasPrefix(fields[0], "UUID=") {
			continue
		}
		id := strings.TrimPrefix(fields[0], "UUID=")
		at := strings.ReplaceAll(fields[1], `\040`, " ")
		found := false
		for _, d := range g.hardware.Disks {
			if _, meta := d.probe(); meta.UUID == id {
				found = true
				g.fs.mount(Mount{Path: at, Host: d.rel("fs"), Device: d.UUID, Type: meta.FSType})
				g.console.say("systemd", "mounted %s", at)
			}
		}
		if !found {
			g.console.say("systemd", "timed out waiting for device UUID=%s; %s is not mounted (nofail)", id, at)
		}
	}
}

// dataSource reads what the hypervisor hands over.
func (g *machine) dataSource() (metadata, string, error) {
	text, err := g.hardware.info("metadata")
	if err != nil {
		return metadata{}, "", fmt.Errorf("cloud-init: %w", err)
	}
	userData, err := g.hardware.info("userdata")
	if err != nil {
		return metadata{}, "", fmt.Errorf("cloud-init: %w", err)
	}
	if text == "" && userData == "" {
		if ignition, _ := g.hardware.info("ignition.config.data"); ignition != "" {
			g.console.say("cloud-init", "guestinfo holds an Ignition config; this image has no Ignition and ignores it")
		}
		return metadata{HostName: "localhost"}, "", errors.New("cloud-init: no datasource found: guestinfo.metadata and " +
			"guestinfo.userdata are both empty, so the guest has neither a name nor an address")
	}
	meta, err := parseMetadata(text)
	if err != nil {
		return metadata{}, "", fmt.Errorf("cloud-init: guestinfo.metadata: %w", err)
	}
	g.console.say("cloud-init", "DataSourceVMware [seed=guestinfo], instance-id %s, local-hostname %s", meta.InstanceID, meta.HostName)
	return meta, userData, nil
}

// bringUpNetwork sets the host name and configures every interface, and tells the hypervisor once both are done.
func (g *machine) bringUpNetwork(ctx context.Context, meta metadata) error {
	g.mu.Lock()
	g.status.InstanceID = meta.InstanceID
	g.mu.Unlock()
	if meta.HostName != "" {
		g.setHostName(meta.HostName)
	}
	nics, addrs, err := g.configureNetwork(ctx, meta, func(format string, args ...any) {
		g.console.say("network", format, args...)
		g.mu.Lock()
		g.status.Message = fmt.Sprintf(format, args...)
		g.mu.Unlock()
		g.save()
	})
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.nics, g.addrs, g.status.Message = nics, addrs, ""
	g.status.Addresses = nil
	for _, a := range addrs {
		g.status.Addresses = append(g.status.Addresses, a.String())
	}
	g.mu.Unlock()
	g.save()
	for _, n := range nics {
		g.console.say("network", "%s is up: %s", n.MAC, strings.Join(n.Addresses, ", "))
	}
	g.tellTools(ctx)
	return nil
}

// configureNetwork gives every adapter that the metadata matches its addresses. It waits for an address that another guest
// holds, as wait-on-network does, and complains meanwhile. warn also hears of adapters and entries that match nothing.
func (g *machine) configureNetwork(ctx context.Context, meta metadata, warn func(string, ...any)) ([]nicData, []netip.Addr, error) {
	var nics []nicData
	var all []netip.Addr
	matched := map[string]bool{}
	for _, a := range g.hardware.NICs {
		n := nicData{MAC: a.MAC, Network: a.Network, Addresses: []string{}}
		eth, ok := meta.byMAC(a.MAC)
		matched[a.MAC] = true
		switch {
		case !ok:
			warn("adapter %s is in no ethernets entry of the metadata and stays down", a.MAC)
		case !a.Connected:
			warn("%s: no carrier: the adapter is not connected", eth.Name)
		default:
			if eth.DHCP && len(eth.Addresses) == 0 {
				warn("%s: no DHCP server answers on this network", eth.Name)
			}
			for _, p := range eth.Addresses {
				complain := func(holder string) {
					warn("%s: %s is in use by %s; the interface does not come up while it is", eth.Name, p.Addr(), holder)
				}
				if err := g.d.network.claim(ctx, p.Addr(), g, complain); err != nil {
					return nil, nil, err
				}
				n.Addresses = append(n.Addresses, p.Addr().String())
				all = append(all, p.Addr())
			}
		}
		nics = append(nics, n)
	}
	for _, eth := range meta.Ethernets {
		if !matched[eth.MAC] {
			warn("%s: no adapter has the address %q of the metadata", eth.Name, eth.MAC)
		}
	}
	return nics, all, nil
}

// isNewInstance reports whether cloud-init has not seen this instance on this disk before.
func (g *machine) isNewInstance(id string) bool {
	last, err := g.fs.read(script.InstanceIDPath)
	return err != nil || strings.TrimSpace(string(last)) != id
}

// startServices is a boot of a guest that was set up before: enabled units, then the kubelet.
func (g *machine) startServices(ctx context.Context) error {
	if g.fs.exists(wantsPath(script.UnitName)) {
		g.startUnit(ctx, script.UnitName)
	}
	if !g.startUnit(ctx, "kubelet.service") {
		return errors.New("kubelet.service does not start because a unit that it requires failed")
	}
	n, err := node.Resume(ctx, g.nodeConfig(true))
	if errors.Is(err, node.ErrNotInitialized) {
		g.console.say("kubelet", "failed to load kubelet config file /var/lib/kubelet/config.yaml: this guest never joined a cluster")
		return nil
	}
	if err != nil {
		return fmt.Errorf("kubelet: %w", err)
	}
	return g.nodeIsUp(n)
}

// wantsPath is the link that an enabled unit has.
func wantsPath(unit string) string { return "/etc/systemd/system/multi-user.target.wants/" + unit }
