#!/bin/sh
# Brings up the disks of this node's place: finds each by its UUID, makes a file system only on a disk proven blank, mounts,
# links, and on the first boot of a new server empties the file systems that ask for it. It runs at every boot before the
# container runtime and the kubelet, and fails (so that they do not start) rather than guess.
#
# The policy is the function decide. It has a twin in Go (Decide, in the same directory of the source): change both. Tests
# compare them case by case, and run testdata/scenarios.tsv through this script on real disks and through the simulated guests.
# Everything else here finds facts or carries out a decision.
#
# CAPV_ROOT puts all files under another root, CAPV_SYS is another /sys, and CAPV_SOURCE_ONLY=1 defines the functions without
# running: all for tests, which replace the function devices.

set -u
LC_ALL=C
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL PATH

ROOT=${CAPV_ROOT:-}
SYS=${CAPV_SYS:-/sys}
MAPPING=$ROOT/etc/capv/persistent-disks.tsv
# On the system disk for certain: /etc is no place to mount a disk on, /var and /var/lib may be.
STATE=$ROOT/etc/capv
LINKS=$ROOT/dev/disk/by-capv
RUN=$ROOT/run/capv
FSTAB=$ROOT/etc/fstab
# Seconds to wait for devices.
PATIENCE=${CAPV_PATIENCE:-120}
FSTAB_OPTIONS=nofail,x-systemd.device-timeout=120s,x-systemd.before=capv-persistent-disk-reconcile.service
MARKER=.capv-disk
TAB=$(printf '\t')

# The ID of this server; cloud-init leaves it in two places. Read before anything is mounted over them.
INSTANCE=$(cat "$ROOT/run/cloud-init/.instance-id" 2>/dev/null || cat "$ROOT/var/lib/cloud/data/instance-id" 2>/dev/null)

say() { printf 'capv-disks: %s\n' "$*"; }

# ---- decisions ------------------------------------------------------------------------------------------------------

# decide reads the facts (f_*) and the row (r_*) and sets d_action and d_reason.
decide() {
	d_action=refuse
	if [ -z "$r_uuid" ]; then
		d_reason=no-identity
	elif [ "$f_devices" -eq 0 ]; then
		d_action=wait d_reason=missing
	elif [ "$f_devices" -ne 1 ]; then
		d_reason=ambiguous
	elif [ -z "$r_path" ]; then
		d_action=link d_reason=raw
	elif [ "$r_fs" != ext4 ] && [ "$r_fs" != xfs ]; then
		d_reason=unknown-filesystem-wanted
	elif [ "$f_mounted" = elsewhere ]; then
		d_reason=mounted-elsewhere
	elif [ "$f_mounted" = occupied ]; then
		d_reason=mount-path-occupied
	elif [ "$r_wipe" = true ] && [ "$f_visit" = unknown ]; then
		d_reason=wipe-record-unreadable
	elif [ "$r_wipe" = true ] && [ "$f_visit" = other ]; then
		d_reason=wipe-record-of-another
	else
		case $f_content in
		blank)
			if [ "$f_mounted" != no ]; then
				d_reason=blank-but-mounted
			else
				d_action=format d_reason=blank
			fi
			;;
		filesystem) decide_filesystem ;;
		foreign) d_reason=foreign-signature ;;
		*) d_reason=unreadable ;;
		esac
	fi
}

decide_filesystem() {
	case $f_type in
	ext2 | ext3 | ext4 | xfs | btrfs) ;;
	*)
		d_reason=unknown-filesystem-found
		return 0
		;;
	esac
	case $f_marker in
	ours) ;;
	none)
		if [ "$r_kind" = ephemeral ]; then
			d_reason=ephemeral-not-blank
			return 0
		fi
		;;
	other)
		d_reason=belongs-to-another
		return 0
		;;
	*)
		d_reason=marker-unreadable
		return 0
		;;
	esac
	if [ "$r_wipe" = true ] && [ "$f_visit" = new ]; then
		d_action=wipe d_reason=first-boot
	elif [ "$f_type" != "$r_fs" ]; then
		d_action=mount d_reason=other-filesystem
	else
		d_action=mount d_reason=as-declared
	fi
}

