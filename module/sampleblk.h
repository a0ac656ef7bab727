/* SPDX-License-Identifier: GPL-2.0-only */
/* What the driver's files know of each other. */
#ifndef SBLK_SAMPLEBLK_H
#define SBLK_SAMPLEBLK_H

#include <linux/blk-mq.h>
#include <linux/hrtimer.h>
#include <linux/jump_label.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/llist.h>
#include <linux/mutex.h>
#include <linux/sampleblk.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "fault.h"
#include "media.h"
#include "stats.h"
#include "timing.h"

struct sblk_device;

/* A hardware queue. It outlives live changes of their number: there is one for each that a device may ever have. */
struct sblk_queue {
	struct sblk_device *dev;
	unsigned int index;
	struct sblk_stats __percpu *stats;
	struct sblk_histograms __percpu *histograms; /* or NULL, while nobody asked for them */
	struct llist_head done; /* executed, but more were to come */
	spinlock_t poll_lock;
	struct list_head poll_list; /* executed, to be found by polling */
};

/* What is to be done; of a request or of a bio, to which a request's bios are chained. */
struct sblk_io {
	enum sblk_op op;
	bool fua;
	u64 pos;
	u64 len;
	struct bio *bio;
};

/* Something on its way: it lies behind each struct request, and is made for a bio that cannot end at once. */
struct sblk_cmd {
	struct sblk_queue *queue;
	struct request *rq; /* or NULL: then a bio's */
	struct sblk_io io;
	u64 start_ns; /* 0 unless somebody wants to know */
	u64 due_ns; /* polled queues: when it is completed */
	u64 entry; /* in the journal */
	u32 power_epoch; /* at submission: I/O that a power cut came upon fails */
	u32 action; /* SAMPLEBLK_FAULT_*, or SAMPLEBLK_FAULTS for none; what follows is its */
	u64 arg0;
	u64 arg1;
	u64 random;
	blk_status_t status;
	bool is_hung;
	struct hrtimer timer;
	struct llist_node deferred;
	struct list_head list; /* of the hung, or of a polled queue */
};

/* Why a device's requests leave the plain path; bits of sblk_device.extras. */
#define SBLK_EXTRA_MEDIA (1U << 0) /* cache, journal, power */
#define SBLK_EXTRA_FAULTS (1U << 1)
#define SBLK_EXTRA_TIMING (1U << 2)
#define SBLK_EXTRA_COMPLETION (1U << 3)
#define SBLK_EXTRA_HISTOGRAMS (1U << 4)

struct sblk_snapshot {
	struct list_head list;
	u32 id;
	struct sblk_store *store; /* which nobody writes to any more */
};

struct sblk_device {
	struct kref kref; /* one for the registry, one for each opener and for each call that looks at it */
	struct sampleblk_config config;
	struct sblk_media media;
	struct gendisk *disk;
	struct blk_mq_tag_set tag_set;
	bool bio_mode;
	u32 extras; /* SBLK_EXTRA_* */
	u32 power_epoch; /* counts power cuts */

	unsigned int nr_queues; /* of `queues` */
	struct sblk_queue *queues;

	struct sblk_faults __rcu *faults;
	struct sblk_latency __rcu *latency[SAMPLEBLK_OPS];
	struct sblk_throttle __rcu *throttle;

	/* Requests that could not get memory without sleeping. */
	struct llist_head deferred;
	struct work_struct deferred_work;
	struct work_struct free_work;
	struct rcu_head rcu;

	spinlock_t hung_lock;
	struct list_head hung; /* requests that a rule lets never complete */

	/* Bios that did not end in the submitting call; a queue's freeze does not wait for them. */
	atomic_t bios;
	wait_queue_head_t bios_wait;

	struct mutex control; /* one change at a time; guards what follows */
	struct sblk_cache cache;
	struct sblk_journal journal;
	struct sblk_store *parked; /* the store as the journal knows it, while writes go to a layer on top */
	struct list_head snapshots;
	u32 nr_snapshots;
	u32 next_snapshot;

	/*
	 * The journal comes and goes under it and `control`. Mapping the journal takes it alone: the caller's mmap_lock is
	 * held then, which `control` comes before, as calls copy from and to user space under that.
	 */
	struct mutex map_lock;
	struct mutex open_lock; /* guards what follows */
	unsigned int openers;
	bool removing;
};

/* On while any device has extras: the plain path then costs one patched jump. */
DECLARE_STATIC_KEY_FALSE(sblk_extras_key);

/* The driver's own, so that unloading can wait for it. */
extern struct workqueue_struct *sblk_wq;

/* device.c: all of these take the registry's lock themselves */
int sblk_device_add(struct sampleblk_config *config, struct sblk_store *base);
int sblk_device_remove(u32 index, bool force);
void sblk_device_map(struct sampleblk_list *list);
/* A reference, or NULL. */
struct sblk_device *sblk_device_get(u32 index);
void sblk_device_put(struct sblk_device *dev);
/* A reference with dev->control held and the disk there, or NULL. */
struct sblk_device *sblk_device_lock(u32 index);
void sblk_device_unlock(struct sblk_device *dev);
void sblk_device_info(struct sblk_device *dev, struct sampleblk_info *info);
int sblk_device_counters(struct sblk_device *dev, struct sampleblk_counters *counters);
bool sblk_device_is_open(struct sblk_device *dev);
int sblk_device_init(void);
void sblk_device_exit(void);

