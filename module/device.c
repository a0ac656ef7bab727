// SPDX-License-Identifier: GPL-2.0-only
/* Devices: what they are made of, from creation to the last reference. */
#include <linux/idr.h>
#include <linux/vmalloc.h>

#include "compat.h"
#include "sampleblk.h"

#define SBLK_MINORS 16 /* of a disk and its partitions; more get theirs from the block layer's extended range */

static int sblk_major;
static DEFINE_IDR(registry);
/* Held across creation and removal, so that a number is free again when the call that freed it returns. */
static DEFINE_MUTEX(registry_lock);

struct workqueue_struct *sblk_wq;

static void device_free(struct work_struct *work)
{
	struct sblk_device *dev = container_of(work, struct sblk_device, free_work);
	unsigned int i;

	sblk_tune_destroy(dev);
	sblk_state_destroy(dev);
	for (i = 0; i < dev->nr_queues; i++) {
		free_percpu(dev->queues[i].stats);
		free_percpu(dev->queues[i].histograms);
	}
	kfree(dev->queues);
	kfree_rcu(dev, rcu); /* sblk_device_get() may be looking at it */
}

/* The last reference can be a bio's, which ends in an interrupt. */
static void device_release(struct kref *kref)
{
	struct sblk_device *dev = container_of(kref, struct sblk_device, kref);

	queue_work(sblk_wq, &dev->free_work);
}

void sblk_device_put(struct sblk_device *dev)
{
	kref_put(&dev->kref, device_release);
}

struct sblk_device *sblk_device_get(u32 index)
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
	struct sblk_device *dev = sblk_device_get(index);

	if (!dev)
		return NULL;
	mutex_lock(&dev->control);
	if (dev->removing) {
		sblk_device_unlock(dev);
		return NULL;
	}
	return dev;
}

void sblk_device_unlock(struct sblk_device *dev)
{
	mutex_unlock(&dev->control);
	sblk_device_put(dev);
}

int sblk_open(struct gendisk *disk)
{
	struct sblk_device *dev = disk->private_data;
	int err = 0;

	mutex_lock(&dev->open_lock);
	if (dev->removing) {
		err = -ENXIO;
	} else {
		dev->openers++;
		kref_get(&dev->kref);
	}
	mutex_unlock(&dev->open_lock);
	return err;
}

void sblk_release(struct gendisk *disk)
{
	struct sblk_device *dev = disk->private_data;

	mutex_lock(&dev->open_lock);
	dev->openers--;
	mutex_unlock(&dev->open_lock);
	sblk_device_put(dev);
}

bool sblk_device_is_open(struct sblk_device *dev)
{
	bool open;

	mutex_lock(&dev->open_lock);
	open = dev->openers;
	mutex_unlock(&dev->open_lock);
	return open;
}

/* Fills in defaults; -EINVAL for what no device can be. */
static int config_check(struct sampleblk_config *config)
{
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
	if (config->capacity_bytes < SAMPLEBLK_MIN_CAPACITY_BYTES ||
	    config->capacity_bytes > SAMPLEBLK_MAX_CAPACITY_BYTES ||
	    config->capacity_bytes & (config->logical_block_bytes - 1))
		return -EINVAL;
	return 0;
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
		spin_lock_init(&dev->queues[i].poll_lock);
		INIT_LIST_HEAD(&dev->queues[i].poll_list);
		dev->queues[i].stats = alloc_percpu(struct sblk_stats);
		if (!dev->queues[i].stats)
			return -ENOMEM;
	}
	return 0;
}

static int tag_set_init(struct sblk_device *dev)
{
	struct blk_mq_tag_set *set = &dev->tag_set;
	int err;

	set->ops = &sblk_mq_ops;
	set->nr_hw_queues = dev->config.queues + dev->config.poll_queues;
	set->nr_maps = dev->config.poll_queues ? HCTX_MAX_TYPES : 1;
	set->queue_depth = dev->config.depth;
	set->numa_node = dev->config.numa_node ? dev->config.numa_node - 1 : NUMA_NO_NODE;
	set->cmd_size = sizeof(struct sblk_cmd);
	set->flags = SBLK_F_SHOULD_MERGE | SBLK_F_NO_SCHED;
	set->driver_data = dev;
	err = blk_mq_alloc_tag_set(set);
	/* Under memory pressure, or with few CPUs, blk-mq settles for less. */
	dev->config.queues = set->nr_hw_queues - dev->config.poll_queues;
	dev->config.depth = set->queue_depth;
	return err;
}

