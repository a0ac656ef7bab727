/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What differs between kernels, in one place. SBLK_HAVE_* come from the probes (generated/config.h): distributions
 * backport, so a version number says little.
 */
#ifndef SBLK_COMPAT_H
#define SBLK_COMPAT_H

#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/hrtimer.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/sizes.h>

/* What we ask of a queue, before it is said in a kernel's own words. */
struct sblk_limits {
	unsigned int logical_block;
	unsigned int physical_block;
	unsigned int io_min;
	unsigned int io_opt;
	unsigned int max_sectors;
	unsigned int max_segments;
	unsigned int max_discard_sectors; /* 0: no discard */
	unsigned int max_write_zeroes_sectors;
	bool cache;
	bool fua;
	bool rotational;
	bool nowait;
	bool poll;
};

#ifdef SBLK_HAVE_LIMITS_FEATURES
static inline void sblk_fill_limits(struct queue_limits *lim, const struct sblk_limits *want)
{
	lim->logical_block_size = want->logical_block;
	lim->physical_block_size = want->physical_block;
	lim->io_min = want->io_min;
	lim->io_opt = want->io_opt;
	lim->max_hw_sectors = want->max_sectors;
	lim->max_user_sectors = want->max_sectors;
	lim->max_segments = want->max_segments;
	lim->max_segment_size = UINT_MAX;
	lim->discard_granularity = want->max_discard_sectors ? PAGE_SIZE : 0;
	lim->max_hw_discard_sectors = want->max_discard_sectors;
	lim->max_write_zeroes_sectors = want->max_write_zeroes_sectors;
	if (want->cache)
		lim->features |= BLK_FEAT_WRITE_CACHE;
	if (want->cache && want->fua)
		lim->features |= BLK_FEAT_FUA;
	if (want->rotational)
		lim->features |= BLK_FEAT_ROTATIONAL;
	if (want->nowait)
		lim->features |= BLK_FEAT_NOWAIT;
	if (want->poll)
		lim->features |= BLK_FEAT_POLL;
}
#else
static inline void sblk_set_queue_limits(struct request_queue *q, const struct sblk_limits *want)
{
	blk_queue_logical_block_size(q, want->logical_block);
	blk_queue_physical_block_size(q, want->physical_block);
	blk_queue_io_min(q, want->io_min);
	blk_queue_io_opt(q, want->io_opt);
	blk_queue_max_hw_sectors(q, want->max_sectors);
	blk_queue_max_segments(q, want->max_segments);
	blk_queue_max_segment_size(q, UINT_MAX);
	q->limits.discard_granularity = want->max_discard_sectors ? PAGE_SIZE : 0;
	blk_queue_max_discard_sectors(q, want->max_discard_sectors);
#ifdef SBLK_HAVE_QUEUE_FLAG_DISCARD
	if (want->max_discard_sectors)
		blk_queue_flag_set(QUEUE_FLAG_DISCARD, q);
	else
		blk_queue_flag_clear(QUEUE_FLAG_DISCARD, q);
#endif
	blk_queue_max_write_zeroes_sectors(q, want->max_write_zeroes_sectors);
	blk_queue_write_cache(q, want->cache, want->cache && want->fua);
	if (want->rotational) {
		blk_queue_flag_clear(QUEUE_FLAG_NONROT, q);
	} else {
		blk_queue_flag_set(QUEUE_FLAG_NONROT, q);
		blk_queue_flag_clear(QUEUE_FLAG_ADD_RANDOM, q);
	}
	if (want->nowait)
		blk_queue_flag_set(QUEUE_FLAG_NOWAIT, q);
}
#endif

/* A disk with its queue on `set`, or an ERR_PTR. */
static inline struct gendisk *sblk_alloc_disk(struct blk_mq_tag_set *set, const struct sblk_limits *want, void *data)
{
	struct gendisk *disk;
#if defined(SBLK_HAVE_ALLOC_DISK_LIMITS) && defined(SBLK_HAVE_LIMITS_FEATURES)
	struct queue_limits lim = {};

	sblk_fill_limits(&lim, want);
	disk = blk_mq_alloc_disk(set, &lim, data);
	return disk;
#else
#if defined(SBLK_HAVE_ALLOC_DISK_LIMITS)
	disk = blk_mq_alloc_disk(set, NULL, data);
	if (IS_ERR(disk))
		return disk;
#elif defined(SBLK_HAVE_ALLOC_DISK)
	disk = blk_mq_alloc_disk(set, data);
	if (IS_ERR(disk))
		return disk;
#else
	struct request_queue *q = blk_mq_init_queue_data(set, data);

	if (IS_ERR(q))
		return ERR_CAST(q);
	disk = alloc_disk(1);
	if (!disk) {
		blk_cleanup_queue(q);
		return ERR_PTR(-ENOMEM);
	}
	disk->queue = q;
#endif
	sblk_set_queue_limits(disk->queue, want);
	return disk;
#endif
}