/* tune.c: what changes while I/O runs; with dev->control held */
void sblk_set_extra(struct sblk_device *dev, u32 bit, bool on);
/* Between these no request is on its way. */
unsigned int sblk_device_freeze(struct sblk_device *dev);
void sblk_device_unfreeze(struct sblk_device *dev, unsigned int flags);
int sblk_tune(struct sblk_device *dev, struct sampleblk_tune *tune);
int sblk_histogram(struct sblk_device *dev, struct sampleblk_histogram *histogram);
void sblk_reset(struct sblk_device *dev);
int sblk_set_timing(struct sblk_device *dev, const struct sampleblk_timing *timing);
int sblk_get_timing(struct sblk_device *dev, struct sampleblk_timing *timing);
struct sampleblk_limits sblk_get_limits(struct sblk_device *dev);
int sblk_set_limits(struct sblk_device *dev, const struct sampleblk_limits *limits);
int sblk_set_faults(struct sblk_device *dev, const struct sampleblk_faults *faults);
int sblk_get_faults(struct sblk_device *dev, struct sampleblk_faults *faults);
void sblk_tune_destroy(struct sblk_device *dev);

/* state.c: cache, power, journal, snapshots; with dev->control held */
int sblk_state_init(struct sblk_device *dev, struct sblk_store *base);
void sblk_state_destroy(struct sblk_device *dev);
int sblk_power(struct sblk_device *dev, struct sampleblk_power *power);
int sblk_volatile_list(struct sblk_device *dev, struct sampleblk_volatile_list *list);
int sblk_journal_control(struct sblk_device *dev, struct sampleblk_journal *journal);
int sblk_journal_do_mark(struct sblk_device *dev, struct sampleblk_mark *mark);
int sblk_journal_do_seek(struct sblk_device *dev, struct sampleblk_seek *seek);
int sblk_snapshot(struct sblk_device *dev, struct sampleblk_snapshot *snapshot);
/* A reference to what the snapshot holds, or NULL. */
struct sblk_store *sblk_snapshot_store(struct sblk_device *dev, u32 id);

/* command.c: the life of a command */
void sblk_cmd_init(struct sblk_cmd *cmd);
/* Ends a bio's with cmd->status from a softirq; a request has blk_mq_complete_request(). */
void sblk_cmd_softirq(struct sblk_cmd *cmd);
/* Everything from faults to completion; cmd->queue, rq and io are set. */
void sblk_cmd_run(struct sblk_cmd *cmd);
/* To the worker, which may wait for memory. */
void sblk_cmd_defer(struct sblk_cmd *cmd);
void sblk_cmd_worker(struct work_struct *work);
/* Counts it, tells of it and gives it back. */
void sblk_cmd_end(struct sblk_cmd *cmd, blk_status_t status);
/* The same but for giving it back; returns what it ends with. */
blk_status_t sblk_cmd_account(struct sblk_cmd *cmd, blk_status_t status);
/* Fails what hangs. */
void sblk_cmd_release_hung(struct sblk_device *dev, blk_status_t status);
bool sblk_cmd_unhang(struct sblk_cmd *cmd);

/* io.c: what an operation means for the medium */
/* Plain: no cache, journal or fault. BLK_STS_RESOURCE, from an atomic `gfp` only: again where it may sleep. */
blk_status_t sblk_io_plain(struct sblk_device *dev, const struct sblk_io *io, gfp_t gfp);
/* With all of them. */
blk_status_t sblk_io_full(struct sblk_cmd *cmd, gfp_t gfp);
/* The flush that a bio with data carries before it. -EIO without power. */
int sblk_io_preflush(struct sblk_device *dev);

/* The kernel's operation as ours, whatever type this kernel gives it. */
#define sblk_op_of(op) \
	((op) == REQ_OP_READ	     ? SBLK_READ : \
	 (op) == REQ_OP_WRITE	     ? SBLK_WRITE : \
	 (op) == REQ_OP_DISCARD	     ? SBLK_DISCARD : \
	 (op) == REQ_OP_WRITE_ZEROES ? SBLK_WRITE_ZEROES : \
	 (op) == REQ_OP_FLUSH	     ? SBLK_FLUSH : \
				       SBLK_OPS)

/* queue.c and bio.c: the two faces */
extern const struct blk_mq_ops sblk_mq_ops;
void sblk_request_complete(struct request *rq);
extern const struct block_device_operations sblk_bio_fops;
extern const struct block_device_operations sblk_mq_fops;
int sblk_bio_init(void);
void sblk_bio_exit(void);
void sblk_bio_end(struct sblk_cmd *cmd, blk_status_t status);
int sblk_open(struct gendisk *disk);
void sblk_release(struct gendisk *disk);

/* sysfs.c */
extern const struct attribute_group *sblk_disk_groups[];

/* control.c */
int sblk_control_init(void);
void sblk_control_exit(void);

#define SBLK_TRACE_SEEK 100

/* Waits for memory as long as that makes sense: GFP_NOIO alone would wait for ever, as it gets no OOM killer. */
#define SBLK_GFP_WAIT (GFP_NOIO | __GFP_RETRY_MAYFAIL | __GFP_NOWARN)
#define SBLK_GFP_ATOMIC (GFP_NOWAIT | __GFP_NOWARN)

#endif
