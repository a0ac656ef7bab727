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
/* A volatile write cache: flushes reach the driver, and a power cut loses what was not flushed. */
#define SAMPLEBLK_F_CACHE (1U << 4)
/* Writes can bypass the cache; without it the kernel sends a flush after the write. Needs SAMPLEBLK_F_CACHE. */
#define SAMPLEBLK_F_FUA (1U << 5)
/* No partition table is looked for. */
#define SAMPLEBLK_F_NO_PARTITIONS (1U << 6)
/* All memory is taken at creation, in large pieces on numa_node; else only for what is written. */
#define SAMPLEBLK_F_EAGER (1U << 7)
/* No reader ever sees half a sector of a write, nor half of two; also in force with a cache and while the journal records. */
#define SAMPLEBLK_F_SECTOR_ATOMIC (1U << 8)
/*
 * T10 protection information of type 1 (T10-DIF-TYPE1-CRC): the kernel sends and checks eight bytes a logical block. The device
 * checks what comes with a write (EILSEQ) and makes it where none comes; what was discarded or zeroed is not checked.
 * Without SAMPLEBLK_F_CACHE, _SECTOR_ATOMIC, zones, SAMPLEBLK_MODE_BIO and logical blocks above 4096 bytes (EINVAL), without
 * journal and resizing (EOPNOTSUPP). EOPNOTSUPP where the kernel has no protection information.
 */
#define SAMPLEBLK_F_INTEGRITY (1U << 9)
#define SAMPLEBLK_F_ALL ((1U << 10) - 1)

#define SAMPLEBLK_F_DEFAULT (SAMPLEBLK_F_DISCARD | SAMPLEBLK_F_WRITE_ZEROES)

/* sampleblk_config.mode */
#define SAMPLEBLK_MODE_MQ 0 /* blk-mq: tags, hardware queues, schedulers, merging */
#define SAMPLEBLK_MODE_BIO 1 /* bios as they come: no queues, no merging, no scheduler */

/* sampleblk_config.completion: from where a request that has no delay is completed */
#define SAMPLEBLK_COMPLETE_INLINE 0 /* in the submitting call */
#define SAMPLEBLK_COMPLETE_SOFTIRQ 1 /* as from an interrupt, on the CPU that submitted */
#define SAMPLEBLK_COMPLETE_TIMER 2 /* from a high-resolution timer, even for no delay */

/* What a device is. A zero asks for the default; the kernel writes back what it made of it. */
struct sampleblk_config {
	__u32 index; /* SAMPLEBLK_INDEX_ANY or 1 … SAMPLEBLK_MAX_DEVICES */
	__u32 flags; /* SAMPLEBLK_F_*; there is no default for 0 */
	__u64 capacity_bytes; /* a multiple of the logical block; must be given */
	__u32 queues; /* hardware queues; default 1, never more than CPUs */
	__u32 depth; /* requests in flight a queue; default 128 */
	__u32 logical_block_bytes; /* 512 (default) … 4096, a power of two; to 65536 where the kernel can */
	__u32 physical_block_bytes; /* default: the larger of 4096 and the logical block */
	__u32 io_min_bytes; /* default: the physical block */
	__u32 io_opt_bytes; /* default 0: says nothing */
	__u32 max_sectors; /* of a request; default 2560 */
	__u32 max_segments; /* of a request; default 128, at least as many as a logical block has sectors */
	__u32 poll_queues; /* further queues that only polling completes; mq only */
	__u32 mode; /* SAMPLEBLK_MODE_* */
	__u32 completion; /* SAMPLEBLK_COMPLETE_* */
	__s32 numa_node; /* counted from 1; 0: any */
	__u64 cache_bytes; /* of writes that are volatile at most; default 16 MiB; with SAMPLEBLK_F_CACHE */

	/*
	 * Writes that are whole or not at all, after a power cut too (REQ_ATOMIC): powers of two. From Linux 6.11 on, else
	 * EOPNOTSUPP.
	 */
	__u32 atomic_write_unit_max_bytes; /* default 0: there are none; at most max_sectors, in pages at most max_segments */
	__u32 atomic_write_unit_min_bytes; /* default: the logical block */
	__u32 atomic_write_boundary_bytes; /* that none may cross; default 0: there is none */

