// SPDX-License-Identifier: GPL-2.0-only
/* What a device holds, beyond the bytes: volatile cache and power, journal, snapshots. */
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "compat.h"
#include "sampleblk.h"
#include "trace.h"

#define SBLK_CACHE_DEFAULT (16ULL << 20)
#define SBLK_CACHE_MIN (64ULL << 10)
#define SBLK_CACHE_MAX (4ULL << 30)
#define SBLK_JOURNAL_MIN (64ULL << 10)
#define SBLK_JOURNAL_MAX (16ULL << 30)

static void update_extra(struct sblk_device *dev)
{
	sblk_set_extra(dev, SBLK_EXTRA_MEDIA, sblk_media_logged(&dev->media) || dev->media.off);
}

static void update_atomic(struct sblk_device *dev)
{
	dev->media.store->atomic = dev->config.flags & SAMPLEBLK_F_SECTOR_ATOMIC || dev->media.journal;
}

int sblk_state_init(struct sblk_device *dev, struct sblk_store *base)
{
	struct sampleblk_config *config = &dev->config;
	int err;

	spin_lock_init(&dev->media.lock);
	INIT_LIST_HEAD(&dev->snapshots);
	dev->next_snapshot = 1;
	dev->media.store = sblk_store_create(config->capacity_bytes, base);
	if (!dev->media.store)
		return -ENOMEM;
	update_atomic(dev);
	if (config->flags & SAMPLEBLK_F_EAGER && !base) {
		err = sblk_store_populate(dev->media.store, config->numa_node ? config->numa_node - 1 : NUMA_NO_NODE);
		if (err)
			return err;
	}
	if (config->flags & SAMPLEBLK_F_CACHE) {
		if (!config->cache_bytes)
			config->cache_bytes = SBLK_CACHE_DEFAULT;
		if (config->cache_bytes < SBLK_CACHE_MIN || config->cache_bytes > SBLK_CACHE_MAX)
			return -EINVAL;
		err = sblk_cache_init(&dev->cache, config->cache_bytes);
		if (err)
			return err;
		dev->media.cache = &dev->cache;
	} else if (config->cache_bytes) {
		return -EINVAL;
	}
	update_extra(dev);
	return 0;
}

static void snapshot_free(struct sblk_snapshot *snapshot)
{
	list_del(&snapshot->list);
	sblk_store_put(snapshot->store);
	kfree(snapshot);
}

void sblk_state_destroy(struct sblk_device *dev)
{
	struct sblk_snapshot *snapshot, *next;

	if (dev->snapshots.next)
		list_for_each_entry_safe(snapshot, next, &dev->snapshots, list)
			snapshot_free(snapshot);
	sblk_store_put(dev->media.store);
	sblk_store_put(dev->parked);
	if (dev->media.cache)
		sblk_cache_destroy(&dev->cache);
	if (dev->media.journal)
		sblk_journal_destroy(&dev->journal);
	sblk_set_extra(dev, ~0U, false);
}

static int survivors_from_user(const struct sampleblk_power *power, struct sblk_cut *cut)
{
	struct sampleblk_survivor *survivors;
	u64 i;

	if (!power->nr_survivors)
		return 0;
	if (power->nr_survivors > 1U << 20)
		return -EINVAL;
	survivors = kvmalloc_array(power->nr_survivors, sizeof(*survivors), GFP_KERNEL);
	if (!survivors)
		return -ENOMEM;
	if (copy_from_user(survivors, u64_to_user_ptr(power->survivors), sizeof(*survivors) * power->nr_survivors)) {
		kvfree(survivors);
		return -EFAULT;
	}
	for (i = 1; i < power->nr_survivors; i++) {
		if (survivors[i].id <= survivors[i - 1].id) {
			kvfree(survivors);
			return -EINVAL;
		}
	}
	cut->survivors = survivors;
	cut->nr_survivors = power->nr_survivors;
	return 0;
}

static int power_cut(struct sblk_device *dev, struct sampleblk_power *power)
{
	struct sblk_cut cut = {
		.mode = power->mode,
		.flags = power->flags,
		.survive_percent = power->survive_percent,
		.seed = power->seed,
	};
	int err;

	if (power->mode > SAMPLEBLK_CUT_EXPLICIT || power->flags & ~SAMPLEBLK_CUT_F_TORN || power->survive_percent > 100)
		return -EINVAL;
	if (power->mode != SAMPLEBLK_CUT_EXPLICIT && power->nr_survivors)
		return -EINVAL;
	err = survivors_from_user(power, &cut);
	if (err)
		return err;
	/* From here on no success of what is on its way is told. */
	WRITE_ONCE(dev->power_epoch, dev->power_epoch + 1);
	err = sblk_media_cut(&dev->media, &cut, ktime_get_ns());
	kvfree(cut.survivors);
	if (err)
		return err;
	update_extra(dev);
	sblk_cmd_release_hung(dev, BLK_STS_IOERR);
	power->dropped = cut.dropped;
	power->survived = cut.survived;
	power->torn = cut.torn;
	trace_sampleblk_power(dev, false, cut.dropped, cut.survived, cut.torn);
	return 0;
}

