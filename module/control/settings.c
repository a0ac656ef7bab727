// SPDX-License-Identifier: GPL-2.0-only
#include "control/settings.h"

#include <linux/log2.h>
#include <linux/uaccess.h>

#include "block/command.h"
#include "block/freeze.h"
#include "block/integrity.h"
#include "block/open.h"
#include "compat.h"

/* Between sblk_drain_begin() and sblk_drain_end(). */
static int set_queues(struct sblk_device *dev, u32 queues)
{
	u32 poll = dev->config.poll_queues;

	blk_mq_update_nr_hw_queues(&dev->tag_set, queues + poll);
	dev->config.queues = dev->tag_set.nr_hw_queues - poll;
	/* Without memory the kernel stays with what it had. */
	return dev->config.queues == queues ? 0 : -ENOMEM;
}

static int prepare_histograms(struct sblk_device *dev)
{
	unsigned int i;

	for (i = 0; i < dev->nr_queues; i++) {
		struct sblk_histograms __percpu *histograms;

		if (dev->queues[i].histograms)
			continue;
		histograms = alloc_percpu(struct sblk_histograms);
		if (!histograms)
			return -ENOMEM;
		WRITE_ONCE(dev->queues[i].histograms, histograms);
	}
	return 0;
}

static void set_flag(struct sblk_device *dev, u32 flag, bool on)
{
	if (on)
		dev->config.flags |= flag;
	else
		dev->config.flags &= ~flag;
}

/* What waits for I/O, by one wait: a signal ends it before anything has changed. */
static int tune_frozen(struct sblk_device *dev, const struct sampleblk_tune *tune)
{
	bool atomic = tune->set & SAMPLEBLK_TUNE_SECTOR_ATOMIC;
	bool queues = tune->set & SAMPLEBLK_TUNE_QUEUES;
	struct sblk_freeze freeze;
	int err;

	if (!atomic && !queues)
		return 0;
	if (atomic && tune->sector_atomic)
		sblk_slow_path_on(dev, SBLK_SLOW_LOG);
	err = sblk_freeze(dev, &freeze);
	if (!err) {
		if (atomic) {
			set_flag(dev, SAMPLEBLK_F_SECTOR_ATOMIC, tune->sector_atomic);
			dev->medium.sector_atomic = tune->sector_atomic;
		}
		/* The kernel freezes the queue with locks of its own taken first, so that waits for it are after this. */
		if (queues)
			sblk_drain_begin(dev);
		sblk_unfreeze(dev, &freeze);
	}
	if (atomic)
		sblk_slow_path_set(dev, SBLK_SLOW_LOG, sblk_medium_logs(&dev->medium));
	if (!err && queues) {
		err = set_queues(dev, tune->queues);
		sblk_drain_end(dev);
	}
	return err;
}

static void set_read_only(struct sblk_device *dev, bool on)
{
	set_flag(dev, SAMPLEBLK_F_READ_ONLY, on);
	/* What has the disk open for writing does not look at this … */
	set_disk_ro(dev->disk, on);
	/* … so its writes fail. */
	sblk_slow_path_set(dev, SBLK_SLOW_READ_ONLY, on);
}

int sblk_tune(struct sblk_device *dev, struct sampleblk_tune *tune)
{
	u32 set = tune->set;
	int err = 0;

	if (set & ~SAMPLEBLK_TUNE_ALL || tune->completion > SAMPLEBLK_COMPLETE_TIMER || tune->histograms > 1 ||
	    tune->read_only > 1 || tune->sector_atomic > 1)
		return -EINVAL;
	if (set & SAMPLEBLK_TUNE_SECTOR_ATOMIC && tune->sector_atomic && (dev->zones || sblk_has_integrity(dev)))
		return -EOPNOTSUPP;
	if (set & SAMPLEBLK_TUNE_QUEUES && dev->bio_mode)
		return -EOPNOTSUPP;
	if (set & SAMPLEBLK_TUNE_QUEUES && (!tune->queues || tune->queues > dev->nr_queues - dev->config.poll_queues))
		return -EINVAL;
	if (set & SAMPLEBLK_TUNE_HISTOGRAMS && tune->histograms)
		err = prepare_histograms(dev);
	if (!err)
		err = tune_frozen(dev, tune);
	if (err)
		return err;
	if (set & SAMPLEBLK_TUNE_HISTOGRAMS)
		sblk_slow_path_set(dev, SBLK_SLOW_HISTOGRAMS, tune->histograms);
	if (set & SAMPLEBLK_TUNE_COMPLETION) {
		WRITE_ONCE(dev->config.completion, tune->completion);
		sblk_slow_path_set(dev, SBLK_SLOW_COMPLETION, tune->completion != SAMPLEBLK_COMPLETE_INLINE);
	}
	if (set & SAMPLEBLK_TUNE_READ_ONLY)
		set_read_only(dev, tune->read_only);
	tune->queues = dev->config.queues;
	tune->completion = dev->config.completion;
	tune->histograms = test_bit(SBLK_SLOW_HISTOGRAMS, &dev->slow_path);
	tune->read_only = !!(dev->config.flags & SAMPLEBLK_F_READ_ONLY);
	tune->sector_atomic = !!(dev->config.flags & SAMPLEBLK_F_SECTOR_ATOMIC);
	return 0;
}

