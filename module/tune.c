// SPDX-License-Identifier: GPL-2.0-only
/* What can change while I/O runs. */
#include <linux/log2.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "sampleblk.h"

void sblk_set_extra(struct sblk_device *dev, u32 bit, bool on)
{
	u32 extras = on ? dev->extras | bit : dev->extras & ~bit;

	if (!dev->extras && extras)
		static_branch_inc(&sblk_extras_key);
	else if (dev->extras && !extras)
		static_branch_dec(&sblk_extras_key);
	WRITE_ONCE(dev->extras, extras);
}

unsigned int sblk_device_freeze(struct sblk_device *dev)
{
	unsigned int flags;

	/* What a rule holds for ever would be waited for as long. */
	sblk_cmd_release_hung(dev, BLK_STS_IOERR);
	flags = sblk_freeze_queue(dev->disk->queue);
	sblk_cmd_release_hung(dev, BLK_STS_IOERR);
	wait_event(dev->bios_wait, !atomic_read(&dev->bios));
	return flags;
}

void sblk_device_unfreeze(struct sblk_device *dev, unsigned int flags)
{
	sblk_unfreeze_queue(dev->disk->queue, flags);
}

static int set_queues(struct sblk_device *dev, u32 queues)
{
	if (dev->bio_mode)
		return -EOPNOTSUPP;
	if (!queues || queues + dev->config.poll_queues > dev->nr_queues)
		return -EINVAL;
	sblk_cmd_release_hung(dev, BLK_STS_IOERR);
	blk_mq_update_nr_hw_queues(&dev->tag_set, queues + dev->config.poll_queues);
	dev->config.queues = dev->tag_set.nr_hw_queues - dev->config.poll_queues;
	/* Without memory the kernel stays with what it had. */
	return dev->config.queues == queues ? 0 : -ENOMEM;
}

static int set_histograms(struct sblk_device *dev, bool on)
{
	unsigned int i;

	for (i = 0; on && i < dev->nr_queues; i++) {
		struct sblk_histograms __percpu *histograms;

		if (dev->queues[i].histograms)
			continue;
		histograms = alloc_percpu(struct sblk_histograms);
		if (!histograms)
			return -ENOMEM;
		WRITE_ONCE(dev->queues[i].histograms, histograms);
	}
	sblk_set_extra(dev, SBLK_EXTRA_HISTOGRAMS, on);
	return 0;
}

static void set_flag(struct sblk_device *dev, u32 flag, bool on)
{
	if (on)
		dev->config.flags |= flag;
	else
		dev->config.flags &= ~flag;
}

/* Whether writes to a sector take turns. */
static void set_atomic(struct sblk_device *dev, bool on)
{
	struct sblk_store *store;
	unsigned int flags = sblk_device_freeze(dev);

	set_flag(dev, SAMPLEBLK_F_SECTOR_ATOMIC, on);
	store = dev->media.store;
	store->atomic = on || dev->media.journal;
	sblk_device_unfreeze(dev, flags);
}

