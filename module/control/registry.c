// SPDX-License-Identifier: GPL-2.0-only
#include "control/registry.h"

#include <linux/idr.h>

#include "block/bio.h"
#include "block/command.h"
#include "block/freeze.h"
#include "block/integrity.h"
#include "block/open.h"
#include "block/queue.h"
#include "compat.h"
#include "control/power.h"
#include "control/settings.h"
#include "control/snapshot.h"
#include "control/sysfs.h"

#define SBLK_MINORS 16 /* of a disk and its partitions; more get theirs from the block layer's extended range */

static int sblk_major;
static DEFINE_IDR(registry);
/* Held for moments only: a device that takes long to come or go must not keep others from being found. */
static DEFINE_MUTEX(registry_lock);

struct workqueue_struct *sblk_wq;

/* --- finding */

struct sblk_device *sblk_device_find(u32 index)
{
	struct sblk_device *dev;

	/*
	 * Without the registry's lock, which comes before a device's `control`: mmap() comes here with mmap_lock held, which
	 * comes after that.
	 */
	rcu_read_lock();
	dev = idr_find(&registry, index);
	if (dev && !kref_get_unless_zero(&dev->kref))
		dev = NULL;
	rcu_read_unlock();
	return dev;
}

struct sblk_device *sblk_device_lock(u32 index)
{
	struct sblk_device *dev = sblk_device_find(index);
	int err;

	if (!dev)
		return ERR_PTR(-ENODEV);
	err = mutex_lock_interruptible(&dev->control);
	if (!err && READ_ONCE(dev->closing)) {
		mutex_unlock(&dev->control);
		err = -ENODEV;
	}
	if (err) {
		sblk_device_put(dev);
		return ERR_PTR(err);
	}
	return dev;
}

void sblk_device_unlock(struct sblk_device *dev)
{
	mutex_unlock(&dev->control);
	sblk_device_put(dev);
}

void sblk_device_map(struct sampleblk_list *list)
{
	struct sblk_device *dev;
	int index;

	mutex_lock(&registry_lock);
	idr_for_each_entry(&registry, dev, index) {
		if (READ_ONCE(dev->closing))
			continue;
		list->map[(index - 1) / 64] |= 1ULL << ((index - 1) % 64);
		list->count++;
	}
	mutex_unlock(&registry_lock);
}

void sblk_device_info(struct sblk_device *dev, struct sampleblk_info *info)
{
	info->config = dev->config;
	info->powered = !dev->medium.off;
	info->allocated_bytes = sblk_allocated_bytes(dev);
	info->openers = sblk_openers(dev);
}

/* --- creation */

static bool is_power_of_2_between(u32 value, u32 low, u32 high)
{
	return is_power_of_2(value) && value >= low && value <= high;
}

static int atomic_check(struct sampleblk_config *config)
{
	u32 max = config->atomic_write_unit_max_bytes;

	if (!max)
		return config->atomic_write_unit_min_bytes || config->atomic_write_boundary_bytes ? -EINVAL : 0;
	if (!SBLK_REQ_ATOMIC)
		return -EOPNOTSUPP;
	if (!config->atomic_write_unit_min_bytes)
		config->atomic_write_unit_min_bytes = config->logical_block_bytes;
	if (!is_power_of_2_between(max, config->logical_block_bytes, config->max_sectors << SECTOR_SHIFT) ||
	    !is_power_of_2_between(config->atomic_write_unit_min_bytes, config->logical_block_bytes, max))
		return -EINVAL;
	if (config->atomic_write_boundary_bytes && !is_power_of_2_between(config->atomic_write_boundary_bytes, max, SZ_1G))
		return -EINVAL;
	return 0;
}

static int discard_check(const struct sampleblk_config *config)
{
	u32 granule = config->discard_granularity_bytes;

	if (!granule)
		return config->discard_alignment_bytes ? -EINVAL : 0;
	/* A power of two, for the block layer rounds by masks (bio_discard_limit()). */
	if (!(config->flags & SAMPLEBLK_F_DISCARD) || !is_power_of_2_between(granule, config->physical_block_bytes, SZ_1G))
		return -EINVAL;
	if (config->discard_alignment_bytes % config->logical_block_bytes || config->discard_alignment_bytes >= granule)
		return -EINVAL;
	return 0;
}

static int zoned_check(const struct sampleblk_config *config)
{
#ifdef SBLK_ZONED
	return 0;
#else
	return config->zone_bytes ? -EOPNOTSUPP : 0;
#endif
}

