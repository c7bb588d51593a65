package guest_test

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
)

// signature writes what a foreign use leaves on a disk: bytes by offset, the least that blkid knows it by.
func signature(kind string, size int64) map[int64]string {
	le := binary.LittleEndian
	pad := func(s string, n int) string { return s + strings.Repeat("\x00", n-len(s)) }
	switch kind {
	case "swap":
		header := make([]byte, 16)
		le.PutUint32(header[0:], 1)
		le.PutUint32(header[4:], uint32(size/4096-1))
		return map[int64]string{1024: string(header), 4086: "SWAPSPACE2"}
	case "luks":
		return map[int64]string{0: "LUKS\xba\xbe\x00\x01", 168: "11111111-2222-3333-4444-555555555555"}
	case "lvm":
		return map[int64]string{512: "LABELONE\x01\x00\x00\x00\x00\x00\x00\x00\xfe\x7f\x0f\x6b\x20\x00\x00\x00LVM2 001"}
	case "raid":
		// Version 1.2: 4 KiB from the start, the superblock names its own place.
		sb := make([]byte, 256)
		le.PutUint32(sb[0:], 0xa92b4efc)
		le.PutUint32(sb[4:], 1)
		copy(sb[16:], "0123456789abcdef")
		le.PutUint64(sb[144:], 8)
		return map[int64]string{4096: string(sb)}
	case "mbr":
		// One Linux partition: 1000 sectors from sector 2048 on.
		return map[int64]string{446: pad("\x00\x00\x00\x00\x83\x00\x00\x00\x00\x08\x00\x00\xe8\x03\x00\x00", 64) + "\x55\xaa"}
	case "gpt":
		return gpt(size)
	case "ntfs":
		boot := make([]byte, 512)
		copy(boot[3:], "NTFS    ")
		le.PutUint16(boot[11:], 512)
		boot[13] = 8
		boot[21] = 0xf8
		le.PutUint64(boot[40:], uint64(size/512-1))
		le.PutUint64(boot[48:], 4)
		le.PutUint64(boot[56:], 8)
		boot[64], boot[68] = 0xf6, 1
		boot[510], boot[511] = 0x55, 0xaa
		mft := int64(4 * 4096)
		record := func() string { return pad("FILE\x00\x00\x00\x00", 20) + "\x38\x00\x01\x00" }
		return map[int64]string{0: string(boot), mft: record(), mft + 1024*3: record()}
	case "zfs":
		out := map[int64]string{}
		for i := range int64(32) {
			out[(128+i)<<10] = "\x0c\xb1\xba\x00\x00\x00\x00\x00"
			out[(256+128+i)<<10] = "\x0c\xb1\xba\x00\x00\x00\x00\x00"
		}
		return out
	}
	return nil
}

// gpt is a partition table with its copy at the end and no partition.
func gpt(size int64) map[int64]string {
	le := binary.LittleEndian
	last := uint64(size/512 - 1)
	entries := make([]byte, 128*128)
	header := func(own, other, table uint64) string {
		h := make([]byte, 92)
		copy(h, "EFI PART")
		le.PutUint32(h[8:], 0x10000)
		le.PutUint32(h[12:], 92)
		le.PutUint64(h[24:], own)
		le.PutUint64(h[32:], other)
		le.PutUint64(h[40:], 34)
		le.PutUint64(h[48:], last-33)
		copy(h[56:], "0123456789abcdef")
		le.PutUint64(h[72:], table)
		le.PutUint32(h[80:], 128)
		le.PutUint32(h[84:], 128)
		le.PutUint32(h[88:], crc32.ChecksumIEEE(entries))
		le.PutUint32(h[16:], crc32.ChecksumIEEE(h))
		return string(h)
	}
	return map[int64]string{
		446:               "\x00\x00\x02\x00\xee\xff\xff\xff\x01\x00\x00\x00\xff\x7f\x00\x00",
		510:               "\x55\xaa",
		512:               header(1, last, 2),
		int64(last) * 512: header(last, 1, last-32),
	}
}