# sentence prints the decision for people.
sentence() {
	case $d_reason in
	no-identity) echo "disk $r_name has no UUID in the mapping file" ;;
	missing) echo "disk $r_name: no device has UUID $r_uuid; is it attached, and does the server show the UUIDs of its disks?" ;;
	ambiguous) echo "disk $r_name: more than one device has UUID $r_uuid; detach the copy" ;;
	raw) echo "disk $r_name is raw; linked only" ;;
	unknown-filesystem-wanted) echo "disk $r_name: file system $r_fs is not one of ext4, xfs" ;;
	mounted-elsewhere) echo "disk $r_name is mounted somewhere else than $r_path" ;;
	mount-path-occupied) echo "disk $r_name: another device is mounted on $r_path" ;;
	wipe-record-unreadable)
		echo "disk $r_name is to be emptied once per server, and whether that has happened cannot be read"
		;;
	wipe-record-of-another)
		echo "disk $r_name is to be emptied once per server, and /etc/capv/disk-initialized-$r_name is of another server: remove it if this image was made of a used server"
		;;
	blank-but-mounted) echo "disk $r_name is mounted on $r_path but looks blank" ;;
	blank) echo "disk $r_name is blank; $r_fs is made on it" ;;
	foreign-signature) echo "disk $r_name carries something else than a file system ($f_type); it is not touched; clear its first and last MiB if nothing on it is needed" ;;
	unreadable) echo "disk $r_name cannot be probed (I/O error or ambiguous result); it is not touched" ;;
	unknown-filesystem-found) echo "disk $r_name carries a file system of type $f_type, which is never mounted here" ;;
	ephemeral-not-blank) echo "ephemeral disk $r_name is neither blank nor ours; it is not touched" ;;
	belongs-to-another) echo "disk $r_name carries the marker of another place or disk; it is not mounted" ;;
	marker-unreadable) echo "disk $r_name: its $f_type file system cannot be mounted or its marker not be read" ;;
	first-boot) echo "disk $r_name: first boot of this server; the content of $r_path is deleted" ;;
	other-filesystem) echo "warning: disk $r_name was declared $r_fs but carries $f_type; mounted as found" ;;
	as-declared) echo "disk $r_name: $f_type mounted on $r_path" ;;
	*) echo "disk $r_name: $d_action ($d_reason)" ;;
	esac
}

# ---- facts ----------------------------------------------------------------------------------------------------------

# devices prints "PATH TOKEN" for every whole disk and every serial or ID that udev knows of it. A member of a multipath
# device is printed as the multipath device. Tests replace this function.
devices() {
	for sys in "$SYS"/block/*; do
		case ${sys##*/} in
		loop* | ram* | zram* | sr* | fd*) continue ;;
		esac
		[ -e "$sys" ] || continue
		path=/dev/${sys##*/}
		for holder in "$sys"/holders/dm-*; do
			[ -r "$holder/dm/uuid" ] || continue
			read -r dm_uuid <"$holder/dm/uuid" || continue
			case $dm_uuid in
			mpath-*) path=/dev/${holder##*/} ;;
			esac
		done
		udevadm info --query=property --path="$sys" 2>/dev/null | while IFS='=' read -r key value; do
			case $key in
			ID_SERIAL | ID_SERIAL_SHORT | ID_WWN | ID_WWN_WITH_EXTENSION) printf '%s %s\n' "$path" "$value" ;;
			DEVLINKS)
				for link in $value; do
					case $link in
					/dev/disk/by-id/*) printf '%s %s\n' "$path" "${link##*/}" ;;
					esac
				done
				;;
			esac
		done
	done
}

# carriers prints the devices that carry UUID $1. Only the UUID counts: no unit number, no size, no order.
carriers() {
	devices | awk -v want="$1" '{
		t = tolower($2); gsub(/-/, "", t)
		if (t == want || t == "3" want || t == "0x" want || t == "wwn0x" want || t == "scsi3" want) print $1
	}' | sort -u
}

# sectors prints the size of device $1 in units of 512 bytes.
sectors() { blockdev --getsz "$1"; }

# zeros succeeds if $3 sectors of device $1 from sector $2 on are zero, returns 1 if not, 2 if they cannot be read.
zeros() {
	dd if="$1" of="$RUN/sample" bs=512 skip="$2" count="$3" 2>/dev/null || return 2
	[ "$(wc -c <"$RUN/sample")" -eq $(($3 * 512)) ] || return 2
	[ "$(tr -d '\000' <"$RUN/sample" | wc -c)" -eq 0 ] || return 1
}

