/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What differs between kernels, in one place. SBLK_HAVE_* come from the probes (generated/config.h): distributions
 * backport, so a version number says little.
 */
#ifndef SBLK_COMPAT_H
#define SBLK_COMPAT_H

#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/highmem.h>
#include <linux/hrtimer.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/sizes.h>

#ifndef SBLK_HAVE_INTEGRITY_IN_BLKDEV
#include <linux/blk-integrity.h>
#endif

/* What we ask of a queue, before it is said in a kernel's own words. */
struct sblk_limits {
	unsigned int logical_block;
	unsigned int physical_block;
	unsigned int io_min;
	unsigned int io_opt;
	unsigned int max_sectors;
	unsigned int max_segments;
	unsigned int max_discard_sectors; /* 0: no discard */
	unsigned int discard_granularity; /* bytes, as what follows */
	unsigned int discard_alignment;
	unsigned int max_write_zeroes_sectors;
	unsigned int atomic_unit_min; /* bytes, as what follows */
	unsigned int atomic_unit_max; /* 0: no atomic writes */
	unsigned int atomic_boundary;
	unsigned int zone_sectors; /* 0: not zoned */
	unsigned int max_open_zones;
	unsigned int max_active_zones;
	unsigned int integrity_interval; /* bytes; 0: no protection information */
	bool cache;
	bool fua;
	bool rotational;
	bool nowait;
	bool poll;
	bool io_stat; /* blk-mq sets it by itself */
};

#if defined(CONFIG_BLK_DEV_ZONED) && (defined(SBLK_HAVE_LIMITS_FEATURES) || defined(SBLK_HAVE_ZONED_SETTERS))
#define SBLK_ZONED 1
#endif

/* Protection information is a part of the limits from 6.11 on. Before, a driver has a profile of functions for it. */
#ifdef CONFIG_BLK_DEV_INTEGRITY
#define SBLK_INTEGRITY 1
#ifndef SBLK_HAVE_INTEGRITY_LIMITS
#define SBLK_INTEGRITY_PROFILE 1
#endif
#endif

#ifdef SBLK_HAVE_ATOMIC_LIMITS
#define SBLK_REQ_ATOMIC REQ_ATOMIC
#else
#define SBLK_REQ_ATOMIC 0
#endif

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
	lim->discard_granularity = want->discard_granularity;
	lim->discard_alignment = want->discard_alignment;
	lim->max_hw_discard_sectors = want->max_discard_sectors;
	lim->max_write_zeroes_sectors = want->max_write_zeroes_sectors;
#ifdef SBLK_HAVE_WZEROES_UNMAP
	/* Write-zeroes that need not keep their memory give it back. */
	lim->max_hw_wzeroes_unmap_sectors = want->max_write_zeroes_sectors;
#endif
#ifdef SBLK_HAVE_ATOMIC_LIMITS
	lim->atomic_write_hw_unit_min = want->atomic_unit_min;
	lim->atomic_write_hw_unit_max = want->atomic_unit_max;
	lim->atomic_write_hw_max = want->atomic_unit_max;
	lim->atomic_write_hw_boundary = want->atomic_boundary;
#endif
#ifdef SBLK_ZONED
	if (want->zone_sectors) {
		lim->features |= BLK_FEAT_ZONED;
		lim->chunk_sectors = want->zone_sectors;
#ifdef SBLK_HAVE_HW_ZONE_APPEND
		lim->max_hw_zone_append_sectors = want->max_sectors;
#else
		lim->max_zone_append_sectors = min(want->max_sectors, want->zone_sectors);
#endif
		lim->max_open_zones = want->max_open_zones;
		lim->max_active_zones = want->max_active_zones;
	}
