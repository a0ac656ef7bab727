// SPDX-License-Identifier: GPL-2.0-only
#include "control/power.h"

#include <linux/uaccess.h>

#include "block/command.h"
#include "block/open.h"
#include "block/trace.h"
#include "compat.h"

#define SBLK_CACHE_DEFAULT (16ULL << 20)
#define SBLK_CACHE_MIN (64ULL << 10)
#define SBLK_CACHE_MAX (4ULL << 30)

int sblk_cache_configure(struct sampleblk_config *config)
{
	if (!(config->flags & SAMPLEBLK_F_CACHE))
		return config->cache_bytes ? -EINVAL : 0;
	if (!config->cache_bytes)
		config->cache_bytes = SBLK_CACHE_DEFAULT;
	return config->cache_bytes < SBLK_CACHE_MIN || config->cache_bytes > SBLK_CACHE_MAX ? -EINVAL : 0;
}

static int survivors_from_user(const struct sampleblk_power *power, struct sblk_cut *cut)
{
	struct sampleblk_survivor *survivors;
	u64 i;

	if (!power->nr_survivors)
		return 0;
	if (power->nr_survivors > SBLK_CACHE_MAX_WRITES)
		return -EINVAL;
	survivors = kvmalloc_array(power->nr_survivors, sizeof(*survivors), GFP_KERNEL);
	if (!survivors)
		return -ENOMEM;
	if (copy_from_user(survivors, u64_to_user_ptr(power->survivors), sizeof(*survivors) * power->nr_survivors)) {
		kvfree(survivors);
		return -EFAULT;
	}
	for (i = 0; i < power->nr_survivors; i++) {
		if ((i && survivors[i].id <= survivors[i - 1].id) || survivors[i].sectors & (cut->unit_sectors - 1)) {
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
		.unit_sectors = dev->config.logical_block_bytes >> SECTOR_SHIFT,
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
	/* No success is told from here on, and nothing written … */
	err = sblk_medium_power_off(&dev->medium);
	if (err)
		goto out;
	/* … once those are through who had just looked: in the plain path and the slow one, and in the worker. */
	sblk_slow_path_on(dev, SBLK_SLOW_POWER);
	mutex_lock(&dev->worker_lock);
	mutex_unlock(&dev->worker_lock);
	sblk_medium_cut(&dev->medium, &cut, ktime_get_ns());
	if (dev->zones)
		sblk_zones_power_cut(dev->zones);
	sblk_cmd_release(dev, SBLK_EVERY_WAY, BLK_STS_IOERR, SBLK_EVERY_RULE);
	power->dropped = cut.dropped;
	power->survived = cut.survived;
	power->torn = cut.torn;
	trace_sampleblk_power(dev, false, cut.dropped, cut.survived, cut.torn);
out:
	kvfree(cut.survivors);
	return err;
}

static int power_on(struct sblk_device *dev)
{
	int err;

	if (!dev->medium.off)
		return -EALREADY;
	err = sblk_exclusive_begin(dev, true);
	if (err)
		return err;
	/* What the page cache still holds is older, or was never written. */
	sblk_forget_pages(dev, 0);
	err = sblk_medium_power_on(&dev->medium);
	sblk_slow_path_off(dev, SBLK_SLOW_POWER);
	sblk_exclusive_end(dev);
	trace_sampleblk_power(dev, true, 0, 0, 0);
	return err;
}

int sblk_power(struct sblk_device *dev, struct sampleblk_power *power)
{
	if (power->action == SAMPLEBLK_POWER_CUT)
		return power_cut(dev, power);
	if (power->action != SAMPLEBLK_POWER_ON || power->mode || power->flags || power->survive_percent ||
	    power->nr_survivors)
		return -EINVAL;
	return power_on(dev);
}

int sblk_volatile_list(struct sblk_device *dev, struct sampleblk_volatile_list *list)
{
	struct sblk_volatile_copy copy = { .room = min_t(u64, list->nr, SBLK_CACHE_MAX_WRITES) };
	int err = 0;

	if (copy.room) {
		copy.list = kvcalloc(copy.room, sizeof(*copy.list), GFP_KERNEL);
		if (!copy.list)
			return -ENOMEM;
	}
	sblk_medium_list(&dev->medium, &copy);
	if (copy_to_user(u64_to_user_ptr(list->list), copy.list, sizeof(*copy.list) * min(copy.room, copy.nr)))
		err = -EFAULT;
	list->nr = copy.nr;
	list->written_back = copy.written_back;
	list->order = copy.order;
	kvfree(copy.list);
	return err;
}