# probe looks at the whole device $1 and sets f_content, f_type, f_label and f_fsuuid.
probe() {
	f_content=unreadable f_type='' f_label='' f_fsuuid='' p_usage='' p_table=''
	p_status=0
	p_out=$(blkid -p -o export "$1" 2>/dev/null) || p_status=$?
	case $p_status in
	0)
		while IFS='=' read -r key value; do
			case $key in
			TYPE) f_type=$value ;;
			LABEL) f_label=$value ;;
			UUID) f_fsuuid=$value ;;
			USAGE) p_usage=$value ;;
			PTTYPE) p_table=$value ;;
			esac
		done <<-END
			$p_out
		END
		if [ "$p_usage" = filesystem ] && [ -n "$f_type" ] && [ -z "$p_table" ]; then
			f_content=filesystem
		else
			f_content=foreign
			f_type=${f_type:-$p_table}
		fi
		;;
	2) probe_blank "$1" ;;
	esac
	return 0
}

# probe_blank is asked when blkid found nothing, which a failed read looks like as well.
probe_blank() {
	b_signatures=$(wipefs -n "$1" 2>/dev/null) || return 0
	b_size=$(sectors "$1" 2>/dev/null) || return 0
	b_part=2048
	[ "$b_size" -gt 0 ] || return 0
	[ "$b_size" -ge "$b_part" ] || b_part=$b_size
	b_status=0
	zeros "$1" 0 "$b_part" && zeros "$1" $((b_size - b_part)) "$b_part" || b_status=$?
	[ "$b_status" -ne 2 ] || return 0
	f_content=foreign
	if [ -n "$b_signatures" ]; then
		f_type=signature
	elif in_use "$1"; then
		f_type='partitions or holders'
	elif [ "$b_status" -ne 0 ]; then
		f_type='unknown data'
	else
		f_content=blank
	fi
}

# in_use succeeds if device $1 has partitions or holders.
in_use() {
	u_name=$(readlink -f "$1") || return 0
	u_name=${u_name##*/}
	for entry in "$SYS/class/block/$u_name"/holders/* "$SYS/class/block/$u_name/$u_name"*/partition; do
		[ ! -e "$entry" ] || return 0
	done
	return 1
}

# mounts sets f_mounted for device $1 and mount point $2.
mounts() {
	m_top=$(findmnt -rnv -o SOURCE -M "$2" 2>/dev/null | tail -n 1)
	if [ -n "$m_top" ]; then
		if [ "$(readlink -f "$m_top")" = "$(readlink -f "$1")" ]; then
			f_mounted=here
		else
			f_mounted=occupied
		fi
	elif findmnt -rn -S "$1" >/dev/null 2>&1; then
		f_mounted=elsewhere
	else
		f_mounted=no
	fi
}

# label_of prints the label of the disk with key $1: twelve characters, the most that xfs takes.
label_of() { printf 'capv-%.7s' "$(printf '%s' "$1" | sha256sum)"; }

# must_be_empty: kubeadm refuses anything in etcd's directory, so that such a file system has a label and no marker.
must_be_empty() { [ "$1" = /var/lib/etcd ]; }

# marker sets f_marker for the file system on device $1. It is looked at read-only, without replaying its journal.
marker() {
	f_marker=unreadable
	if [ "$f_mounted" = here ]; then
		marker_in "$ROOT$r_path"
		return 0
	fi
	case $f_type in
	ext2) k_options=ro ;;
	ext3 | ext4) k_options=ro,noload ;;
	xfs) k_options=ro,norecovery ;;
	btrfs) k_options=ro,nologreplay ;;
	*) return 0 ;;
	esac
	mkdir -p "$RUN/look" || return 0
	mount -t "$f_type" -o "$k_options" "$1" "$RUN/look" || return 0
	marker_in "$RUN/look"
	umount "$RUN/look" || f_marker=unreadable
}

marker_in() {
	if [ -e "$1/$MARKER" ] || [ -L "$1/$MARKER" ]; then
		k_key=$(cat "$1/$MARKER") || return 0
		if [ "$k_key" = "$r_key" ]; then f_marker=ours; else f_marker=other; fi
	elif [ "$f_label" = "$(label_of "$r_key")" ]; then
		f_marker=ours
	else
		case $f_label in
		capv-*) f_marker=other ;;
		*) f_marker=none ;;
		esac
	fi
}