	/*
	 * A discard frees the granules that it names whole and leaves the rest as it was: a power of two, at least the
	 * physical block, at most 1 GiB. Default 0: it frees all that it names. Needs SAMPLEBLK_F_DISCARD.
	 */
	__u32 discard_granularity_bytes;
	__u32 discard_alignment_bytes; /* where the first granule begins: less than one, a multiple of the logical block */

	/*
	 * A zoned device, host-managed: the first zones are conventional, the others are written from their start to their
	 * capacity, and again after a reset (BLKREPORTZONE and its siblings, linux/blkzoned.h). Without SAMPLEBLK_F_CACHE,
	 * _SECTOR_ATOMIC, _DISCARD and _WRITE_ZEROES, atomic writes and SAMPLEBLK_MODE_BIO (EINVAL), without journal, snapshots
	 * and resizing (EOPNOTSUPP). EOPNOTSUPP where the kernel has no zoned devices.
	 */
	__u32 conventional_zones; /* fewer than there are zones */
	__u64 zone_bytes; /* a power of two, 64 KiB … 1 TiB, of which the capacity is a multiple; default 0: not zoned */
	__u64 zone_capacity_bytes; /* of a sequential zone, what can be written; default: the zone */
	__u32 max_open_zones; /* default 0: all */
	__u32 max_active_zones; /* open or closed; default 0: all; else no less than max_open_zones */
	__u64 reserved[2];
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
	__u32 powered; /* 0 after a power cut */
	__u64 allocated_bytes; /* memory that holds data */
	__u64 reserved[8];
};

/*
 * SAMPLEBLK_IOC_RESIZE: another capacity, while the device is used. What is cut off is lost, what is new reads as zero, and
 * what was volatile is durable where it shrinks. EBUSY while the journal records, while there are snapshots and for a clone;
 * EINVAL for what is no multiple of the logical block, and when a rule's bad sectors would be too many; EFBIG across 2 TiB.
 */
struct sampleblk_resize {
	__u32 index;
	__u32 reserved0;
	__u64 capacity_bytes;
	__u64 reserved[2];
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
	__u64 errors; /* requests that failed, of whatever kind; beside those that the block layer failed itself */
	__u64 deferred; /* requests that the worker did, for want of memory */
	__u64 delayed; /* requests that a timer completed */
	__u64 faults; /* requests that a fault rule acted on */
	__u64 batched; /* requests that came in through queue_rqs */
	__u64 polled; /* requests that polling completed */
	__u64 reserved[8];
};

/* Operations, as bits of a mask or as an index. */
#define SAMPLEBLK_OP_READ 0
#define SAMPLEBLK_OP_WRITE 1
#define SAMPLEBLK_OP_DISCARD 2
#define SAMPLEBLK_OP_WRITE_ZEROES 3
#define SAMPLEBLK_OP_FLUSH 4
#define SAMPLEBLK_OPS 5

/*
 * SAMPLEBLK_IOC_HISTOGRAM: how long requests took from the queue to completion, of one operation. Bucket n counts those
 * of 2^n … 2^(n+1)-1 ns, bucket 0 also 0. Recorded only while switched on (SAMPLEBLK_IOC_TUNE).
 */
#define SAMPLEBLK_BUCKETS 64

struct sampleblk_histogram {
	__u32 index;
	__u32 queue; /* SAMPLEBLK_QUEUE_ALL or a hardware queue from 0 */
	__u32 op; /* SAMPLEBLK_OP_* */
	__u32 reserved0;
	__u64 total_ns; /* of all requests counted */
	__u64 buckets[SAMPLEBLK_BUCKETS];
	__u64 reserved[2];
};

/* SAMPLEBLK_IOC_RESET: counters and histograms of all queues begin again at zero. */
struct sampleblk_reset {
	__u32 index;
	__u32 flags; /* none yet: zero */
	__u64 reserved[2];
};