int sblk_power(struct sblk_device *dev, struct sampleblk_power *power)
{
	int err;

	if (power->action == SAMPLEBLK_POWER_CUT)
		return power_cut(dev, power);
	if (power->action != SAMPLEBLK_POWER_ON || power->mode || power->flags || power->survive_percent ||
	    power->nr_survivors)
		return -EINVAL;
	if (!dev->media.off)
		return -EALREADY;
	/* What the page cache still holds is older, or was never written. */
	sblk_invalidate_disk(dev->disk);
	err = sblk_media_power_on(&dev->media);
	if (err)
		return err;
	update_extra(dev);
	trace_sampleblk_power(dev, true, 0, 0, 0);
	return 0;
}

struct volatile_copy {
	struct sampleblk_volatile *list;
	u64 room;
	u64 nr;
};

static int copy_volatile(const struct sblk_cache_entry *entry, void *arg)
{
	struct volatile_copy *copy = arg;

	if (copy->nr < copy->room)
		copy->list[copy->nr] = (struct sampleblk_volatile){
			.id = entry->id,
			.sector = entry->pos >> SECTOR_SHIFT,
			.sectors = entry->len >> SECTOR_SHIFT,
			.flags = (entry->flags & SBLK_CACHE_DURABLE ? SAMPLEBLK_VOLATILE_DURABLE : 0) |
				 (entry->flags & SBLK_CACHE_ZEROES ? SAMPLEBLK_VOLATILE_ZEROES : 0),
		};
	copy->nr++;
	return 0;
}

int sblk_volatile_list(struct sblk_device *dev, struct sampleblk_volatile_list *list)
{
	struct volatile_copy copy = { .room = min_t(u64, list->nr, 1U << 20) };
	u64 user_list = list->list;
	int err = 0;

	if (copy.room) {
		copy.list = kvcalloc(copy.room, sizeof(*copy.list), GFP_KERNEL);
		if (!copy.list)
			return -ENOMEM;
	}
	list->written_back = 0;
	if (dev->media.cache) {
		spin_lock(&dev->media.lock);
		sblk_cache_walk(&dev->cache, copy_volatile, &copy);
		list->written_back = dev->cache.written_back;
		spin_unlock(&dev->media.lock);
	}
	if (copy_to_user(u64_to_user_ptr(user_list), copy.list, sizeof(*copy.list) * min(copy.room, copy.nr)))
		err = -EFAULT;
	list->nr = copy.nr;
	kvfree(copy.list);
	return err;
}

static int journal_start(struct sblk_device *dev, u64 bytes)
{
	struct sblk_journal journal;
	unsigned int flags;
	int err;

	if (dev->media.journal)
		return -EBUSY;
	if (bytes < SBLK_JOURNAL_MIN || bytes > SBLK_JOURNAL_MAX || !PAGE_ALIGNED(bytes))
		return -EINVAL;
	err = sblk_journal_init(&journal, bytes);
	if (err)
		return err;
	mutex_lock(&dev->map_lock);
	flags = sblk_device_freeze(dev);
	dev->journal = journal;
	dev->media.journal = &dev->journal;
	update_atomic(dev);
	update_extra(dev);
	sblk_device_unfreeze(dev, flags);
	mutex_unlock(&dev->map_lock);
	return 0;
}

static int journal_stop(struct sblk_device *dev)
{
	unsigned int flags;

	if (!dev->media.journal)
		return -ENOENT;
	mutex_lock(&dev->map_lock);
	flags = sblk_device_freeze(dev);
	dev->media.journal = NULL;
	/* The device stays as it is seen now. */
	sblk_store_put(dev->parked);
	dev->parked = NULL;
	sblk_store_merge(dev->media.store);
	update_atomic(dev);
	update_extra(dev);
	sblk_device_unfreeze(dev, flags);
	mutex_unlock(&dev->map_lock);
	/* Whoever has it mapped keeps the pages. */
	sblk_journal_destroy(&dev->journal);
	return 0;
}