static int integrity_check(const struct sampleblk_config *config)
{
	if (!(config->flags & SAMPLEBLK_F_INTEGRITY))
		return 0;
	if (config->flags & (SAMPLEBLK_F_CACHE | SAMPLEBLK_F_SECTOR_ATOMIC) || config->zone_bytes ||
	    config->mode == SAMPLEBLK_MODE_BIO)
		return -EINVAL;
	/* The kernel takes blocks of protection information only in one piece of memory, which larger ones seldom have. */
	if (config->logical_block_bytes > 4096)
		return -EINVAL;
#ifdef SBLK_INTEGRITY
	return 0;
#else
	return -EOPNOTSUPP;
#endif
}

/* Fills in defaults; -EINVAL for what no device can be, -EOPNOTSUPP for what this kernel's cannot. */
static int config_check(struct sampleblk_config *config)
{
	int err;

	if (config->flags & ~SAMPLEBLK_F_ALL)
		return -EINVAL;
	if (config->flags & SAMPLEBLK_F_FUA && !(config->flags & SAMPLEBLK_F_CACHE))
		return -EINVAL;
	if (config->index > SAMPLEBLK_MAX_DEVICES || config->mode > SAMPLEBLK_MODE_BIO ||
	    config->completion > SAMPLEBLK_COMPLETE_TIMER)
		return -EINVAL;
	if (config->queues > SAMPLEBLK_MAX_QUEUES || config->poll_queues > SAMPLEBLK_MAX_QUEUES ||
	    config->depth > SAMPLEBLK_MAX_DEPTH)
		return -EINVAL;
	if (config->poll_queues && config->mode == SAMPLEBLK_MODE_BIO)
		return -EINVAL;
	if (config->numa_node < 0 || config->numa_node > MAX_NUMNODES ||
	    (config->numa_node && !node_online(config->numa_node - 1)))
		return -EINVAL;
	if (!config->queues)
		config->queues = 1;
	if (!config->depth)
		config->depth = 128;
	if (!config->logical_block_bytes)
		config->logical_block_bytes = SECTOR_SIZE;
	if (!config->physical_block_bytes)
		config->physical_block_bytes = max_t(u32, 4096, config->logical_block_bytes);
	if (!config->io_min_bytes)
		config->io_min_bytes = config->physical_block_bytes;
	if (!config->max_sectors)
		config->max_sectors = 2560;
	if (!config->max_segments)
		config->max_segments = 128;
	if (!is_power_of_2(config->logical_block_bytes) || config->logical_block_bytes < SECTOR_SIZE ||
	    config->logical_block_bytes > SBLK_MAX_LOGICAL_BLOCK)
		return -EINVAL;
	if (!is_power_of_2(config->physical_block_bytes) || config->physical_block_bytes > SZ_1M ||
	    config->physical_block_bytes < config->logical_block_bytes)
		return -EINVAL;
	if (config->io_min_bytes % config->physical_block_bytes || config->io_min_bytes > SZ_64M ||
	    config->io_opt_bytes % config->io_min_bytes || config->io_opt_bytes > SZ_64M)
		return -EINVAL;
	if (config->max_sectors < PAGE_SIZE / SECTOR_SIZE || config->max_sectors > SZ_64M / SECTOR_SIZE ||
	    config->max_sectors % (config->logical_block_bytes / SECTOR_SIZE) || config->max_segments > 1024)
		return -EINVAL;
	/* A block's memory may come in pieces of a sector; where a request holds fewer, Linux 6.1 runs into a BUG_ON. */
	if (config->max_segments < config->logical_block_bytes / SECTOR_SIZE)
		return -EINVAL;
	if (config->capacity_bytes < SAMPLEBLK_MIN_CAPACITY_BYTES ||
	    config->capacity_bytes > SAMPLEBLK_MAX_CAPACITY_BYTES ||
	    config->capacity_bytes & (config->logical_block_bytes - 1))
		return -EINVAL;
	err = discard_check(config);
	if (err)
		return err;
	err = atomic_check(config);
	if (!err)
		err = sblk_cache_configure(config);
	if (!err)
		err = sblk_zones_configure(config);
	if (!err)
		err = integrity_check(config);
	return err ? err : zoned_check(config);
}