/* SAMPLEBLK_IOC_TUNE: what can change while I/O runs; only what `set` names is changed, all is reported back. */
#define SAMPLEBLK_TUNE_QUEUES (1U << 0)
#define SAMPLEBLK_TUNE_COMPLETION (1U << 1)
#define SAMPLEBLK_TUNE_HISTOGRAMS (1U << 2)
#define SAMPLEBLK_TUNE_READ_ONLY (1U << 3)
#define SAMPLEBLK_TUNE_SECTOR_ATOMIC (1U << 4)
#define SAMPLEBLK_TUNE_ALL ((1U << 5) - 1)

struct sampleblk_tune {
	__u32 index;
	__u32 set; /* SAMPLEBLK_TUNE_* */
	__u32 queues;
	__u32 completion; /* SAMPLEBLK_COMPLETE_* */
	__u32 histograms; /* 0 or 1 */
	__u32 read_only; /* 0 or 1 */
	__u32 sector_atomic; /* 0 or 1 */
	__u32 reserved0;
	__u64 reserved[4];
};

/* Latency models. Times are nanoseconds; a drawn one is never below 0 nor above SAMPLEBLK_MAX_LATENCY_NS. */
#define SAMPLEBLK_LATENCY_NONE 0
#define SAMPLEBLK_LATENCY_CONSTANT 1 /* a */
#define SAMPLEBLK_LATENCY_UNIFORM 2 /* a … b */
#define SAMPLEBLK_LATENCY_NORMAL 3 /* mean a, standard deviation b */
#define SAMPLEBLK_LATENCY_LOGNORMAL 4 /* median a; b: standard deviation of the natural logarithm, in thousandths */
#define SAMPLEBLK_LATENCY_EXPONENTIAL 5 /* mean a, added to b */
#define SAMPLEBLK_LATENCY_PARETO 6 /* minimum a; b: shape, in thousandths */
#define SAMPLEBLK_LATENCY_EMPIRICAL 7 /* drawn from a histogram; evenly within a bin */

#define SAMPLEBLK_MAX_LATENCY_NS 60000000000ULL
#define SAMPLEBLK_MAX_BINS 4096

struct sampleblk_bin {
	__u64 up_to_ns; /* the bin ends here and begins where the one before ends, the first at 0 */
	__u64 count;
};

/*
 * SAMPLEBLK_IOC_TIMING: the latency of the operations in `ops`. Replaces what they had.
 * SAMPLEBLK_IOC_GET_TIMING reads that of the one operation in `ops`.
 */
struct sampleblk_timing {
	__u32 index;
	__u32 ops; /* bits 1 << SAMPLEBLK_OP_* */
	__u32 model; /* SAMPLEBLK_LATENCY_* */
	__u32 nr_bins; /* SAMPLEBLK_LATENCY_EMPIRICAL only; GET: room at `bins`, and then how many there are */
	__u64 a;
	__u64 b;
	__u64 seed;
	__u64 bins; /* pointer to nr_bins struct sampleblk_bin, ascending */
	__u64 reserved[4];
};

/* SAMPLEBLK_IOC_LIMITS: throughput and stalls. A zero is no limit. SAMPLEBLK_IOC_GET_LIMITS reads them. */
struct sampleblk_limits {
	__u32 index;
	__u32 reserved0;
	__u64 bytes_per_second; /* reads and writes together */
	__u64 iops; /* all operations together */
	/* Every stall_period_ns the device answers nothing for stall_ns, from stall_offset_ns into the period. */
	__u64 stall_period_ns;
	__u64 stall_ns;
	__u64 stall_offset_ns;
	__u64 reserved[4];
};