/* The same for a disk that takes bios. */
static inline struct gendisk *sblk_alloc_bio_disk(const struct sblk_limits *want, int node)
{
#if defined(SBLK_HAVE_ALLOC_DISK_LIMITS) && defined(SBLK_HAVE_LIMITS_FEATURES)
	struct queue_limits lim = {};

	sblk_fill_limits(&lim, want);
	return blk_alloc_disk(&lim, node);
#else
	struct gendisk *disk;

#if defined(SBLK_HAVE_ALLOC_DISK_LIMITS)
	disk = blk_alloc_disk(NULL, node);
	if (IS_ERR(disk))
		return disk;
#elif defined(SBLK_HAVE_ALLOC_DISK)
	disk = blk_alloc_disk(node);
	if (!disk)
		return ERR_PTR(-ENOMEM);
#else
	disk = alloc_disk_node(1, node);
	if (!disk)
		return ERR_PTR(-ENOMEM);
	disk->queue = blk_alloc_queue(node);
	if (!disk->queue) {
		put_disk(disk);
		return ERR_PTR(-ENOMEM);
	}
#endif
	sblk_set_queue_limits(disk->queue, want);
	return disk;
#endif
}

/* Undoes sblk_alloc_disk(), before add_disk() or after del_gendisk(). */
static inline void sblk_put_disk(struct gendisk *disk)
{
#if defined(SBLK_HAVE_CLEANUP_DISK)
	blk_cleanup_disk(disk);
#else
#if defined(SBLK_HAVE_CLEANUP_QUEUE)
	blk_cleanup_queue(disk->queue);
#endif
	put_disk(disk);
#endif
}

static inline int __must_check sblk_add_disk(struct device *parent, struct gendisk *disk,
					     const struct attribute_group **groups)
{
#ifdef SBLK_HAVE_ADD_DISK_INT
	return device_add_disk(parent, disk, groups);
#else
	device_add_disk(parent, disk, groups);
	return 0;
#endif
}

#ifdef SBLK_HAVE_GENHD_NO_PART
#define SBLK_GENHD_NO_PART GENHD_FL_NO_PART
#else
#define SBLK_GENHD_NO_PART GENHD_FL_NO_PART_SCAN
#endif

#ifdef SBLK_HAVE_SHOULD_MERGE
#define SBLK_F_SHOULD_MERGE BLK_MQ_F_SHOULD_MERGE
#else
#define SBLK_F_SHOULD_MERGE 0
#endif

#ifdef SBLK_HAVE_NO_SCHED_BY_DEFAULT
#define SBLK_F_NO_SCHED BLK_MQ_F_NO_SCHED_BY_DEFAULT
#else
#define SBLK_F_NO_SCHED 0
#endif

/* ->open() and ->release() are written once, for a disk. */
#ifdef SBLK_HAVE_OPEN_GENDISK
#define SBLK_DEFINE_OPEN(name, fn) \
	static int name(struct gendisk *disk, blk_mode_t mode) \
	{ \
		return fn(disk); \
	}
#else
#define SBLK_DEFINE_OPEN(name, fn) \
	static int name(struct block_device *bdev, fmode_t mode) \
	{ \
		return fn(bdev->bd_disk); \
	}
#endif
#ifdef SBLK_HAVE_OPEN_GENDISK
#define SBLK_DEFINE_RELEASE(name, fn) \
	static void name(struct gendisk *disk) \
	{ \
		fn(disk); \
	}
#else
#define SBLK_DEFINE_RELEASE(name, fn) \
	static void name(struct gendisk *disk, fmode_t mode) \
	{ \
		fn(disk); \
	}
#endif

#ifdef SBLK_HAVE_LARGE_BLOCK
#define SBLK_MAX_LOGICAL_BLOCK SZ_64K
#else
#define SBLK_MAX_LOGICAL_BLOCK 4096
#endif

#ifdef SBLK_HAVE_FREEZE_MEMFLAGS
static inline unsigned int sblk_freeze_queue(struct request_queue *q)
{
	return blk_mq_freeze_queue(q);
}

static inline void sblk_unfreeze_queue(struct request_queue *q, unsigned int flags)
{
	blk_mq_unfreeze_queue(q, flags);
}
#else
static inline unsigned int sblk_freeze_queue(struct request_queue *q)
{
	blk_mq_freeze_queue(q);
	return 0;
}

static inline void sblk_unfreeze_queue(struct request_queue *q, unsigned int flags)
{
	blk_mq_unfreeze_queue(q);
}
#endif