int sblk_journal_control(struct sblk_device *dev, struct sampleblk_journal *journal)
{
	const struct sampleblk_journal_header *header;
	int err = 0;

	if (journal->action != SAMPLEBLK_JOURNAL_START && journal->bytes)
		return -EINVAL;
	if (journal->action == SAMPLEBLK_JOURNAL_START)
		err = journal_start(dev, journal->bytes);
	else if (journal->action == SAMPLEBLK_JOURNAL_STOP)
		err = journal_stop(dev);
	else if (journal->action != SAMPLEBLK_JOURNAL_INFO)
		err = -EINVAL;
	if (err || !dev->media.journal)
		return err;
	spin_lock(&dev->media.lock);
	header = dev->journal.header;
	journal->bytes = header->bytes;
	journal->used_bytes = header->head;
	journal->entries = header->entries;
	journal->overflow = header->overflow;
	journal->next_sequence = header->next_sequence;
	journal->position = header->position;
	journal->epoch = atomic64_read(&dev->journal.epoch);
	spin_unlock(&dev->media.lock);
	return 0;
}

int sblk_journal_do_mark(struct sblk_device *dev, struct sampleblk_mark *mark)
{
	if (!mark->length || mark->length > SAMPLEBLK_MARK_BYTES)
		return -EINVAL;
	if (!dev->media.journal)
		return -ENOENT;
	spin_lock(&dev->media.lock);
	if (sblk_journal_in_past(&dev->journal))
		mark->sequence = 0;
	else
		mark->sequence = sblk_journal_mark(&dev->journal, mark->text, mark->length, ktime_get_ns());
	if (!mark->sequence && !sblk_journal_in_past(&dev->journal))
		trace_sampleblk_journal_overflow(dev, dev->journal.header->next_sequence - 1);
	spin_unlock(&dev->media.lock);
	return mark->sequence ? 0 : -EOVERFLOW;
}

/* With the queue frozen: the store goes to `sequence`, and a layer for what is written there goes on top. */
static int seek_frozen(struct sblk_device *dev, u64 sequence, u64 *applied)
{
	struct sblk_journal *journal = &dev->journal;
	struct sblk_store *store = dev->media.store;
	u64 newest = journal->header->next_sequence - 1;
	struct sblk_store *top;
	int err;

	if (journal->header->overflow)
		return -EOVERFLOW;
	if (sequence > newest)
		return -EINVAL;
	/* What can fail for want of memory comes before what can not be taken back. */
	if (dev->parked)
		store = dev->parked;
	top = sblk_store_create(dev->config.capacity_bytes, store);
	if (!top)
		return -ENOMEM;
	if (dev->parked) {
		sblk_store_put(dev->media.store);
		dev->media.store = store;
		dev->parked = NULL;
	}
	if (dev->media.cache)
		sblk_cache_flush(dev->media.cache);
	err = sblk_journal_seek(journal, store, sequence, applied);
	if (journal->header->position == newest) {
		sblk_store_put(top);
	} else {
		/* Also after an error: what lies half way there must not be recorded on. */
		dev->parked = store;
		dev->media.store = top;
	}
	update_atomic(dev);
	return err;
}

int sblk_journal_do_seek(struct sblk_device *dev, struct sampleblk_seek *seek)
{
	unsigned int flags;
	u64 sequence;
	int err;

	if (seek->flags & ~SAMPLEBLK_SEEK_FORCE)
		return -EINVAL;
	if (!dev->media.journal)
		return -ENOENT;
	if (!(seek->flags & SAMPLEBLK_SEEK_FORCE) && sblk_device_is_open(dev))
		return -EBUSY;
	flags = sblk_device_freeze(dev);
	sequence = seek->sequence == SAMPLEBLK_SEEK_NEWEST ? dev->journal.header->next_sequence - 1 : seek->sequence;
	err = seek_frozen(dev, sequence, &seek->applied);
	sblk_device_unfreeze(dev, flags);
	sblk_invalidate_disk(dev->disk);
	trace_sampleblk_snapshot(dev, SBLK_TRACE_SEEK, sequence);
	return err;
}

static struct sblk_snapshot *snapshot_find(struct sblk_device *dev, u32 id)
{
	struct sblk_snapshot *snapshot;

	list_for_each_entry(snapshot, &dev->snapshots, list)
		if (snapshot->id == id)
			return snapshot;
	return NULL;
}

/* With the queue frozen. The current store stays as it is; what is written from now on goes to a layer on top. */
static int take_frozen(struct sblk_device *dev, struct sblk_snapshot *snapshot)
{
	struct sblk_store *top = sblk_store_create(dev->config.capacity_bytes, dev->media.store);

	if (!top)
		return -ENOMEM;
	snapshot->store = dev->media.store;
	dev->media.store = top;
	return 0;
}

/* The same for how it was at some sequence: the current store, and a layer of changes back on top of it. */
static int take_past_frozen(struct sblk_device *dev, struct sblk_snapshot *snapshot, u64 sequence)
{
	struct sblk_store *view;
	int err;

	if (!dev->media.journal)
		return -ENOENT;
	/* The store below is moved by the next seek, so nothing else may lie on it. */
	if (dev->parked)
		return -EBUSY;
	view = sblk_store_create(dev->config.capacity_bytes, dev->media.store);
	if (!view)
		return -ENOMEM;
	err = sblk_journal_view(&dev->journal, view, sequence);
	if (!err)
		err = take_frozen(dev, snapshot);
	if (err) {
		sblk_store_put(view);
		return err;
	}
	sblk_store_put(snapshot->store);
	snapshot->store = view;
	return 0;
}

