// SPDX-License-Identifier: GPL-2.0-only
#include "control/snapshot.h"

#include "block/freeze.h"
#include "block/trace.h"
#include "compat.h"
#include "control/replace.h"

static struct sblk_snapshot *snapshot_find(struct sblk_device *dev, u32 id)
{
	struct sblk_snapshot *snapshot;

	list_for_each_entry(snapshot, &dev->snapshots, list)
		if (snapshot->id == id)
			return snapshot;
	return NULL;
}

static void snapshot_free(struct sblk_snapshot *snapshot)
{
	list_del(&snapshot->list);
	sblk_store_put(snapshot->store);
	kfree(snapshot);
}

void sblk_snapshots_destroy(struct sblk_device *dev)
{
	struct sblk_snapshot *snapshot, *next;

	list_for_each_entry_safe(snapshot, next, &dev->snapshots, list)
		snapshot_free(snapshot);
}

static u32 snapshots_of(struct sblk_device *dev, const struct sblk_store *store)
{
	struct sblk_snapshot *snapshot;
	u32 count = 0;

	list_for_each_entry(snapshot, &dev->snapshots, list)
		count += snapshot->store == store;
	return count;
}

/*
 * With the queue frozen: merges what snapshots and clones that are gone have left below the current store and below other
 * snapshots, or reads would go through every snapshot there ever was. Not what a clone lies on: that is not frozen.
 */
static void merge_layers(struct sblk_device *dev)
{
	struct sblk_store *store = dev->medium.store;

	sblk_medium_merge(&dev->medium);
	while ((store = store->base) && kref_read(&store->kref) == 1 + snapshots_of(dev, store))
		sblk_store_merge(store);
}

/* With the queue frozen. The current store stays as it is; what is written from now on goes to a layer on top. */
static int take_frozen(struct sblk_device *dev, struct sblk_snapshot *snapshot)
{
	struct sblk_store *below = dev->medium.store;
	struct sblk_store *top = sblk_store_create(below->bytes, below);
	int err;

	if (!top)
		return -ENOMEM;
	err = sblk_medium_push(&dev->medium, top);
	if (err) {
		sblk_store_put(top);
		return err;
	}
	snapshot->store = below;
	return 0;
}

/* The same for how it was at some sequence: the current store, and a layer of changes back on top of it. */
static int take_past_frozen(struct sblk_device *dev, struct sblk_snapshot *snapshot, u64 sequence)
{
	struct sblk_store *view;
	int err;

	if (!dev->medium.journal)
		return -ENOENT;
	view = sblk_store_create(dev->medium.store->bytes, dev->medium.store);
	if (!view)
		return -ENOMEM;
	err = sblk_journal_view(&dev->journal, view, sequence, &dev->closing);
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

/* Keeps it, with the store that it has been given. */
static u32 snapshot_add(struct sblk_device *dev, struct sblk_snapshot *snapshot)
{
	snapshot->id = dev->next_snapshot++;
	list_add_tail(&snapshot->list, &dev->snapshots);
	dev->nr_snapshots++;
	return snapshot->id;
}

int sblk_snapshot_keep(struct sblk_device *dev, struct sblk_store *store, u32 *id)
{
	struct sblk_snapshot *snapshot;

	if (dev->nr_snapshots == SAMPLEBLK_MAX_SNAPSHOTS)
		return -ENOSPC;
	snapshot = kzalloc(sizeof(*snapshot), GFP_KERNEL);
	if (!snapshot)
		return -ENOMEM;
	snapshot->store = sblk_store_get(store);
	*id = snapshot_add(dev, snapshot);
	return 0;
}

static int snapshot_take(struct sblk_device *dev, struct sampleblk_snapshot *arg)
{
	struct sblk_snapshot *snapshot;
	struct sblk_freeze freeze;
	int err;

	if (arg->id || arg->clone || arg->flags & ~SAMPLEBLK_SNAPSHOT_F_SEQUENCE)
		return -EINVAL;
	/* Zones would have to go back, too. */
	if (dev->zones)
		return -EOPNOTSUPP;
	if (dev->nr_snapshots == SAMPLEBLK_MAX_SNAPSHOTS)
		return -ENOSPC;
	/* The store below is moved by the next seek, so nothing else may lie on it. */
	if (dev->journal_store)
		return -EBUSY;
	snapshot = kzalloc(sizeof(*snapshot), GFP_KERNEL);
	if (!snapshot)
		return -ENOMEM;
	err = sblk_freeze(dev, &freeze);
	if (!err) {
		merge_layers(dev);
		if (arg->flags & SAMPLEBLK_SNAPSHOT_F_SEQUENCE)
			err = take_past_frozen(dev, snapshot, arg->sequence);
		else
			err = take_frozen(dev, snapshot);
		sblk_unfreeze(dev, &freeze);
	}
	if (err) {
		kfree(snapshot);
		return err;
	}
	arg->id = snapshot_add(dev, snapshot);
	return 0;
}

static int snapshot_restore(struct sblk_device *dev, struct sampleblk_snapshot *arg)
{
	struct sblk_snapshot *snapshot = snapshot_find(dev, arg->id);

	if (arg->clone || arg->flags & ~SAMPLEBLK_SNAPSHOT_F_FORCE)
		return -EINVAL;
	if (!snapshot)
		return -ENOENT;
	return sblk_replace_store(dev, snapshot->store, arg->flags & SAMPLEBLK_SNAPSHOT_F_FORCE);
}

static int snapshot_delete(struct sblk_device *dev, struct sampleblk_snapshot *arg)
{
	struct sblk_snapshot *snapshot = snapshot_find(dev, arg->id);
	struct sblk_freeze freeze;
	int err;

	if (arg->flags || arg->clone)
		return -EINVAL;
	if (!snapshot)
		return -ENOENT;
	err = sblk_freeze(dev, &freeze);
	if (err)
		return err;
	snapshot_free(snapshot);
	dev->nr_snapshots--;
	if (!dev->journal_store)
		merge_layers(dev);
	sblk_unfreeze(dev, &freeze);
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

static bool lies_on(const struct sblk_store *top, const struct sblk_store *store)
{
	while (top && top != store)
		top = top->base;
	return top;
}

u64 sblk_allocated_bytes(struct sblk_device *dev)
{
	u64 bytes = sblk_store_allocated_bytes(dev->medium.store);
	struct sblk_snapshot *snapshot, *other;
	struct sblk_store *store;

	/* Of each snapshot what lies neither below the current store nor below a snapshot before it. */
	list_for_each_entry(snapshot, &dev->snapshots, list) {
		for (store = snapshot->store; store && !lies_on(dev->medium.store, store); store = store->base) {
			list_for_each_entry(other, &dev->snapshots, list)
				if (other == snapshot || lies_on(other->store, store))
					break;
			if (other != snapshot)
				break;
			bytes += (u64)atomic64_read(&store->allocated) << SBLK_PAGE_SHIFT;
		}
	}
	return bytes;
}