static int queues_init(struct sblk_device *dev)
{
	unsigned int i;

	/* As many as could ever be asked for, so that a live change allocates nothing here. */
	dev->nr_queues = min_t(unsigned int, SAMPLEBLK_MAX_QUEUES, nr_cpu_ids);
	dev->config.queues = dev->bio_mode ? 1 : min(dev->config.queues, dev->nr_queues);
	dev->config.poll_queues = min(dev->config.poll_queues, dev->nr_queues);
	dev->nr_queues += dev->config.poll_queues;
	dev->queues = kcalloc(dev->nr_queues, sizeof(*dev->queues), GFP_KERNEL);
	if (!dev->queues) {
		dev->nr_queues = 0;
		return -ENOMEM;
	}
	for (i = 0; i < dev->nr_queues; i++) {
		dev->queues[i].dev = dev;
		dev->queues[i].index = i;
		init_llist_head(&dev->queues[i].done);
		spin_lock_init(&dev->queues[i].lock);
		INIT_LIST_HEAD(&dev->queues[i].waiting);
		dev->queues[i].stats = alloc_percpu(struct sblk_stats);
		if (!dev->queues[i].stats)
			return -ENOMEM;
	}
	return 0;
}

static void limits_of(const struct sampleblk_config *config, struct sblk_limits *limits)
{
	/* The store gives whole pages back. */
	u32 granule = config->discard_granularity_bytes ? : PAGE_SIZE;
	/* In whole logical blocks: Linux 6.1 cuts zeroes at the limit, wherever that is in a block. */
	u32 most = round_down(UINT_MAX, config->logical_block_bytes) >> SECTOR_SHIFT;

	*limits = (struct sblk_limits){
		.logical_block = config->logical_block_bytes,
		.physical_block = config->physical_block_bytes,
		.io_min = config->io_min_bytes,
		.io_opt = config->io_opt_bytes,
		.max_sectors = config->max_sectors,
		.max_segments = config->max_segments,
		.max_discard_sectors = config->flags & SAMPLEBLK_F_DISCARD ? most : 0,
		.discard_granularity = config->flags & SAMPLEBLK_F_DISCARD ? granule : 0,
		.discard_alignment = config->discard_alignment_bytes,
		.max_write_zeroes_sectors = config->flags & SAMPLEBLK_F_WRITE_ZEROES ? most : 0,
		.atomic_unit_min = config->atomic_write_unit_min_bytes,
		.atomic_unit_max = config->atomic_write_unit_max_bytes,
		.atomic_boundary = config->atomic_write_boundary_bytes,
		.zone_sectors = config->zone_bytes >> SECTOR_SHIFT,
		.max_open_zones = config->max_open_zones,
		.max_active_zones = config->max_active_zones,
		.integrity_interval = config->flags & SAMPLEBLK_F_INTEGRITY ? config->logical_block_bytes : 0,
		.cache = config->flags & SAMPLEBLK_F_CACHE,
		.fua = config->flags & SAMPLEBLK_F_FUA,
		.nowait = config->mode == SAMPLEBLK_MODE_BIO,
		.poll = config->poll_queues,
		.io_stat = config->mode == SAMPLEBLK_MODE_BIO,
		.rotational = config->flags & SAMPLEBLK_F_ROTATIONAL,
	};
}

static int disk_init(struct sblk_device *dev)
{
	u32 flags = dev->config.flags;
	struct sblk_limits limits;
	struct gendisk *disk;
	int err;

	limits_of(&dev->config, &limits);
	if (dev->bio_mode)
		disk = sblk_alloc_bio_disk(&limits, dev->config.numa_node ? dev->config.numa_node - 1 : NUMA_NO_NODE);
	else
		disk = sblk_alloc_disk(&dev->tag_set, &limits, dev);
	if (IS_ERR(disk))
		return PTR_ERR(disk);
	disk->major = sblk_major;
	disk->first_minor = (dev->config.index - 1) * SBLK_MINORS;
	disk->minors = SBLK_MINORS;
	disk->fops = dev->bio_mode ? &sblk_bio_fops : &sblk_mq_fops;
	disk->private_data = dev;
	if (flags & SAMPLEBLK_F_NO_PARTITIONS) {
		disk->flags |= SBLK_GENHD_NO_PART;
		disk->minors = 1;
	}
	snprintf(disk->disk_name, sizeof(disk->disk_name), "sampleblk%u", dev->config.index);
	set_capacity(disk, dev->config.capacity_bytes >> SECTOR_SHIFT);
	set_disk_ro(disk, flags & SAMPLEBLK_F_READ_ONLY);
	dev->disk = disk;
	err = sblk_atomic_unit_max(disk->queue) == dev->config.atomic_write_unit_max_bytes ? 0 : -EINVAL;
#ifdef SBLK_ZONED
	if (!err && dev->zones)
		err = sblk_set_zoned(disk, &limits);
#endif
#ifdef SBLK_INTEGRITY_PROFILE
	if (sblk_has_integrity(dev))
		sblk_integrity_register(disk, limits.integrity_interval);
#endif
	if (!err)
		err = sblk_add_disk(NULL, disk, sblk_disk_groups);
	if (err) {
		dev->disk = NULL;
		sblk_put_disk(disk);
	}
	return err;
}