static int snapshot_take(struct sblk_device *dev, struct sampleblk_snapshot *arg)
{
	struct sblk_snapshot *snapshot;
	unsigned int flags;
	int err;

	if (arg->id || arg->clone || arg->flags & ~SAMPLEBLK_SNAPSHOT_F_SEQUENCE)
		return -EINVAL;
	if (dev->nr_snapshots == SAMPLEBLK_MAX_SNAPSHOTS)
		return -ENOSPC;
	if (dev->parked)
		return -EBUSY;
	snapshot = kzalloc(sizeof(*snapshot), GFP_KERNEL);
	if (!snapshot)
		return -ENOMEM;
	flags = sblk_device_freeze(dev);
	if (arg->flags & SAMPLEBLK_SNAPSHOT_F_SEQUENCE)
		err = take_past_frozen(dev, snapshot, arg->sequence);
	else
		err = take_frozen(dev, snapshot);
	sblk_device_unfreeze(dev, flags);
	if (err) {
		kfree(snapshot);
		return err;
	}
	snapshot->id = dev->next_snapshot++;
	list_add_tail(&snapshot->list, &dev->snapshots);
	dev->nr_snapshots++;
	arg->id = snapshot->id;
	return 0;
}

static int snapshot_restore(struct sblk_device *dev, struct sampleblk_snapshot *arg)
{
	struct sblk_snapshot *snapshot = snapshot_find(dev, arg->id);
	struct sblk_store *top;
	unsigned int flags;

	if (arg->clone || arg->flags & ~SAMPLEBLK_SNAPSHOT_F_FORCE)
		return -EINVAL;
	if (!snapshot)
		return -ENOENT;
	/* The journal could not tell of it in fewer bytes than the device has. */
	if (dev->media.journal)
		return -EBUSY;
	if (!(arg->flags & SAMPLEBLK_SNAPSHOT_F_FORCE) && sblk_device_is_open(dev))
		return -EBUSY;
	top = sblk_store_create(dev->config.capacity_bytes, snapshot->store);
	if (!top)
		return -ENOMEM;
	flags = sblk_device_freeze(dev);
	swap(dev->media.store, top);
	if (dev->media.cache)
		sblk_cache_flush(dev->media.cache);
	update_atomic(dev);
	sblk_device_unfreeze(dev, flags);
	sblk_store_put(top);
	sblk_invalidate_disk(dev->disk);
	return 0;
}

static int snapshot_delete(struct sblk_device *dev, struct sampleblk_snapshot *arg)
{
	struct sblk_snapshot *snapshot = snapshot_find(dev, arg->id);
	unsigned int flags;

	if (arg->flags || arg->clone)
		return -EINVAL;
	if (!snapshot)
		return -ENOENT;
	snapshot_free(snapshot);
	dev->nr_snapshots--;
	/* Or reads would go through every snapshot there ever was. */
	flags = sblk_device_freeze(dev);
	if (!dev->parked)
		sblk_store_merge(dev->media.store);
	sblk_device_unfreeze(dev, flags);
	return 0;
}

static int snapshot_list(struct sblk_device *dev, struct sampleblk_snapshot *arg)
{
	struct sblk_snapshot *snapshot;

	if (arg->flags || arg->clone || arg->id)
		return -EINVAL;
	arg->count = 0;
	list_for_each_entry(snapshot, &dev->snapshots, list)
		arg->ids[arg->count++] = snapshot->id;
	return 0;
}

int sblk_snapshot(struct sblk_device *dev, struct sampleblk_snapshot *arg)
{
	int err;

	switch (arg->action) {
	case SAMPLEBLK_SNAPSHOT_TAKE:
		err = snapshot_take(dev, arg);
		break;
	case SAMPLEBLK_SNAPSHOT_RESTORE:
		err = snapshot_restore(dev, arg);
		break;
	case SAMPLEBLK_SNAPSHOT_DELETE:
		err = snapshot_delete(dev, arg);
		break;
	case SAMPLEBLK_SNAPSHOT_LIST:
		return snapshot_list(dev, arg);
	default:
		return -EINVAL;
	}
	if (!err)
		trace_sampleblk_snapshot(dev, arg->action, arg->id);
	return err;
}

struct sblk_store *sblk_snapshot_store(struct sblk_device *dev, u32 id)
{
	struct sblk_snapshot *snapshot = snapshot_find(dev, id);

	return snapshot ? sblk_store_get(snapshot->store) : NULL;
}