#endif
#if defined(SBLK_INTEGRITY) && !defined(SBLK_INTEGRITY_PROFILE)
	if (want->integrity_interval) {
		lim->integrity.csum_type = BLK_INTEGRITY_CSUM_CRC;
		lim->integrity.flags = BLK_INTEGRITY_REF_TAG | BLK_INTEGRITY_DEVICE_CAPABLE;
#ifdef SBLK_HAVE_INTEGRITY_METADATA_SIZE
		/* As struct sblk_tuple. */
		lim->integrity.metadata_size = 8;
		lim->integrity.pi_tuple_size = 8;
#else
		lim->integrity.tuple_size = 8;
#endif
		lim->integrity.tag_size = 2;
		lim->integrity.interval_exp = ilog2(want->integrity_interval);
		lim->max_integrity_segments = USHRT_MAX;
		/* Linux 6.12 gives wrong tags to a block that lies in two segments; 7.2 sets this by itself. */
		lim->dma_alignment = want->integrity_interval - 1;
	}
#endif
#ifdef SBLK_HAVE_FEAT_ATOMIC_WRITES
	if (want->atomic_unit_max)
		lim->features |= BLK_FEAT_ATOMIC_WRITES;
#endif
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
	if (want->io_stat)
		lim->features |= BLK_FEAT_IO_STAT;
}
#else
static inline void sblk_set_queue_limits(struct request_queue *q, const struct sblk_limits *want)
{
	blk_queue_logical_block_size(q, want->logical_block);
	blk_queue_physical_block_size(q, want->physical_block);
	blk_queue_io_min(q, want->io_min);
	blk_queue_io_opt(q, want->io_opt);
	blk_queue_max_hw_sectors(q, want->max_sectors);
	/* That has it at most 1280 KiB, for which later kernels have max_user_sectors. */
	q->limits.max_sectors = want->max_sectors;
	blk_queue_max_segments(q, want->max_segments);
	blk_queue_max_segment_size(q, UINT_MAX);
	q->limits.discard_granularity = want->discard_granularity;
	q->limits.discard_alignment = want->discard_alignment;
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
	if (want->io_stat)
		blk_queue_flag_set(QUEUE_FLAG_IO_STAT, q);
}
#endif

/*
 * How large an atomic write may be by what the kernel has made of the limits: less than was asked for where a request has too few
 * segments for the pieces that one may come in (blk_queue_max_guaranteed_bio()).
 */
static inline unsigned int sblk_atomic_unit_max(const struct request_queue *q)
{
#ifdef SBLK_HAVE_ATOMIC_LIMITS
	return q->limits.atomic_write_unit_max;
#else
	return 0;
#endif
}

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

#ifdef SBLK_ZONED
#ifdef SBLK_HAVE_REPORT_ZONES_ARGS
typedef struct blk_report_zones_args *sblk_report_args;
#define SBLK_DEFINE_REPORT_ZONES(name, fn) \
	static int name(struct gendisk *disk, sector_t sector, unsigned int nr, struct blk_report_zones_args *args) \
	{ \
		return fn(disk, sector, nr, args); \
	}
static inline int sblk_report_zone(struct gendisk *disk, struct blk_zone *zone, unsigned int index, sblk_report_args args)
{
	return disk_report_zone(disk, zone, index, args);
}
#else
typedef struct {
	report_zones_cb cb;
	void *data;
} sblk_report_args;
#define SBLK_DEFINE_REPORT_ZONES(name, fn) \
	static int name(struct gendisk *disk, sector_t sector, unsigned int nr, report_zones_cb cb, void *data) \
	{ \
		return fn(disk, sector, nr, (sblk_report_args){ cb, data }); \
	}
static inline int sblk_report_zone(struct gendisk *disk, struct blk_zone *zone, unsigned int index, sblk_report_args args)
{
	return args.cb(zone, index, args.data);
}
#endif