static int change_capacity(struct sblk_device *dev, u64 capacity_bytes)
{
	struct sblk_faults *faults = rcu_dereference_protected(dev->faults, lockdep_is_held(&dev->control));
	struct sblk_freeze freeze;
	int err = sblk_freeze(dev, &freeze);

	if (err)
		return err;
	/* What lay below for a snapshot or a clone that is gone. */
	sblk_medium_merge(&dev->medium);
	if (faults && capacity_bytes > dev->config.capacity_bytes)
		err = sblk_faults_grow(faults, capacity_bytes >> SECTOR_SHIFT);
	if (!err)
		err = sblk_medium_resize(&dev->medium, capacity_bytes);
	if (!err)
		WRITE_ONCE(dev->config.capacity_bytes, capacity_bytes);
	sblk_unfreeze(dev, &freeze);
	/* Told when it is so, and not when it was refused: what the kernel does with a smaller disk is not taken back. */
	if (!err)
		sblk_set_capacity(dev->disk, capacity_bytes >> SECTOR_SHIFT);
	return err;
}

/* What the page cache holds beyond the end would be read again where the device grows again. */
static int forget_beyond_end(struct sblk_device *dev)
{
	int err = sblk_exclusive_begin(dev, true);

	/* A file system knows its size, and what it has in the page cache must stay. */
	if (err == -EBUSY)
		return 0;
	if (err)
		return err;
	/* Of the last page a part is still there, and is waited for while it is written, but not by a rule. */
	sblk_drain_begin(dev);
	sblk_forget_pages(dev, dev->config.capacity_bytes);
	sblk_drain_end(dev);
	sblk_exclusive_end(dev);
	return 0;
}

int sblk_resize(struct sblk_device *dev, u64 capacity_bytes)
{
	u64 before = dev->config.capacity_bytes;
	int err = 0;

	if (capacity_bytes < SAMPLEBLK_MIN_CAPACITY_BYTES || capacity_bytes > SAMPLEBLK_MAX_CAPACITY_BYTES ||
	    capacity_bytes & (dev->config.logical_block_bytes - 1))
		return -EINVAL;
	/* What lies behind its end would have to move. */
	if (dev->zones || sblk_has_integrity(dev))
		return -EOPNOTSUPP;
	/* The journal has entries of what would be gone; snapshots have another size. */
	if (dev->medium.journal || dev->nr_snapshots)
		return -EBUSY;
	/* Failed writes to a partition that goes beyond the end. */
	if (capacity_bytes > before)
		err = forget_beyond_end(dev);
	if (!err && capacity_bytes != before)
		err = change_capacity(dev, capacity_bytes);
	/* Also when this is the second try, after a signal. */
	if (!err && capacity_bytes <= before)
		err = forget_beyond_end(dev);
	return err;
}

int sblk_histogram(struct sblk_device *dev, struct sampleblk_histogram *histogram)
{
	unsigned int i;

	if (histogram->op >= SAMPLEBLK_OPS)
		return -EINVAL;
	if (histogram->queue != SAMPLEBLK_QUEUE_ALL && histogram->queue >= dev->nr_queues)
		return -EINVAL;
	for (i = 0; i < dev->nr_queues; i++)
		if ((histogram->queue == SAMPLEBLK_QUEUE_ALL || histogram->queue == i) && dev->queues[i].histograms)
			sblk_histograms_sum(dev->queues[i].histograms, histogram);
	return 0;
}

int sblk_counters(struct sblk_device *dev, struct sampleblk_counters *counters)
{
	unsigned int i;

	if (counters->queue != SAMPLEBLK_QUEUE_ALL && counters->queue >= dev->nr_queues)
		return -EINVAL;
	for (i = 0; i < dev->nr_queues; i++)
		if (counters->queue == SAMPLEBLK_QUEUE_ALL || counters->queue == i)
			sblk_stats_sum(dev->queues[i].stats, counters);
	return 0;
}

