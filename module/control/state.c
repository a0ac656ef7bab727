// SPDX-License-Identifier: GPL-2.0-only
#include "control/state.h"

#include <linux/uaccess.h>

#include "block/integrity.h"
#include "block/trace.h"
#include "control/registry.h"
#include "control/replace.h"
#include "control/snapshot.h"

/* A store on top of the snapshot with the parts in it; NULL when the state became a snapshot. With dev->control held. */
static struct sblk_store *compose(struct sblk_device *dev, struct sampleblk_state *state, const struct sampleblk_part *parts)
{
	struct sblk_store *below, *store;
	u64 entries, overflow;
	int err = 0;

	if (!dev->medium.journal)
		return ERR_PTR(-ENOENT);
	below = sblk_snapshot_store(dev, state->snapshot);
	if (!below)
		return ERR_PTR(-ENOENT);
	store = sblk_store_create(below->bytes, below);
	sblk_store_put(below);
	if (!store)
		return ERR_PTR(-ENOMEM);
	/* Changes append under this lock, each whole. */
	spin_lock(&dev->medium.lock);
	entries = dev->journal.entries;
	overflow = dev->journal.overflow;
	spin_unlock(&dev->medium.lock);
	if (overflow)
		err = -EOVERFLOW;
	else
		err = sblk_journal_compose(&dev->journal, entries, store, parts, state->nr_parts,
					   dev->config.logical_block_bytes >> SECTOR_SHIFT, &dev->closing);
	if (!err && !state->target)
		err = sblk_snapshot_keep(dev, store, &state->id);
	if (!err)
		trace_sampleblk_snapshot(dev, SBLK_TRACE_STATE, state->snapshot);
	if (!err && state->target)
		return store;
	sblk_store_put(store);
	return ERR_PTR(err);
}

static int give(struct sblk_store *store, u32 target, bool force)
{
	struct sblk_device *dev = sblk_device_lock(target);
	int err = 0;

	if (IS_ERR(dev))
		return PTR_ERR(dev);
	if (dev->zones || sblk_has_integrity(dev))
		err = -EOPNOTSUPP;
	else if (dev->medium.store->bytes != store->bytes)
		err = -EINVAL;
	else
		err = sblk_replace_store(dev, store, force);
	sblk_device_unlock(dev);
	return err;
}

int sblk_state(struct sampleblk_state *state)
{
	struct sampleblk_part *parts = NULL;
	struct sblk_device *dev;
	struct sblk_store *store;
	int err = 0;

	if (state->flags & ~SAMPLEBLK_STATE_FORCE || (state->flags && !state->target) || state->id ||
	    state->nr_parts > SAMPLEBLK_STATE_MAX_PARTS)
		return -EINVAL;
	if (state->nr_parts) {
		parts = kvmalloc_array(state->nr_parts, sizeof(*parts), GFP_KERNEL);
		if (!parts)
			return -ENOMEM;
		if (copy_from_user(parts, u64_to_user_ptr(state->parts), state->nr_parts * sizeof(*parts))) {
			err = -EFAULT;
			goto out;
		}
	}
	dev = sblk_device_lock(state->index);
	if (IS_ERR(dev)) {
		err = PTR_ERR(dev);
		goto out;
	}
	store = compose(dev, state, parts);
	sblk_device_unlock(dev);
	/* Of one device at a time the lock is held, so that no two can wait for each other. */
	if (IS_ERR(store))
		err = PTR_ERR(store);
	else if (store)
		err = give(store, state->target, state->flags & SAMPLEBLK_STATE_FORCE);
	if (!IS_ERR_OR_NULL(store))
		sblk_store_put(store);
out:
	kvfree(parts);
	return err;
}