/* Fault rules are tried in order; the first that matches and fires acts, and no other. */
#define SAMPLEBLK_FAULT_ERROR 0 /* fail with errno `arg0`: the name of a blk_status, see docs/reference/abi.md */
#define SAMPLEBLK_FAULT_DELAY 1 /* arg0 ns more */
#define SAMPLEBLK_FAULT_HANG 2 /* never execute nor complete; mq: the block layer's timeout fails it, bio: removal does */
#define SAMPLEBLK_FAULT_LOST_WRITE 3 /* succeed, but write nothing */
#define SAMPLEBLK_FAULT_TORN_WRITE 4 /* write the first arg0 sectors only; succeed if arg1 is 0, else fail with errno arg1 */
#define SAMPLEBLK_FAULT_MISDIRECTED_WRITE 5 /* write at sector arg0 instead */
#define SAMPLEBLK_FAULT_CORRUPT 6 /* flip arg0 (default 1) bits at random: of what a read returns, of what a write stores */
#define SAMPLEBLK_FAULT_HOLD 7 /* execute, but complete only when this table is replaced, or the device must be idle */
#define SAMPLEBLK_FAULT_NOT_DURABLE 8 /* a flush that makes nothing durable; a write whose FUA is ignored */
#define SAMPLEBLK_FAULT_SET_BYTE 9 /* byte arg0 of the request becomes arg1: of what a read returns, of what a write stores */
/*
 * The sectors are bad: a request with one fails with ENODATA after what lies before the first of them. A write (in `ops`)
 * repairs those that it covers, as a disk that gives them another place. arg0: SAMPLEBLK_BAD_*; arg1 out: sectors repaired.
 * At most 2^24 sectors.
 */
#define SAMPLEBLK_FAULT_BAD_SECTOR 10
/*
 * The bits arg1 of the tag arg0 (SAMPLEBLK_TAG_*) flip in the protection information of the blocks from first_sector to
 * last_sector: of what a read returns, of what a write stores. EOPNOTSUPP without SAMPLEBLK_F_INTEGRITY.
 */
#define SAMPLEBLK_FAULT_CORRUPT_TAG 11
#define SAMPLEBLK_FAULTS 12

/* SAMPLEBLK_FAULT_BAD_SECTOR's arg0 */
#define SAMPLEBLK_BAD_ONCE (1U << 0) /* a request that failed has repaired those that it covers */
#define SAMPLEBLK_BAD_WRITES (1U << 1) /* writes fail, too, and repair nothing */
#define SAMPLEBLK_BAD_ALL ((1U << 2) - 1)

/* SAMPLEBLK_FAULT_CORRUPT_TAG's arg0 */
#define SAMPLEBLK_TAG_GUARD 0 /* 16 bits */
#define SAMPLEBLK_TAG_APP 1 /* 16 bits; all set: nothing of the block is checked */
#define SAMPLEBLK_TAG_REF 2 /* 32 bits */

#define SAMPLEBLK_MAX_RULES 256
#define SAMPLEBLK_PROBABILITY_ONE 1000000000U

struct sampleblk_rule {
	__u32 ops; /* bits 1 << SAMPLEBLK_OP_* */
	__u32 action; /* SAMPLEBLK_FAULT_* */
	__u64 first_sector; /* requests that touch first_sector … last_sector match */
	__u64 last_sector; /* a flush always matches */
	__u64 skip; /* this many matches pass first */
	__u64 count; /* then it fires at most this many times; 0: no limit */
	__u32 every; /* of the matches after skip only each nth fires; 0 and 1: all */
	__u32 probability; /* in 1e-9; 0 means always */
	__u64 arg0;
	__u64 arg1;
	__u64 matched; /* out */
	__u64 hits; /* out: how many times it fired */
	/*
	 * Since the table was set the rule sleeps for up_ns, then may act for down_ns, and so on. Without down_ns it always
	 * may. A request that comes while it sleeps is no match.
	 */
	__u64 up_ns;
	__u64 down_ns;
};

/*
 * SAMPLEBLK_IOC_SET_FAULTS replaces the whole table, or with SAMPLEBLK_FAULTS_ADD puts the rules after those that are there,
 * which keep their counts, windows, repaired sectors and what they let wait. SAMPLEBLK_IOC_GET_FAULTS reads the table with
 * its counts.
 */
#define SAMPLEBLK_FAULTS_ADD (1U << 0)