/* Makes a disk of a known capacity a zoned one; before it is added. */
static inline int sblk_set_zoned(struct gendisk *disk, const struct sblk_limits *want)
{
#ifdef SBLK_HAVE_LIMITS_FEATURES
	/* All else is in the limits. */
	return blk_revalidate_disk_zones(disk);
#else
	struct request_queue *q = disk->queue;

	blk_queue_chunk_sectors(q, want->zone_sectors);
#if defined(SBLK_HAVE_SET_ZONED_PLAIN)
	disk_set_zoned(disk);
#elif defined(SBLK_HAVE_DISK_SET_ZONED)
	disk_set_zoned(disk, BLK_ZONED_HM);
#else
	blk_queue_set_zoned(disk, BLK_ZONED_HM);
#endif
#ifdef SBLK_HAVE_DISK_SET_ZONED
	disk_set_max_open_zones(disk, want->max_open_zones);
	disk_set_max_active_zones(disk, want->max_active_zones);
#else
	blk_queue_max_open_zones(q, want->max_open_zones);
	blk_queue_max_active_zones(q, want->max_active_zones);
#endif
	blk_queue_max_zone_append_sectors(q, min(want->max_sectors, want->zone_sectors));
	blk_queue_flag_set(QUEUE_FLAG_ZONE_RESETALL, q);
	/* It is the scheduler that keeps the writes of a zone in order. */
	blk_queue_required_elevator_features(q, ELEVATOR_F_ZBD_SEQ_WRITE);
	return blk_revalidate_disk_zones(disk, NULL);
#endif
}
#endif

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

