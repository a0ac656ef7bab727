/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What differs between kernels, in one place. SBLK_HAVE_* come from the probes (generated/config.h): distributions
 * backport, so a version number says little.
 */
#ifndef SBLK_COMPAT_H
#define SBLK_COMPAT_H

#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/module.h>

/* What we ask of a queue, before it is said in a kernel's own words. */
struct sblk_limits {
	unsigned int logical_block;
	unsigned int physical_block;
	unsigned int max_discard_sectors; /* 0: no discard */
	unsigned int max_write_zeroes_sectors;
	bool cache;
	bool fua;
	bool rotational;
};

#ifdef SBLK_HAVE_LIMITS_FEATURES
static inline void sblk_fill_limits(struct queue_limits *lim, const struct sblk_limits *want)
{
	lim->logical_block_size = want->logical_block;
	lim->physical_block_size = want->physical_block;
	lim->io_min = want->physical_block;
	lim->discard_granularity = want->max_discard_sectors ? PAGE_SIZE : 0;
	lim->max_hw_discard_sectors = want->max_discard_sectors;
	lim->max_write_zeroes_sectors = want->max_write_zeroes_sectors;
	lim->features &= ~(BLK_FEAT_WRITE_CACHE | BLK_FEAT_FUA | BLK_FEAT_ROTATIONAL);
	if (want->cache)
		lim->features |= BLK_FEAT_WRITE_CACHE;
	if (want->cache && want->fua)
		lim->features |= BLK_FEAT_FUA;
	if (want->rotational)
		lim->features |= BLK_FEAT_ROTATIONAL;
}
#else
static inline void sblk_set_limits(struct request_queue *q, const struct sblk_limits *want)
{
	blk_queue_logical_block_size(q, want->logical_block);
	blk_queue_physical_block_size(q, want->physical_block);
	blk_queue_io_min(q, want->physical_block);
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
	sblk_set_limits(disk->queue, want);
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

#endif