struct sampleblk_faults {
	__u32 index;
	__u32 nr_rules; /* GET: room at `rules`, and then how many there are */
	__u64 seed; /* GET: of the first rule; each has that of the call that brought it */
	__u64 rules; /* pointer to struct sampleblk_rule */
	__u64 flags; /* SET: SAMPLEBLK_FAULTS_ADD */
	__u64 reserved[3];
};

/*
 * SAMPLEBLK_IOC_POWER. While the power is off everything fails with EIO, also what was on its way when it went.
 *
 * With SAMPLEBLK_F_CACHE a write, discard or write-zeroes is volatile until it is durable, and that is
 *  - when a flush completes that was submitted after it had completed (Documentation/block/writeback_cache_control.rst);
 *    what had not completed when the flush was submitted stays volatile, and so does everything when the flush fails or
 *    the power goes before it completes;
 *  - of a write with FUA, when it completes;
 *  - when the cache is full and it is the oldest: that is written back, whether it has completed or not.
 * A cut loses of what is volatile, completed or not, what its mode says. Without a cache everything that was executed stays.
 *
 * POWER_ON also empties the page cache of the disk and its partitions. It fails with EBUSY while one of them is mounted or
 * opened with O_EXCL.
 */
#define SAMPLEBLK_POWER_ON 0
#define SAMPLEBLK_POWER_CUT 1

#define SAMPLEBLK_CUT_ALL 0 /* everything volatile is lost */
#define SAMPLEBLK_CUT_RANDOM 1 /* each volatile write survives with survive_percent, by seed */
#define SAMPLEBLK_CUT_EXPLICIT 2 /* what `survivors` names survives */
/*
 * CUT_RANDOM: half of the survivors keep only some of their first sectors. Nothing is torn within a logical block, nor a
 * write that was atomic (REQ_ATOMIC).
 */
#define SAMPLEBLK_CUT_F_TORN (1U << 0)

struct sampleblk_survivor {
	__u64 id; /* of sampleblk_volatile; one that is not volatile any more is ignored */
	__u64 sectors; /* that survive, from its first: whole logical blocks */
};

struct sampleblk_power {
	__u32 index;
	__u32 action; /* SAMPLEBLK_POWER_* */
	__u32 mode; /* SAMPLEBLK_CUT_* */
	__u32 flags; /* SAMPLEBLK_CUT_F_* */
	__u32 survive_percent; /* 0 … 100 */
	__u32 reserved0;
	__u64 seed;
	__u64 nr_survivors;
	__u64 survivors; /* pointer to struct sampleblk_survivor */
	__u64 dropped; /* out: volatile writes that were lost, … */
	__u64 survived; /* … survived whole … */
	__u64 torn; /* … or in part */
	__u64 reserved[4];
};

#define SAMPLEBLK_VOLATILE_DURABLE (1U << 0) /* safe, but listed as an older one that it hides is not */
#define SAMPLEBLK_VOLATILE_ZEROES (1U << 1) /* a discard or write-zeroes */
#define SAMPLEBLK_VOLATILE_IN_FLIGHT (1U << 2) /* not completed yet */

struct sampleblk_volatile {
	__u64 id; /* counts the changes of the device in the order in which they were executed, from 1 */
	__u64 sector;
	__u64 sectors;
	__u32 flags; /* SAMPLEBLK_VOLATILE_* */
	__u32 reserved;
};

/* SAMPLEBLK_IOC_VOLATILE: what a power cut could lose now, oldest first. Never more than 2^20. */
struct sampleblk_volatile_list {
	__u32 index;
	__u32 reserved0;
	__u64 nr; /* room at `list`; out: how many there are */
	__u64 list; /* pointer to struct sampleblk_volatile */
	__u64 written_back; /* out: writes that became durable because the cache was full */
	__u64 order; /* out: how things were at this number of sampleblk_journal_entry.submit_order and complete_order */
	__u64 reserved[3];
};