static int store_init(struct sblk_device *dev, struct sblk_store *base)
{
	const struct sampleblk_config *config = &dev->config;
	u64 bytes = config->capacity_bytes;
	struct sblk_store *store;

	if (config->flags & SAMPLEBLK_F_INTEGRITY)
		bytes = sblk_integrity_lay_out(&dev->integrity, bytes, config->logical_block_bytes);
	store = sblk_store_create(bytes, base);
	if (!store)
		return -ENOMEM;
	sblk_medium_init(&dev->medium, store);
	dev->medium.sector_atomic = config->flags & SAMPLEBLK_F_SECTOR_ATOMIC;
	if (config->flags & SAMPLEBLK_F_CACHE) {
		sblk_cache_init(&dev->cache, config->cache_bytes);
		dev->medium.cache = &dev->cache;
	}
	if (config->zone_bytes) {
		dev->zones = sblk_zones_create(config);
		if (!dev->zones)
			return -ENOMEM;
	}
	if (config->flags & SAMPLEBLK_F_EAGER)
		return sblk_store_populate(store, config->numa_node ? config->numa_node - 1 : NUMA_NO_NODE);
	return 0;
}

/* The reasons for the slow path that are there from the beginning. */
static void slow_path_init(struct sblk_device *dev)
{
	if (sblk_medium_logs(&dev->medium))
		set_bit(SBLK_SLOW_LOG, &dev->slow_path);
	if (dev->config.completion != SAMPLEBLK_COMPLETE_INLINE)
		set_bit(SBLK_SLOW_COMPLETION, &dev->slow_path);
	if (dev->config.flags & SAMPLEBLK_F_READ_ONLY)
		set_bit(SBLK_SLOW_READ_ONLY, &dev->slow_path);
	if (dev->zones)
		set_bit(SBLK_SLOW_ZONED, &dev->slow_path);
	if (sblk_has_integrity(dev))
		set_bit(SBLK_SLOW_INTEGRITY, &dev->slow_path);
}

static int device_make(struct sblk_device *dev, struct sblk_store *base)
{
	int err = store_init(dev, base);

	if (err)
		return err;
	dev->bio_mode = dev->config.mode == SAMPLEBLK_MODE_BIO;
	err = queues_init(dev);
	if (err)
		return err;
	if (!dev->bio_mode) {
		err = sblk_tag_set_init(dev);
		if (err)
			return err;
	}
	slow_path_init(dev);
	err = disk_init(dev);
	if (err && !dev->bio_mode)
		blk_mq_free_tag_set(&dev->tag_set);
	return err;
}

static void device_free(struct kref *kref)
{
	struct sblk_device *dev = container_of(kref, struct sblk_device, kref);
	unsigned int i;

	sblk_settings_destroy(dev);
	sblk_snapshots_destroy(dev);
	if (dev->medium.cache)
		sblk_cache_forget(dev->medium.cache);
	sblk_zones_destroy(dev->zones);
	sblk_store_put(dev->medium.store);
	sblk_store_put(dev->journal_store);
	if (dev->medium.journal)
		sblk_journal_destroy(&dev->journal);
	for (i = 0; i < dev->nr_queues; i++) {
		free_percpu(dev->queues[i].stats);
		free_percpu(dev->queues[i].histograms);
	}
	kfree(dev->queues);
	kfree_rcu(dev, rcu); /* sblk_device_find() may be looking at it */
}

static struct sblk_device *device_alloc(const struct sampleblk_config *config)
{
	struct sblk_device *dev = kzalloc(sizeof(*dev), GFP_KERNEL);

	if (!dev)
		return NULL;
	kref_init(&dev->kref);
	dev->release = device_free;
	mutex_init(&dev->control);
	mutex_init(&dev->map_lock);
	mutex_init(&dev->worker_lock);
	init_llist_head(&dev->deferred);
	INIT_WORK(&dev->deferred_work, sblk_cmd_worker);
	INIT_LIST_HEAD(&dev->snapshots);
	dev->next_snapshot = 1;
	init_waitqueue_head(&dev->bios_wait);
	dev->config = *config;
	return dev;
}