static inline void sblk_hrtimer_setup(struct hrtimer *timer, enum hrtimer_restart (*function)(struct hrtimer *timer),
				      enum hrtimer_mode mode)
{
#ifdef SBLK_HAVE_HRTIMER_SETUP
	hrtimer_setup(timer, function, CLOCK_MONOTONIC, mode);
#else
	hrtimer_init(timer, CLOCK_MONOTONIC, mode);
	timer->function = function;
#endif
}

/* Completions gathered to be given back together. */
#ifdef SBLK_HAVE_END_REQUEST_BATCH
static inline bool sblk_add_to_batch(struct request *rq, struct io_comp_batch *batch)
{
	/* No error: 0 and false are the same in either form. */
	return blk_mq_add_to_batch(rq, batch, 0, blk_mq_end_request_batch);
}

static inline void sblk_end_batch(struct io_comp_batch *batch)
{
	if (batch->complete)
		batch->complete(batch);
}
#else
struct io_comp_batch {
};
#define DEFINE_IO_COMP_BATCH(name) struct io_comp_batch name = {}

static inline bool sblk_add_to_batch(struct request *rq, struct io_comp_batch *batch)
{
	return false;
}

static inline void sblk_end_batch(struct io_comp_batch *batch)
{
}
#endif

#if defined(SBLK_HAVE_QUEUE_RQS_LIST)
#define SBLK_HAVE_QUEUE_RQS 1
typedef struct rq_list sblk_rq_list;
#elif defined(SBLK_HAVE_QUEUE_RQS_POINTER)
#define SBLK_HAVE_QUEUE_RQS 1
typedef struct request *sblk_rq_list;
#endif

#ifdef SBLK_HAVE_POLL_BATCH
#define SBLK_DEFINE_POLL(name, batch) static int name(struct blk_mq_hw_ctx *hctx, struct io_comp_batch *batch)
#else
#define SBLK_DEFINE_POLL(name, batch) \
	static int name##_batch(struct blk_mq_hw_ctx *hctx, struct io_comp_batch *batch); \
	static int name(struct blk_mq_hw_ctx *hctx) \
	{ \
		return name##_batch(hctx, NULL); \
	} \
	static int name##_batch(struct blk_mq_hw_ctx *hctx, struct io_comp_batch *batch)
#endif

#ifdef SBLK_HAVE_TIMEOUT_ONE
#define SBLK_DEFINE_TIMEOUT(name) static enum blk_eh_timer_return name(struct request *rq)
#else
#define SBLK_DEFINE_TIMEOUT(name) static enum blk_eh_timer_return name(struct request *rq, bool reserved)
#endif

#ifdef SBLK_HAVE_MAP_QUEUES_VOID
#define SBLK_DEFINE_MAP_QUEUES(name) static void name(struct blk_mq_tag_set *set)
#define SBLK_MAP_QUEUES_RETURN
#else
#define SBLK_DEFINE_MAP_QUEUES(name) static int name(struct blk_mq_tag_set *set)
#define SBLK_MAP_QUEUES_RETURN return 0
#endif

#ifdef SBLK_HAVE_INIT_REQUEST_INT
typedef int sblk_node_t;
#else
typedef unsigned int sblk_node_t;
#endif

#ifdef SBLK_HAVE_SUBMIT_BIO_VOID
#define SBLK_DEFINE_SUBMIT_BIO(name, fn) \
	static void name(struct bio *bio) \
	{ \
		fn(bio); \
	}
#else
#define SBLK_DEFINE_SUBMIT_BIO(name, fn) \
	static blk_qc_t name(struct bio *bio) \
	{ \
		fn(bio); \
		return BLK_QC_T_NONE; \
	}
#endif

static inline struct gendisk *sblk_bio_disk(struct bio *bio)
{
#ifdef SBLK_HAVE_BIO_BDEV
	return bio->bi_bdev->bd_disk;
#else
	return bio->bi_disk;
#endif
}

/* Forgets what the page cache holds of the whole disk, written or not. */
static inline void sblk_invalidate_disk(struct gendisk *disk)
{
#if defined(SBLK_HAVE_BD_MAPPING)
	truncate_inode_pages(disk->part0->bd_mapping, 0);
#elif defined(SBLK_HAVE_DISK_PART0_BDEV)
	truncate_inode_pages(disk->part0->bd_inode->i_mapping, 0);
#else
	struct block_device *bdev = bdget_disk(disk, 0);

	if (bdev) {
		truncate_inode_pages(bdev->bd_inode->i_mapping, 0);
		bdput(bdev);
	}
#endif
}

/* A mapping that is not writable and never will be. */
static inline void sblk_vm_read_only(struct vm_area_struct *vma)
{
#ifdef SBLK_HAVE_VM_FLAGS_CLEAR
	vm_flags_clear(vma, VM_MAYWRITE);
#else
	vma->vm_flags &= ~VM_MAYWRITE;
#endif
}

#endif