static void limits_of(const struct sampleblk_config *config, struct sblk_limits *limits)
{
	*limits = (struct sblk_limits){
		.logical_block = config->logical_block_bytes,
		.physical_block = config->physical_block_bytes,
		.io_min = config->io_min_bytes,
		.io_opt = config->io_opt_bytes,
		.max_sectors = config->max_sectors,
		.max_segments = config->max_segments,
		.max_discard_sectors = config->flags & SAMPLEBLK_F_DISCARD ? UINT_MAX >> SECTOR_SHIFT : 0,
		.max_write_zeroes_sectors = config->flags & SAMPLEBLK_F_WRITE_ZEROES ? UINT_MAX >> SECTOR_SHIFT : 0,
		.cache = config->flags & SAMPLEBLK_F_CACHE,
		.fua = config->flags & SAMPLEBLK_F_FUA,
		.nowait = config->mode == SAMPLEBLK_MODE_BIO,
		.poll = config->poll_queues,
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
	err = sblk_add_disk(NULL, disk, sblk_disk_groups);
	if (err) {
		dev->disk = NULL;
		sblk_put_disk(disk);
	}
	return err;
}

static int device_make(struct sblk_device *dev, struct sblk_store *base)
{
	int err = sblk_state_init(dev, base);

	if (err)
		return err;
	dev->bio_mode = dev->config.mode == SAMPLEBLK_MODE_BIO;
	err = queues_init(dev);
	if (err)
		return err;
	if (!dev->bio_mode) {
		err = tag_set_init(dev);
		if (err)
			return err;
	}
	sblk_set_extra(dev, SBLK_EXTRA_COMPLETION, dev->config.completion != SAMPLEBLK_COMPLETE_INLINE);
	err = disk_init(dev);
	if (err && !dev->bio_mode)
		blk_mq_free_tag_set(&dev->tag_set);
	return err;
}

static struct sblk_device *device_alloc(const struct sampleblk_config *config)
{
	struct sblk_device *dev = kzalloc(sizeof(*dev), GFP_KERNEL);

	if (!dev)
		return NULL;
	kref_init(&dev->kref);
	mutex_init(&dev->open_lock);
	mutex_init(&dev->control);
	mutex_init(&dev->map_lock);
	init_llist_head(&dev->deferred);
	INIT_WORK(&dev->deferred_work, sblk_cmd_worker);
	INIT_WORK(&dev->free_work, device_free);
	spin_lock_init(&dev->hung_lock);
	INIT_LIST_HEAD(&dev->hung);
	INIT_LIST_HEAD(&dev->snapshots);
	init_waitqueue_head(&dev->bios_wait);
	dev->config = *config;
	return dev;
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
	mutex_lock(&registry_lock);
	/* Reserved, but not to be found until it is whole. */
	index = config->index == SAMPLEBLK_INDEX_ANY ?
			idr_alloc(&registry, NULL, 1, SAMPLEBLK_MAX_DEVICES + 1, GFP_KERNEL) :
			idr_alloc(&registry, NULL, config->index, config->index + 1, GFP_KERNEL);
	if (index < 0) {
		err = index == -ENOSPC && config->index != SAMPLEBLK_INDEX_ANY ? -EEXIST : index;
		goto unlock;
	}
	dev->config.index = index;
	err = device_make(dev, base);
	if (err) {
		idr_remove(&registry, index);
		goto unlock;
	}
	idr_replace(&registry, dev, index);
	*config = dev->config;
	mutex_unlock(&registry_lock);
	return 0;
unlock:
	mutex_unlock(&registry_lock);
	sblk_device_put(dev);
	return err;
}

/* With the registry's lock held. */
static int device_remove(struct sblk_device *dev, bool force)
{
	mutex_lock(&dev->control);
	mutex_lock(&dev->open_lock);
	if (dev->openers && !force) {
		mutex_unlock(&dev->open_lock);
		mutex_unlock(&dev->control);
		return -EBUSY;
	}
	dev->removing = true;
	mutex_unlock(&dev->open_lock);

	/* No rule may hold what del_gendisk() waits for. */
	sblk_set_extra(dev, SBLK_EXTRA_FAULTS, false);
	synchronize_rcu();
	sblk_cmd_release_hung(dev, BLK_STS_IOERR);
	del_gendisk(dev->disk);
	wait_event(dev->bios_wait, !atomic_read(&dev->bios));
	flush_work(&dev->deferred_work);
	sblk_put_disk(dev->disk);
	if (!dev->bio_mode)
		blk_mq_free_tag_set(&dev->tag_set);
	mutex_unlock(&dev->control);
	idr_remove(&registry, dev->config.index);
	sblk_device_put(dev);
	return 0;
}

int sblk_device_remove(u32 index, bool force)
{
	struct sblk_device *dev;
	int err = -ENODEV;

	mutex_lock(&registry_lock);
	dev = idr_find(&registry, index);
	if (dev)
		err = device_remove(dev, force);
	mutex_unlock(&registry_lock);
	return err;
}

void sblk_device_map(struct sampleblk_list *list)
{
	struct sblk_device *dev;
	int index;

	mutex_lock(&registry_lock);
	idr_for_each_entry(&registry, dev, index) {
		list->map[(index - 1) / 64] |= 1ULL << ((index - 1) % 64);
		list->count++;
	}
	mutex_unlock(&registry_lock);
}

void sblk_device_info(struct sblk_device *dev, struct sampleblk_info *info)
{
	info->config = dev->config;
	info->powered = !dev->media.off;
	info->allocated_bytes = sblk_store_allocated_bytes(dev->media.store);
	mutex_lock(&dev->open_lock);
	info->openers = dev->openers;
	mutex_unlock(&dev->open_lock);
}

int sblk_device_counters(struct sblk_device *dev, struct sampleblk_counters *counters)
{
	unsigned int i;

	if (counters->queue != SAMPLEBLK_QUEUE_ALL && counters->queue >= dev->nr_queues)
		return -EINVAL;
	for (i = 0; i < dev->nr_queues; i++)
		if (counters->queue == SAMPLEBLK_QUEUE_ALL || counters->queue == i)
			sblk_stats_sum(dev->queues[i].stats, counters);
	return 0;
}

int sblk_device_init(void)
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
void sblk_device_exit(void)
{
	struct sblk_device *dev;
	int index;

	mutex_lock(&registry_lock);
	idr_for_each_entry(&registry, dev, index)
		device_remove(dev, true);
	mutex_unlock(&registry_lock);
	idr_destroy(&registry);
	unregister_blkdev(sblk_major, "sampleblk");
	/* Frees what still waits to be freed. */
	destroy_workqueue(sblk_wq);
	sblk_bio_exit();
}