/*
 * The journal: a mapping of /dev/sampleblk-control at offset SAMPLEBLK_JOURNAL_OFFSET(index), read-only. A header, then
 * entries one after another from header.first to header.head, in the order in which they were executed; each is followed
 * by its undo chunks, then its redo chunks. `head` is written last and never moves back: what lies before it is whole, but
 * for what is known only when the operation completes: complete_order, epoch and SAMPLEBLK_JOURNAL_FAILED. complete_ns is
 * written after those and is 0 until then.
 *
 * A long discard may be executed in parts, each an entry of its own; they have one submit_order and one complete_order.
 */
#define SAMPLEBLK_JOURNAL_OFFSET(index) ((__u64)(index) << 40)
#define SAMPLEBLK_JOURNAL_MAGIC 0x324c4e4a4b4c4253ULL /* "SBLKJNL2" */

struct sampleblk_journal_header {
	__u64 magic;
	__u64 bytes; /* of the whole mapping */
	__u64 first; /* offset of the first entry */
	__u64 head; /* offset where the next entry goes */
	__u64 entries;
	__u64 overflow; /* operations that found no room: they are in no entry */
	__u64 next_sequence; /* counts on also while it overflows, so a gap shows */
	__u64 position; /* the store is as after this sequence; next_sequence - 1 unless SAMPLEBLK_IOC_SEEK moved it */
	__u64 epoch; /* the open one: what is of an epoch before it is durable */
	__u64 logical_block_bytes; /* of the device; not there where `first` lies before its end, 0: not known */
};

/* sampleblk_journal_entry.type: SAMPLEBLK_OP_WRITE … SAMPLEBLK_OP_FLUSH, or */
#define SAMPLEBLK_JOURNAL_MARK 16
#define SAMPLEBLK_JOURNAL_POWER_CUT 17 /* what the cut changed of a volatile write's pages */

#define SAMPLEBLK_JOURNAL_FUA (1U << 0)
/* It was reported as failed although it changed something; or it is a flush that kept no promise (FAULT_NOT_DURABLE). */
#define SAMPLEBLK_JOURNAL_FAILED (1U << 1)
#define SAMPLEBLK_JOURNAL_ATOMIC (1U << 2)

struct sampleblk_journal_entry {
	__u64 sequence; /* from 1 */
	__u32 bytes; /* of the entry with its data; a multiple of 8 */
	__u32 previous_bytes; /* of the entry before; 0 at the first */
	__u32 type;
	__u32 flags; /* SAMPLEBLK_JOURNAL_* */
	/*
	 * Flushes submitted, since the journal began, before the operation completed. So what is of epoch n is durable when
	 * a flush of epoch n or more has succeeded; a flush is of the epoch that it closes.
	 */
	__u64 epoch;
	__u64 sector;
	__u64 sectors;
	__u64 submit_ns; /* CLOCK_MONOTONIC */
	__u64 complete_ns;
	/*
	 * Numbers of one count of all submissions and completions of changes and flushes: a flush covers what has a
	 * complete_order below its submit_order.
	 */
	__u64 submit_order;
	__u64 complete_order; /* 0 until it completed */
	__u64 volatile_id; /* sampleblk_volatile.id; 0 of what was not in a volatile cache */
	__u32 undo_bytes;
	__u32 redo_bytes; /* of chunks; for a mark: of its text */
};

#define SAMPLEBLK_CHUNK_DATA 0 /* followed by its sectors */
#define SAMPLEBLK_CHUNK_ZERO 1

struct sampleblk_chunk {
	__u64 sector;
	__u64 sectors;
	__u32 kind; /* SAMPLEBLK_CHUNK_* */
	__u32 reserved;
};

/* SAMPLEBLK_IOC_JOURNAL */
#define SAMPLEBLK_JOURNAL_START 0 /* begin an empty one of `bytes` */
#define SAMPLEBLK_JOURNAL_STOP 1 /* and give its memory back */
#define SAMPLEBLK_JOURNAL_INFO 2 /* changes nothing, needs no rights */

struct sampleblk_journal {
	__u32 index;
	__u32 action;
	__u64 bytes; /* START: of the whole buffer, 64 KiB … 16 GiB; out: what it has */
	__u64 used_bytes; /* out, as all that follows; all 0 without a journal */
	__u64 entries;
	__u64 overflow;
	__u64 next_sequence;
	__u64 position;
	__u64 epoch;
	__u64 reserved[4];
};