# visit sets f_visit: has this server emptied the disk before? A record that cannot be read, or could not be written
# afterwards, counts as unknown. A record of another server is no invitation: an instance ID may change under a server that
# lost its metadata.
visit() {
	f_visit=unknown
	[ "$r_wipe" = true ] || return 0
	[ -n "$INSTANCE" ] || return 0
	v_record=$STATE/disk-initialized-$r_name
	if [ -e "$v_record" ] || [ -L "$v_record" ]; then
		v_seen=$(cat "$v_record" 2>/dev/null) && [ -n "$v_seen" ] || return 0
		if [ "$v_seen" = "$INSTANCE" ]; then f_visit="done"; else f_visit=other; fi
	else
		: >"$STATE/.try" && rm -f "$STATE/.try" && f_visit=new
	fi 2>/dev/null
	return 0
}

# examine finds all facts of the row and decides.
examine() {
	f_content=unreadable f_type='' f_label='' f_fsuuid='' f_marker=unreadable f_mounted=no f_visit=unknown f_devices=0 dev=''
	if [ -n "$r_uuid" ]; then
		for dev in $(carriers "$r_uuid"); do
			f_devices=$((f_devices + 1))
		done
	fi
	if [ "$f_devices" -eq 1 ] && [ -n "$r_path" ]; then
		mounts "$dev" "$ROOT$r_path"
		probe "$dev"
		visit
		[ "$f_content" != filesystem ] || marker "$dev"
	fi
	decide
}

# ---- acts -----------------------------------------------------------------------------------------------------------

link() {
	mkdir -p "$LINKS" || return 1
	[ "$(readlink -f "$LINKS/$r_name")" = "$(readlink -f "$dev")" ] || ln -sfn "$dev" "$LINKS/$r_name"
}

format() {
	case $r_fs in
	ext4) mkfs.ext4 -q -F -L "$(label_of "$r_key")" "$dev" ;;
	xfs) mkfs.xfs -q -f -L "$(label_of "$r_key")" "$dev" ;;
	*) return 1 ;;
	esac || return 1
	probe "$dev"
	[ "$f_content" = filesystem ]
}

mount_here() {
	if [ "$f_mounted" != here ]; then
		mkdir -p "$ROOT$r_path" || return 1
		h_entries=$(find "$ROOT$r_path" -mindepth 1 -maxdepth 1 | wc -l)
		[ "$h_entries" -eq 0 ] || say "warning: $h_entries entries that were in $r_path before are hidden by the mount"
		# It may fail because systemd mounts it from fstab in this very moment.
		mount -t "$f_type" -o "$r_options" "$dev" "$ROOT$r_path" || is_mounted || return 1
	fi
	is_mounted && remember_mount
}

is_mounted() {
	mounts "$dev" "$ROOT$r_path"
	[ "$f_mounted" = here ]
}

# remember_mount puts the mount into fstab by the file system's UUID, so that a reboot does not depend on this script. nofail
# keeps the boot going without it; this script, which runs after it, then fails and the kubelet does not start.
remember_mount() {
	[ -n "$f_fsuuid" ] || return 1
	e_path=$(escaped "$r_path")
	e_line="UUID=$f_fsuuid $e_path $f_type $(escaped "$r_options"),$FSTAB_OPTIONS,x-capv.disk=$r_name 0 2"
	[ -e "$FSTAB" ] || : >"$FSTAB" || return 1
	! grep -qxF "$e_line" "$FSTAB" || return 0
	E_PATH=$e_path awk '!($2 == ENVIRON["E_PATH"] && $4 ~ /x-capv\.disk=/)' "$FSTAB" >"$FSTAB.capv" &&
		printf '%s\n' "$e_line" >>"$FSTAB.capv" && chmod 0644 "$FSTAB.capv" && durable "$FSTAB.capv" && mv "$FSTAB.capv" "$FSTAB"
}

# escaped prints a field as fstab wants it.
escaped() { printf '%s' "$1" | sed 's/\\/\\134/g; s/ /\\040/g'; }