/* Reserves a number, under which nothing is found yet. */
static int reserve_index(u32 index)
{
	int reserved;

	mutex_lock(&registry_lock);
	reserved = index == SAMPLEBLK_INDEX_ANY ? idr_alloc(&registry, NULL, 1, SAMPLEBLK_MAX_DEVICES + 1, GFP_KERNEL) :
						  idr_alloc(&registry, NULL, index, index + 1, GFP_KERNEL);
	mutex_unlock(&registry_lock);
	return reserved == -ENOSPC && index != SAMPLEBLK_INDEX_ANY ? -EEXIST : reserved;
}

static void publish_index(u32 index, struct sblk_device *dev)
{
	mutex_lock(&registry_lock);
	idr_replace(&registry, dev, index);
	mutex_unlock(&registry_lock);
}

static void free_index(u32 index)
{
	mutex_lock(&registry_lock);
	idr_remove(&registry, index);
	mutex_unlock(&registry_lock);
}

int sblk_device_add(struct sampleblk_config *config, struct sblk_store *base)
{
	struct sblk_device *dev;
	int err = config_check(config);
	int index;

	if (err)
		return err;
	dev = device_alloc(config);
	if (!dev)
		return -ENOMEM;
	index = reserve_index(config->index);
	if (index < 0) {
		sblk_device_put(dev);
		return index;
	}
	dev->config.index = index;
	err = device_make(dev, base);
	if (err) {
		sblk_device_put(dev);
		free_index(index);
		return err;
	}
	*config = dev->config;
	publish_index(index, dev);
	return 0;
}

/* --- removal */

/* Keeps everybody from opening it. -EBUSY while somebody has it open; -ENODEV when another is removing it. */
static int close_unused(struct sblk_device *dev)
{
	int err = 0;

	/* Who has the lock is opening or closing it. */
	if (!sblk_trylock_open(dev->disk))
		return -EBUSY;
	if (sblk_disk_openers(dev->disk))
		err = -EBUSY;
	else if (test_and_set_bit(SBLK_SLOW_CLOSING, &dev->slow_path))
		err = -ENODEV;
	else
		WRITE_ONCE(dev->closing, true);
	sblk_unlock_open(dev->disk);
	return err;
}

/* With a reference, which it takes. */
static int device_remove(struct sblk_device *dev, bool force)
{
	u32 index = dev->config.index;
	int err = 0;

	if (!force)
		err = close_unused(dev);
	else if (test_and_set_bit(SBLK_SLOW_CLOSING, &dev->slow_path))
		err = -ENODEV;
	if (err) {
		sblk_device_put(dev);
		return err;
	}
	/* First of all, so that whoever has `control` and waits for commands has them. */
	sblk_close(dev);
	mutex_lock(&dev->control);
	del_gendisk(dev->disk);
	wait_event(dev->bios_wait, !atomic_read(&dev->bios));
	flush_work(&dev->deferred_work);
	/* What ended the last bio may still be at it. */
	synchronize_rcu_expedited();
	sblk_put_disk(dev->disk);
	if (!dev->bio_mode)
		blk_mq_free_tag_set(&dev->tag_set);
	mutex_unlock(&dev->control);
	free_index(index);
	sblk_device_put(dev);
	/* The registry's. */
	sblk_device_put(dev);
	return 0;
}

int sblk_device_remove(u32 index, bool force)
{
	struct sblk_device *dev = sblk_device_find(index);

	return dev ? device_remove(dev, force) : -ENODEV;
}

int sblk_registry_init(void)
{
	int err;

	sblk_wq = alloc_workqueue("sampleblk", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!sblk_wq)
		return -ENOMEM;
	err = sblk_bio_init();
	if (err)
		goto destroy;
	sblk_major = register_blkdev(0, "sampleblk");
	if (sblk_major >= 0)
		return 0;
	err = sblk_major;
	sblk_bio_exit();
destroy:
	destroy_workqueue(sblk_wq);
	return err;
}

/* Nobody can have a device open: the module's reference count would not have let us come here. */
void sblk_registry_exit(void)
{
	u32 index;

	for (index = 1; index <= SAMPLEBLK_MAX_DEVICES; index++)
		sblk_device_remove(index, true);
	idr_destroy(&registry);
	unregister_blkdev(sblk_major, "sampleblk");
	destroy_workqueue(sblk_wq);
	sblk_bio_exit();
}