#define SAMPLEBLK_MARK_BYTES 128

/* SAMPLEBLK_IOC_MARK: a note in the journal, such as the name of a test's step. */
struct sampleblk_mark {
	__u32 index;
	__u32 length; /* of text, 1 … SAMPLEBLK_MARK_BYTES */
	__u64 sequence; /* out */
	char text[SAMPLEBLK_MARK_BYTES];
};

/*
 * SAMPLEBLK_IOC_SEEK: makes the store what it was after `sequence` (0: before the first), by undoing or redoing what
 * lies between. Fails with EBUSY while the device is mounted or opened with O_EXCL, and unless forced while it is open at
 * all; with EOVERFLOW when the journal has a gap; with EINTR for a signal, at some sequence between.
 * What is written while the position is in the past is thrown away by the next seek; seeking to the newest sequence
 * goes on recording. What the volatile cache held is durable once the position has moved.
 */
#define SAMPLEBLK_SEEK_NEWEST 0xffffffffffffffffULL
#define SAMPLEBLK_SEEK_FORCE (1U << 0)

struct sampleblk_seek {
	__u32 index;
	__u32 flags;
	__u64 sequence;
	__u64 applied; /* out: entries undone or redone */
	__u64 reserved[2];
};

/* SAMPLEBLK_IOC_SNAPSHOT */
#define SAMPLEBLK_SNAPSHOT_TAKE 0 /* of now, or of `sequence` of the journal; `id` is given back */
#define SAMPLEBLK_SNAPSHOT_RESTORE 1 /* EBUSY as for SAMPLEBLK_IOC_SEEK, and while the journal records */
#define SAMPLEBLK_SNAPSHOT_DELETE 2
#define SAMPLEBLK_SNAPSHOT_CLONE 3 /* a new device `clone` that begins as the snapshot is */
#define SAMPLEBLK_SNAPSHOT_LIST 4 /* changes nothing, needs no rights */

#define SAMPLEBLK_SNAPSHOT_F_FORCE (1U << 0)
#define SAMPLEBLK_SNAPSHOT_F_SEQUENCE (1U << 1) /* TAKE: of `sequence`, not of now */

#define SAMPLEBLK_MAX_SNAPSHOTS 64

struct sampleblk_snapshot {
	__u32 index;
	__u32 action;
	__u32 flags; /* SAMPLEBLK_SNAPSHOT_F_* */
	__u32 id;
	__u64 sequence;
	__u32 clone; /* CLONE: as sampleblk_config.index; out: the device made */
	__u32 count; /* LIST: out */
	__u32 ids[SAMPLEBLK_MAX_SNAPSHOTS]; /* LIST: out */
	__u64 reserved[4];
};

/*
 * SAMPLEBLK_IOC_STATE: builds what a crash may have left, out of a recording: what a snapshot of the device `index` holds, and
 * over it what its journal's writes that `parts` names had written, one after another in the order of the list. Nothing
 * of the device itself changes and it is not waited for; its journal may go on recording. The state becomes the contents
 * of the device `target`, or another snapshot of `index`, which costs the memory of what is put over the first one.
 *
 * `target` has the same capacity, no journal, zones or protection information (EINVAL, EBUSY, EOPNOTSUPP); what it held is
 * gone, but for its snapshots. EBUSY as for SAMPLEBLK_IOC_SEEK. EOVERFLOW when the journal has a gap, ENOENT without a
 * journal or such a snapshot, EINTR for a signal: then the target is as it was.
 */
#define SAMPLEBLK_STATE_FORCE (1U << 0)
#define SAMPLEBLK_STATE_MAX_PARTS (1U << 20)

struct sampleblk_part {
	__u64 sequence; /* of a write, discard or write-zeroes in the journal; of another entry, or none: EINVAL */
	/*
	 * Of its sectors so many, from that one of its own on: whole logical blocks, and all of a write that was atomic
	 * (EINVAL). Both 0: all.
	 */
	__u64 first;
	__u64 sectors;
};