/* Open file systems and user space see the new size. */
static inline void sblk_set_capacity(struct gendisk *disk, sector_t sectors)
{
#ifdef SBLK_HAVE_SET_CAPACITY_AND_NOTIFY
	set_capacity_and_notify(disk, sectors);
#else
	set_capacity_revalidate_and_notify(disk, sectors, true);
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

/* Undoes blk_freeze_queue_start(). */
static inline void sblk_unfreeze_queue(struct request_queue *q)
{
#ifdef SBLK_HAVE_UNFREEZE_NOMEMRESTORE
	blk_mq_unfreeze_queue_nomemrestore(q);
#else
	blk_mq_unfreeze_queue(q);
#endif
}

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

#ifdef SBLK_HAVE_QUEUE_RQS
/*
 * Until 6.7 it is the driver that enters what comes by queue_rqs() into the table by which requests in flight are found:
 * without, they have no timeout, and iostat does not see them.
 */
static inline void sblk_start_batched(struct request *rq)
{
	rq->mq_hctx->tags->rqs[rq->tag] = rq;
	blk_mq_start_request(rq);
}
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

/* The part that is left of a bio after what is too large for the limits was submitted; NULL when it was ended. */
static inline struct bio *sblk_split_bio(struct bio *bio)
{
#ifdef SBLK_HAVE_SPLIT_TO_LIMITS
	return bio_split_to_limits(bio);
#else
	blk_queue_split(&bio);
	return bio;
#endif
}

/* A segment of at most a page, mapped in any context and while sleeping. */
#ifdef SBLK_HAVE_BVEC_KMAP_LOCAL
static inline void *sblk_bvec_map(struct bio_vec *bvec)
{
	return bvec_kmap_local(bvec);
}

static inline void sblk_bvec_unmap(void *data)
{
	kunmap_local(data);
}
#else
/* These kernels have no such mapping. */
#ifdef CONFIG_HIGHMEM
#error "sampleblk needs bvec_kmap_local() (Linux 5.15) on a kernel with highmem"
#endif
static inline void *sblk_bvec_map(struct bio_vec *bvec)
{
	return page_address(bvec->bv_page) + bvec->bv_offset;
}

static inline void sblk_bvec_unmap(void *data)
{
}
#endif

/* --- who has a disk open */

/* The block device that is the whole disk; a reference where those are counted. */
static inline struct block_device *sblk_whole_get(struct gendisk *disk)
{
#ifdef SBLK_HAVE_PART_TBL_XARRAY
	return disk->part0;
#else
	return bdget_disk(disk, 0);
#endif
}

static inline void sblk_whole_put(struct block_device *bdev)
{
#ifndef SBLK_HAVE_PART_TBL_XARRAY
	bdput(bdev);
#endif
}

/* Openers, partitions included; racy without the lock of opening. */
static inline unsigned int sblk_disk_openers(struct gendisk *disk)
{
#ifdef SBLK_HAVE_DISK_OPENERS
	return disk_openers(disk);
#else
	struct block_device *bdev = sblk_whole_get(disk);
	unsigned int openers = 0;

	if (bdev) {
		openers = READ_ONCE(bdev->bd_openers);
		sblk_whole_put(bdev);
	}
	return openers;
#endif
}

/* The lock under which disks and partitions are opened, closed and made. 0, -EINTR for a signal, or -ENOMEM. */
static inline int __must_check sblk_lock_open(struct gendisk *disk)
{
#ifdef SBLK_HAVE_OPEN_MUTEX
	return mutex_lock_interruptible(&disk->open_mutex);
#else
	struct block_device *bdev = sblk_whole_get(disk);
	int err;

	if (!bdev)
		return -ENOMEM;
	err = mutex_lock_interruptible(&bdev->bd_mutex);
	if (err)
		sblk_whole_put(bdev);
	return err;
#endif
}

/* False when somebody else has it. */
static inline bool __must_check sblk_trylock_open(struct gendisk *disk)
{
#ifdef SBLK_HAVE_OPEN_MUTEX
	return mutex_trylock(&disk->open_mutex);
#else
	struct block_device *bdev = sblk_whole_get(disk);

	if (!bdev)
		return false;
	if (mutex_trylock(&bdev->bd_mutex))
		return true;
	sblk_whole_put(bdev);
	return false;
#endif
}

static inline void sblk_unlock_open(struct gendisk *disk)
{
#ifdef SBLK_HAVE_OPEN_MUTEX
	mutex_unlock(&disk->open_mutex);
#else
	struct block_device *bdev = sblk_whole_get(disk);

	mutex_unlock(&bdev->bd_mutex);
	/* And what the lock has got. */
	sblk_whole_put(bdev);
	sblk_whole_put(bdev);
#endif
}

/* Claims the whole disk as opening it with O_EXCL would, without opening it. -EBUSY when a part of it is claimed. */
static inline int sblk_claim_disk(struct gendisk *disk, void *holder)
{
	struct block_device *bdev = sblk_whole_get(disk);
	int err;

	if (!bdev)
		return -ENOMEM;
#if defined(SBLK_HAVE_CLAIM_HOPS)
	err = bd_prepare_to_claim(bdev, holder, NULL);
#elif defined(SBLK_HAVE_CLAIM_WHOLE)
	err = bd_prepare_to_claim(bdev, bdev, holder);
#else
	err = bd_prepare_to_claim(bdev, holder);
#endif
	if (err)
		sblk_whole_put(bdev);
	return err;
}

static inline void sblk_unclaim_disk(struct gendisk *disk, void *holder)
{
	struct block_device *bdev = sblk_whole_get(disk);

#ifdef SBLK_HAVE_CLAIM_WHOLE
	bd_abort_claiming(bdev, bdev, holder);
#else
	bd_abort_claiming(bdev, holder);
#endif
	/* And what the claim has got. */
	sblk_whole_put(bdev);
	sblk_whole_put(bdev);
}

static inline struct address_space *sblk_bdev_mapping(struct block_device *bdev)
{
#ifdef SBLK_HAVE_BD_MAPPING
	return bdev->bd_mapping;
#else
	return bdev->bd_inode->i_mapping;
#endif
}

/*
 * Forgets what the page cache holds of a disk and its partitions from a byte of the disk on, written or not. With the lock
 * of opening.
 */
static inline void sblk_truncate_disk(struct gendisk *disk, u64 from)
{
	struct block_device *bdev;
#ifdef SBLK_HAVE_PART_TBL_XARRAY
	unsigned long index;

	/* They stay: who would delete one needs the lock. */
	xa_for_each(&disk->part_tbl, index, bdev) {
		u64 start = (u64)bdev->bd_start_sect << SECTOR_SHIFT;

		truncate_inode_pages(sblk_bdev_mapping(bdev), from > start ? from - start : 0);
	}
#else
	int index;

	for (index = 0; index < disk_max_parts(disk); index++) {
		const struct hd_struct *part;
		u64 start;

		bdev = bdget_disk(disk, index);
		if (!bdev)
			continue;
		rcu_read_lock();
		part = rcu_dereference(rcu_dereference(disk->part_tbl)->part[index]);
		start = part ? (u64)part->start_sect << SECTOR_SHIFT : 0;
		rcu_read_unlock();
		truncate_inode_pages(sblk_bdev_mapping(bdev), from > start ? from - start : 0);
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