int sblk_reset(struct sblk_device *dev)
{
	struct sblk_freeze freeze;
	unsigned int i;
	/* Counting is no atomic operation: nobody may be at it. */
	int err = sblk_freeze(dev, &freeze);

	if (err)
		return err;
	for (i = 0; i < dev->nr_queues; i++) {
		sblk_stats_reset(dev->queues[i].stats);
		if (dev->queues[i].histograms)
			sblk_histograms_reset(dev->queues[i].histograms);
	}
	sblk_unfreeze(dev, &freeze);
	return 0;
}

static void update_timing(struct sblk_device *dev)
{
	bool on = rcu_access_pointer(dev->throttle);
	unsigned int i;

	for (i = 0; i < SAMPLEBLK_OPS; i++)
		on |= !!rcu_access_pointer(dev->latency[i]);
	sblk_slow_path_set(dev, SBLK_SLOW_TIMING, on);
}

static struct sblk_latency *latency_from(const struct sampleblk_timing *timing, u32 op)
{
	struct sblk_latency *latency;
	int err;

	if (timing->nr_bins > SAMPLEBLK_MAX_BINS)
		return ERR_PTR(-EINVAL);
	latency = sblk_latency_create(timing->nr_bins);
	if (!latency)
		return ERR_PTR(-ENOMEM);
	latency->model = timing->model;
	latency->a = timing->a;
	latency->b = timing->b;
	/* Operations that share a call do not share their chance. */
	latency->seed = timing->seed + op;
	err = 0;
	if (copy_from_user(latency->bins, u64_to_user_ptr(timing->bins), sizeof(*latency->bins) * timing->nr_bins))
		err = -EFAULT;
	if (!err)
		err = sblk_latency_check(latency);
	if (err) {
		sblk_latency_destroy(latency);
		return ERR_PTR(err);
	}
	return latency;
}

int sblk_set_timing(struct sblk_device *dev, const struct sampleblk_timing *timing)
{
	struct sblk_latency *latency[SAMPLEBLK_OPS] = {};
	int err = 0;
	u32 op;

	if (!timing->ops || timing->ops >= 1U << SAMPLEBLK_OPS)
		return -EINVAL;
	for (op = 0; op < SAMPLEBLK_OPS; op++) {
		if (!(timing->ops & 1U << op))
			continue;
		latency[op] = latency_from(timing, op);
		if (IS_ERR(latency[op])) {
			err = PTR_ERR(latency[op]);
			latency[op] = NULL;
			goto free;
		}
		if (timing->model == SAMPLEBLK_LATENCY_NONE) {
			sblk_latency_destroy(latency[op]);
			latency[op] = NULL;
		}
	}
	for (op = 0; op < SAMPLEBLK_OPS; op++)
		if (timing->ops & 1U << op)
			latency[op] = rcu_replace_pointer(dev->latency[op], latency[op],
							  lockdep_is_held(&dev->control));
	update_timing(dev);
	synchronize_rcu_expedited();
free:
	for (op = 0; op < SAMPLEBLK_OPS; op++)
		sblk_latency_destroy(latency[op]);
	return err;
}

int sblk_get_timing(struct sblk_device *dev, struct sampleblk_timing *timing)
{
	struct sampleblk_bin __user *user = u64_to_user_ptr(timing->bins);
	const struct sblk_latency *latency;
	u32 room = timing->nr_bins;
	u64 before = 0;
	u32 op, i;

	/* Of one operation: others may have another model. */
	if (!is_power_of_2(timing->ops) || timing->ops >= 1U << SAMPLEBLK_OPS)
		return -EINVAL;
	op = ilog2(timing->ops);
	latency = rcu_dereference_protected(dev->latency[op], lockdep_is_held(&dev->control));
	timing->model = latency ? latency->model : SAMPLEBLK_LATENCY_NONE;
	timing->nr_bins = latency ? latency->nr_bins : 0;
	timing->a = latency ? latency->a : 0;
	timing->b = latency ? latency->b : 0;
	timing->seed = latency ? latency->seed - op : 0;
	for (i = 0; i < min(room, timing->nr_bins); i++) {
		struct sampleblk_bin bin = latency->bins[i];

		/* As it was uploaded: see struct sblk_latency. */
		bin.count -= before;
		before += bin.count;
		if (copy_to_user(user + i, &bin, sizeof(bin)))
			return -EFAULT;
	}
	return 0;
}

struct sampleblk_limits sblk_get_limits(struct sblk_device *dev)
{
	struct sampleblk_limits limits = {};
	struct sblk_throttle *throttle;

	rcu_read_lock();
	throttle = rcu_dereference(dev->throttle);
	if (throttle) {
		limits.bytes_per_second = throttle->bytes_per_second;
		limits.iops = throttle->iops;
		limits.stall_period_ns = throttle->stall_period_ns;
		limits.stall_ns = throttle->stall_ns;
		limits.stall_offset_ns = throttle->stall_offset_ns;
	}
	rcu_read_unlock();
	return limits;
}