struct sampleblk_state {
	__u32 index;
	__u32 flags; /* SAMPLEBLK_STATE_*, with a target only */
	__u32 snapshot;
	__u32 target; /* a device; 0: the state becomes a snapshot */
	__u32 id; /* out, without a target: of the snapshot that was made */
	__u32 reserved0;
	__u64 nr_parts;
	__u64 parts; /* pointer to struct sampleblk_part */
	__u64 reserved[4];
};

#define SAMPLEBLK_IOC_MAGIC 0xBD

#define SAMPLEBLK_IOC_ADD _IOWR(SAMPLEBLK_IOC_MAGIC, 0x01, struct sampleblk_config)
#define SAMPLEBLK_IOC_REMOVE _IOW(SAMPLEBLK_IOC_MAGIC, 0x02, struct sampleblk_remove)
#define SAMPLEBLK_IOC_LIST _IOR(SAMPLEBLK_IOC_MAGIC, 0x03, struct sampleblk_list)
#define SAMPLEBLK_IOC_INFO _IOWR(SAMPLEBLK_IOC_MAGIC, 0x04, struct sampleblk_info)
#define SAMPLEBLK_IOC_COUNTERS _IOWR(SAMPLEBLK_IOC_MAGIC, 0x05, struct sampleblk_counters)
#define SAMPLEBLK_IOC_HISTOGRAM _IOWR(SAMPLEBLK_IOC_MAGIC, 0x06, struct sampleblk_histogram)
#define SAMPLEBLK_IOC_RESET _IOW(SAMPLEBLK_IOC_MAGIC, 0x07, struct sampleblk_reset)
#define SAMPLEBLK_IOC_TUNE _IOWR(SAMPLEBLK_IOC_MAGIC, 0x08, struct sampleblk_tune)
#define SAMPLEBLK_IOC_TIMING _IOW(SAMPLEBLK_IOC_MAGIC, 0x09, struct sampleblk_timing)
#define SAMPLEBLK_IOC_LIMITS _IOW(SAMPLEBLK_IOC_MAGIC, 0x0a, struct sampleblk_limits)
#define SAMPLEBLK_IOC_SET_FAULTS _IOW(SAMPLEBLK_IOC_MAGIC, 0x0b, struct sampleblk_faults)
#define SAMPLEBLK_IOC_GET_FAULTS _IOWR(SAMPLEBLK_IOC_MAGIC, 0x0c, struct sampleblk_faults)
#define SAMPLEBLK_IOC_POWER _IOWR(SAMPLEBLK_IOC_MAGIC, 0x0d, struct sampleblk_power)
#define SAMPLEBLK_IOC_VOLATILE _IOWR(SAMPLEBLK_IOC_MAGIC, 0x0e, struct sampleblk_volatile_list)
#define SAMPLEBLK_IOC_JOURNAL _IOWR(SAMPLEBLK_IOC_MAGIC, 0x0f, struct sampleblk_journal)
#define SAMPLEBLK_IOC_MARK _IOWR(SAMPLEBLK_IOC_MAGIC, 0x10, struct sampleblk_mark)
#define SAMPLEBLK_IOC_SEEK _IOWR(SAMPLEBLK_IOC_MAGIC, 0x11, struct sampleblk_seek)
#define SAMPLEBLK_IOC_SNAPSHOT _IOWR(SAMPLEBLK_IOC_MAGIC, 0x12, struct sampleblk_snapshot)
#define SAMPLEBLK_IOC_GET_TIMING _IOWR(SAMPLEBLK_IOC_MAGIC, 0x13, struct sampleblk_timing)
#define SAMPLEBLK_IOC_GET_LIMITS _IOWR(SAMPLEBLK_IOC_MAGIC, 0x14, struct sampleblk_limits)
#define SAMPLEBLK_IOC_RESIZE _IOW(SAMPLEBLK_IOC_MAGIC, 0x15, struct sampleblk_resize)
#define SAMPLEBLK_IOC_STATE _IOWR(SAMPLEBLK_IOC_MAGIC, 0x16, struct sampleblk_state)

#endif