# put_marker writes the identity into the mounted file system, once.
put_marker() {
	if must_be_empty "$r_path"; then
		[ ! -d "$ROOT$r_path/lost+found" ] || rmdir "$ROOT$r_path/lost+found" 2>/dev/null ||
			say "warning: $r_path/lost+found holds what a check of the file system has found; it is left"
	elif [ ! -e "$ROOT$r_path/$MARKER" ]; then
		printf '%s\n' "$r_key" >"$ROOT$r_path/$MARKER.new" && mv "$ROOT$r_path/$MARKER.new" "$ROOT$r_path/$MARKER"
	fi
}

# wipe deletes the content of the file system. It holds on to the directory that it has proven to be the disk's, so that a
# mount that goes away, or another that comes on top, cannot put a different one in its place.
wipe() (
	cd "$ROOT$r_path" || return 1
	is_mounted || return 1
	[ "$(stat -c %d:%i .)" = "$(stat -c %d:%i "$ROOT$r_path")" ] || return 1
	find . -xdev -mindepth 1 ! -path "./$MARKER" ! -path ./lost+found -delete
)

# remember_visit records that this server has emptied the disk, or found it blank.
remember_visit() {
	[ "$r_wipe" = true ] || return 0
	# First what was done, on the disk, then that it was done: the other way round a power cut would bring the content back.
	printf '%s\n' "$INSTANCE" >"$STATE/.visit" && sync &&
		mv "$STATE/.visit" "$STATE/disk-initialized-$r_name" && durable "$STATE"
}

# durable puts a file or directory on the disk, with everything else if sync is an old one.
durable() { sync "$1" 2>/dev/null || sync; }

act() {
	case $d_action in
	link) link ;;
	format) format && link && mount_here && put_marker && remember_visit ;;
	mount) link && mount_here && put_marker ;;
	wipe) link && mount_here && wipe && put_marker && remember_visit ;;
	*) return 1 ;;
	esac
}

# ---- run ------------------------------------------------------------------------------------------------------------

# each_row calls $1 for every row of the mapping file with r_* set. It stops at the first row that fails when $2 is "stop",
# and returns 1 if any failed.
each_row() {
	w_failed=0
	while IFS=$TAB read -r r_name r_uuid r_path r_fs r_options r_wipe r_kind r_key <&3; do
		case $r_name in
		'' | '#'*) continue ;;
		esac
		[ "$r_uuid" != - ] || r_uuid=''
		[ "$r_path" != - ] || r_path=''
		[ "$r_fs" != - ] || r_fs=''
		[ "$r_options" != - ] || r_options=defaults
		if ! "$1"; then
			w_failed=1
			[ "$2" != stop ] || break
		fi
	done 3<"$MAPPING"
	return "$w_failed"
}

# whole succeeds if the mapping file is all there: it ends with its last line, and every row has every column.
whole() {
	awk -F '\t' '
		{ last = $0 }
		/^#/ || /^$/ { next }
		NF != 8 || $1 == "" || $8 == "" { damaged = 1 }
		END { exit damaged || last != "# end" }
	' "$MAPPING"
}

is_there() { [ -z "$r_uuid" ] || [ -n "$(carriers "$r_uuid")" ]; }

agree() {
	examine
	case $d_action in
	wait | refuse)
		say "REFUSED: $(sentence)"
		return 1
		;;
	esac
}

carry_out() {
	agree || return 1
	say "$(sentence)"
	act || {
		say "FAILED: disk $r_name: $d_action"
		return 1
	}
}

main() {
	[ -e "$MAPPING" ] || return 0
	if ! [ -r "$MAPPING" ] || ! mkdir -p "$RUN"; then
		say "FAILED: $MAPPING cannot be read or $RUN not be made"
		return 1
	fi
	if ! whole; then
		say "FAILED: $MAPPING is cut short or damaged"
		return 1
	fi
	# A run that was cut short may have left its look at a disk behind.
	while findmnt -rn -M "$RUN/look" >/dev/null 2>&1; do
		umount "$RUN/look" || return 1
	done
	if [ -z "$ROOT" ]; then
		udevadm control --reload && udevadm trigger --subsystem-match=block --action=change && udevadm settle --timeout=30
	fi
	waited=0
	until each_row is_there stop; do
		[ "$waited" -lt "$PATIENCE" ] || break
		sleep 1
		waited=$((waited + 1))
	done
	# Nothing is touched before every disk is understood.
	if ! each_row agree all; then
		say "no disk was touched; containerd and kubelet do not start"
		return 1
	fi
	each_row carry_out stop
}

[ -n "${CAPV_SOURCE_ONLY:-}" ] || main "$@"