int sblk_set_limits(struct sblk_device *dev, const struct sampleblk_limits *limits)
{
	struct sblk_throttle *throttle = NULL;

	if (limits->bytes_per_second || limits->iops || limits->stall_period_ns || limits->stall_ns ||
	    limits->stall_offset_ns) {
		throttle = kzalloc(sizeof(*throttle), GFP_KERNEL);
		if (!throttle)
			return -ENOMEM;
		throttle->bytes_per_second = limits->bytes_per_second;
		throttle->iops = limits->iops;
		throttle->stall_period_ns = limits->stall_period_ns;
		throttle->stall_ns = limits->stall_ns;
		throttle->stall_offset_ns = limits->stall_offset_ns;
		if (sblk_throttle_check(throttle)) {
			kfree(throttle);
			return -EINVAL;
		}
	}
	throttle = rcu_replace_pointer(dev->throttle, throttle, lockdep_is_held(&dev->control));
	update_timing(dev);
	synchronize_rcu_expedited();
	kfree(throttle);
	return 0;
}

int sblk_set_faults(struct sblk_device *dev, const struct sampleblk_faults *faults)
{
	struct sampleblk_rule __user *user = u64_to_user_ptr(faults->rules);
	struct sblk_faults *old = rcu_dereference_protected(dev->faults, lockdep_is_held(&dev->control));
	struct sblk_faults *table = NULL;
	bool add = faults->flags & SAMPLEBLK_FAULTS_ADD;
	u32 kept = add && old ? old->nr_rules : 0;
	u32 i;

	if (faults->flags & ~(u64)SAMPLEBLK_FAULTS_ADD || faults->nr_rules > SAMPLEBLK_MAX_RULES - kept)
		return -EINVAL;
	if (add && !faults->nr_rules)
		return 0;
	if (faults->nr_rules) {
		table = sblk_faults_create(kept + faults->nr_rules, faults->seed, ktime_get_ns());
		if (!table)
			return -ENOMEM;
		table->generation = dev->faults_generation + 1;
		if (kept)
			sblk_faults_borrow(table, old);
	}
	for (i = 0; i < faults->nr_rules; i++) {
		struct sampleblk_rule rule;
		int err = 0;

		if (copy_from_user(&rule, user + i, sizeof(rule)))
			err = -EFAULT;
		if (!err && rule.action == SAMPLEBLK_FAULT_CORRUPT_TAG && !sblk_has_integrity(dev))
			err = -EOPNOTSUPP;
		if (!err)
			err = sblk_fault_set(table, kept + i, &rule, dev->config.capacity_bytes >> SECTOR_SHIFT);
		if (err) {
			sblk_faults_destroy(table);
			return err;
		}
	}
	if (!kept)
		WRITE_ONCE(dev->faults_generation, dev->faults_generation + 1);
	rcu_assign_pointer(dev->faults, table);
	sblk_slow_path_set(dev, SBLK_SLOW_FAULTS, faults->nr_rules);
	synchronize_rcu_expedited();
	if (kept)
		sblk_faults_replace(table, old);
	sblk_faults_destroy(old);
	if (kept)
		return 0;
	/* What old rules let wait is among these: what comes to wait later sees that its table is gone. */
	sblk_cmd_release(dev, BIT(SBLK_WAIT_HUNG), BLK_STS_IOERR, dev->faults_generation);
	sblk_cmd_release(dev, BIT(SBLK_WAIT_HELD), BLK_STS_OK, dev->faults_generation);
	return 0;
}

int sblk_get_faults(struct sblk_device *dev, struct sampleblk_faults *faults)
{
	struct sblk_faults *table = rcu_dereference_protected(dev->faults, lockdep_is_held(&dev->control));
	struct sampleblk_rule __user *user = u64_to_user_ptr(faults->rules);
	u32 room = faults->nr_rules;
	u32 i;

	faults->nr_rules = table ? table->nr_rules : 0;
	faults->seed = table ? table->seed : 0;
	for (i = 0; i < min(room, faults->nr_rules); i++) {
		struct sampleblk_rule rule = sblk_fault_get(table, i);

		if (copy_to_user(user + i, &rule, sizeof(rule)))
			return -EFAULT;
	}
	return 0;
}

void sblk_settings_destroy(struct sblk_device *dev)
{
	unsigned int i;

	for (i = 0; i < SAMPLEBLK_OPS; i++)
		sblk_latency_destroy(rcu_dereference_protected(dev->latency[i], true));
	kfree(rcu_dereference_protected(dev->throttle, true));
	sblk_faults_destroy(rcu_dereference_protected(dev->faults, true));
}
