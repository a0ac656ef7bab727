/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * The ABI of the sampleblk driver: ioctls on /dev/sampleblk-control. The same header is used by the kernel, by C and
 * by C++.
 *
 * Every structure can grow at its end: the kernel takes the size from the ioctl number, reads a shorter one as if the
 * missing end were zero, and refuses a longer one (E2BIG) unless the part that it does not know is zero. Reserved fields
 * and unknown flags must be zero (EINVAL). Sizes are in bytes and times in nanoseconds where a name says so; a sector
 * is always 512 bytes, whatever the device's block size.
 */
#ifndef _UAPI_LINUX_SAMPLEBLK_H
#define _UAPI_LINUX_SAMPLEBLK_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define SAMPLEBLK_CONTROL_PATH "/dev/sampleblk-control"

/* Devices are numbered from 1: /dev/sampleblk1 … /dev/sampleblk256. */
#define SAMPLEBLK_MAX_DEVICES 256
/* In sampleblk_config.index: the lowest free number. */
#define SAMPLEBLK_INDEX_ANY 0

#define SAMPLEBLK_MIN_CAPACITY_BYTES 4096ULL
#define SAMPLEBLK_MAX_CAPACITY_BYTES (1ULL << 50)
#define SAMPLEBLK_MAX_QUEUES 64
#define SAMPLEBLK_MAX_DEPTH 4096

/* sampleblk_config.flags */
#define SAMPLEBLK_F_READ_ONLY (1U << 0)
/* Spins, says the kernel: some file systems and schedulers then behave otherwise. */
#define SAMPLEBLK_F_ROTATIONAL (1U << 1)
#define SAMPLEBLK_F_DISCARD (1U << 2)
#define SAMPLEBLK_F_WRITE_ZEROES (1U << 3)
/* A volatile write cache: flushes reach the driver. */
#define SAMPLEBLK_F_CACHE (1U << 4)
/* Writes can bypass the cache; without it the kernel sends a flush after the write. Needs SAMPLEBLK_F_CACHE. */
#define SAMPLEBLK_F_FUA (1U << 5)
/* No partition table is looked for. */
#define SAMPLEBLK_F_NO_PARTITIONS (1U << 6)
#define SAMPLEBLK_F_ALL ((1U << 7) - 1)

#define SAMPLEBLK_F_DEFAULT (SAMPLEBLK_F_DISCARD | SAMPLEBLK_F_WRITE_ZEROES)

/* What a device is. A zero asks for the default; the kernel writes back what it made of it. */
struct sampleblk_config {
	__u32 index; /* SAMPLEBLK_INDEX_ANY or 1 … SAMPLEBLK_MAX_DEVICES */
	__u32 flags; /* SAMPLEBLK_F_*; there is no default for 0 */
	__u64 capacity_bytes; /* a multiple of the logical block; must be given */
	__u32 queues; /* hardware queues; default 1, never more than CPUs */
	__u32 depth; /* requests in flight a queue; default 128 */
	__u32 logical_block_bytes; /* 512 (default) … 4096, a power of two */
	__u32 physical_block_bytes; /* default: the larger of 4096 and the logical block */
	__u64 reserved[8];
};

/* SAMPLEBLK_IOC_REMOVE */
/*
 * Remove the device although it is open: for whoever holds it open it is then a disk that was pulled, which has no
 * length and takes no write.
 * Without it the call fails with EBUSY.
 */
#define SAMPLEBLK_REMOVE_FORCE (1U << 0)

struct sampleblk_remove {
	__u32 index;
	__u32 flags; /* SAMPLEBLK_REMOVE_* */
	__u64 reserved[2];
};

/* SAMPLEBLK_IOC_LIST: which devices there are, bit n-1 of the map for device n. */
struct sampleblk_list {
	__u32 count;
	__u32 reserved0;
	__u64 map[SAMPLEBLK_MAX_DEVICES / 64];
	__u64 reserved[2];
};

/* SAMPLEBLK_IOC_INFO: a device's configuration and state. */
struct sampleblk_info {
	struct sampleblk_config config; /* config.index is the question */
	__u32 openers; /* open descriptors and mounts, partitions included */
	__u32 reserved0;
	__u64 allocated_bytes; /* memory that holds data */
	__u64 reserved[8];
};

/* In sampleblk_counters.queue: all hardware queues together. */
#define SAMPLEBLK_QUEUE_ALL 0xffffffffU

/* SAMPLEBLK_IOC_COUNTERS: what has been completed since the device was made. */
struct sampleblk_counters {
	__u32 index;
	__u32 queue; /* SAMPLEBLK_QUEUE_ALL or a hardware queue from 0 */
	__u64 reads; /* requests */
	__u64 writes;
	__u64 discards;
	__u64 write_zeroes;
	__u64 flushes;
	__u64 fua_writes; /* those of the writes that carried FUA */
	__u64 read_bytes;
	__u64 write_bytes;
	__u64 discard_bytes;
	__u64 write_zeroes_bytes;
	__u64 errors; /* requests that failed, of whatever kind */
	__u64 deferred; /* requests that waited for memory in the worker */
	__u64 reserved[8];
};

#define SAMPLEBLK_IOC_MAGIC 0xBD

#define SAMPLEBLK_IOC_ADD _IOWR(SAMPLEBLK_IOC_MAGIC, 0x01, struct sampleblk_config)
#define SAMPLEBLK_IOC_REMOVE _IOW(SAMPLEBLK_IOC_MAGIC, 0x02, struct sampleblk_remove)
#define SAMPLEBLK_IOC_LIST _IOR(SAMPLEBLK_IOC_MAGIC, 0x03, struct sampleblk_list)
#define SAMPLEBLK_IOC_INFO _IOWR(SAMPLEBLK_IOC_MAGIC, 0x04, struct sampleblk_info)
#define SAMPLEBLK_IOC_COUNTERS _IOWR(SAMPLEBLK_IOC_MAGIC, 0x05, struct sampleblk_counters)

#endif
