/* SPDX-License-Identifier: GPL-2.0-only */
/* What a device consists of. */
#ifndef SBLK_DEVICE_H
#define SBLK_DEVICE_H

#include <linux/bitops.h>
#include <linux/blk-mq.h>
#include <linux/kref.h>
#include <linux/llist.h>
#include <linux/mutex.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "block/stats.h"
#include "core/fault.h"
#include "core/integrity.h"
#include "core/medium.h"
#include "core/timing.h"
#include "core/zones.h"

/* Why requests leave the plain path, in which nothing but the copy happens: bits of sblk_device.slow_path. */
enum sblk_slow {
	SBLK_SLOW_LOG, /* cache, journal or sector-atomic */
	SBLK_SLOW_POWER, /* it is cut */
	SBLK_SLOW_FAULTS,
	SBLK_SLOW_TIMING,
	SBLK_SLOW_COMPLETION,
	SBLK_SLOW_HISTOGRAMS,
	SBLK_SLOW_READ_ONLY,
	SBLK_SLOW_ZONED, /* its zones have to know of everything */
	SBLK_SLOW_INTEGRITY, /* data and what is said of it go together */
	SBLK_SLOW_REFUSE, /* everything fails: the page cache is being emptied after the store was replaced */
	SBLK_SLOW_CLOSING, /* everything fails: the device is being removed */
};

/* A hardware queue. It outlives live changes of their number: there is one for each that a device may ever have. */
struct sblk_queue {
	struct sblk_device *dev;
	unsigned int index;
	struct sblk_stats __percpu *stats;
	struct sblk_histograms __percpu *histograms; /* or NULL, while nobody asked for them */
	struct llist_head done; /* executed, but more were to come */
	spinlock_t lock; /* also from interrupts; guards what follows */
	struct list_head waiting; /* executed, but not to be answered yet; or never */
};

struct sblk_snapshot {
	struct list_head list;
	u32 id;
	struct sblk_store *store; /* which nobody writes to any more */
};

struct sblk_device {
	struct kref kref; /* one for the registry, one for each opener and for each call that looks at it */
	void (*release)(struct kref *kref); /* in a process */
	struct rcu_head rcu;
	struct sampleblk_config config;
	struct sblk_medium medium;
	struct sblk_zones *zones; /* or NULL */
	struct sblk_integrity integrity;
	struct gendisk *disk;
	struct blk_mq_tag_set tag_set;
	bool bio_mode;
	bool closing; /* it is being removed: nothing may wait any more */
	bool draining; /* nothing may wait for long, but all goes on */
	unsigned long slow_path; /* bits of enum sblk_slow */

	unsigned int nr_queues; /* of `queues` */
	struct sblk_queue *queues;

	struct sblk_faults __rcu *faults;
	struct sblk_latency __rcu *latency[SAMPLEBLK_OPS];
	struct sblk_throttle __rcu *throttle;

	/* Commands that a process has to go on with: most for want of memory. */
	struct llist_head deferred;
	struct work_struct deferred_work;
	struct mutex worker_lock; /* held while it writes, which may sleep */

	/* Bios that did not end in the submitting call; a queue's freeze does not wait for them. */
	atomic_t bios;
	wait_queue_head_t bios_wait;

	struct mutex control; /* one change at a time; guards what follows */
	struct sblk_cache cache;
	struct sblk_journal journal;
	struct sblk_store *journal_store; /* the store as the journal knows it, while writes go to a layer on top; or NULL */
	struct list_head snapshots;
	u32 nr_snapshots;
	u32 next_snapshot;
	u64 faults_generation;

	/*
	 * The journal comes and goes under it and `control`. Mapping the journal takes it alone: the caller's mmap_lock is
	 * held then, which `control` comes before, as calls copy from and to user space under that. It is also taken with the
	 * queue frozen, so that nothing under it may wait for I/O.
	 */
	struct mutex map_lock;
};

/* The driver's own, so that unloading can wait for it. */
extern struct workqueue_struct *sblk_wq;

/* Gives a reference back. May sleep. */
static inline void sblk_device_put(struct sblk_device *dev)
{
	kref_put(&dev->kref, dev->release);
}

#endif