int sblk_tune(struct sblk_device *dev, struct sampleblk_tune *tune)
{
	u32 set = tune->set;
	int err = 0;

	if (set & ~SAMPLEBLK_TUNE_ALL || tune->completion > SAMPLEBLK_COMPLETE_TIMER || tune->histograms > 1 ||
	    tune->read_only > 1 || tune->sector_atomic > 1)
		return -EINVAL;
	if (set & SAMPLEBLK_TUNE_QUEUES)
		err = set_queues(dev, tune->queues);
	if (!err && set & SAMPLEBLK_TUNE_HISTOGRAMS)
		err = set_histograms(dev, tune->histograms);
	if (err)
		return err;
	if (set & SAMPLEBLK_TUNE_COMPLETION) {
		WRITE_ONCE(dev->config.completion, tune->completion);
		sblk_set_extra(dev, SBLK_EXTRA_COMPLETION, tune->completion != SAMPLEBLK_COMPLETE_INLINE);
	}
	if (set & SAMPLEBLK_TUNE_READ_ONLY) {
		set_flag(dev, SAMPLEBLK_F_READ_ONLY, tune->read_only);
		set_disk_ro(dev->disk, tune->read_only);
	}
	if (set & SAMPLEBLK_TUNE_SECTOR_ATOMIC)
		set_atomic(dev, tune->sector_atomic);
	tune->queues = dev->config.queues;
	tune->completion = dev->config.completion;
	tune->histograms = !!(dev->extras & SBLK_EXTRA_HISTOGRAMS);
	tune->read_only = !!(dev->config.flags & SAMPLEBLK_F_READ_ONLY);
	tune->sector_atomic = !!(dev->config.flags & SAMPLEBLK_F_SECTOR_ATOMIC);
	return 0;
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

void sblk_reset(struct sblk_device *dev)
{
	/* Counting is no atomic operation: nobody may be at it. */
	unsigned int flags = sblk_device_freeze(dev);
	unsigned int i;

	for (i = 0; i < dev->nr_queues; i++) {
		sblk_stats_reset(dev->queues[i].stats);
		if (dev->queues[i].histograms)
			sblk_histograms_reset(dev->queues[i].histograms);
	}
	sblk_device_unfreeze(dev, flags);
}

static void update_timing_extra(struct sblk_device *dev)
{
	bool on = rcu_access_pointer(dev->throttle);
	unsigned int i;

	for (i = 0; i < SAMPLEBLK_OPS; i++)
		on |= !!rcu_access_pointer(dev->latency[i]);
	sblk_set_extra(dev, SBLK_EXTRA_TIMING, on);
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
	update_timing_extra(dev);
	synchronize_rcu();
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
	update_timing_extra(dev);
	synchronize_rcu();
	kfree(throttle);
	return 0;
}

int sblk_set_faults(struct sblk_device *dev, const struct sampleblk_faults *faults)
{
	struct sampleblk_rule __user *user = u64_to_user_ptr(faults->rules);
	struct sblk_faults *table = NULL;
	u32 i;

	if (faults->nr_rules > SAMPLEBLK_MAX_RULES)
		return -EINVAL;
	if (faults->nr_rules) {
		table = sblk_faults_create(faults->nr_rules, faults->seed);
		if (!table)
			return -ENOMEM;
	}
	for (i = 0; i < faults->nr_rules; i++) {
		struct sampleblk_rule *rule = &table->rules[i].rule;
		int err = 0;

		if (copy_from_user(rule, user + i, sizeof(*rule)))
			err = -EFAULT;
		if (!err)
			err = sblk_fault_check(rule, dev->config.capacity_bytes >> SECTOR_SHIFT);
		if (err) {
			sblk_faults_destroy(table);
			return err;
		}
	}
	table = rcu_replace_pointer(dev->faults, table, lockdep_is_held(&dev->control));
	sblk_set_extra(dev, SBLK_EXTRA_FAULTS, faults->nr_rules);
	synchronize_rcu();
	sblk_faults_destroy(table);
	/* The rule that held them is gone. */
	sblk_cmd_release_hung(dev, BLK_STS_IOERR);
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
		struct sampleblk_rule rule = table->rules[i].rule;

		rule.matched = atomic64_read(&table->rules[i].matched);
		rule.hits = atomic64_read(&table->rules[i].hits);
		if (copy_to_user(user + i, &rule, sizeof(rule)))
			return -EFAULT;
	}
	return 0;
}

void sblk_tune_destroy(struct sblk_device *dev)
{
	unsigned int i;

	for (i = 0; i < SAMPLEBLK_OPS; i++)
		sblk_latency_destroy(rcu_dereference_protected(dev->latency[i], true));
	kfree(rcu_dereference_protected(dev->throttle, true));
	sblk_faults_destroy(rcu_dereference_protected(dev->faults, true));
}
