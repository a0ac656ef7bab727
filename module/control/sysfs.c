// SPDX-License-Identifier: GPL-2.0-only
/* All that is a single value. What can change by itself can be written. */
#include "control/sysfs.h"

#include <linux/capability.h>
#include <linux/delay.h>
#include <linux/device.h>
#include <linux/sched/signal.h>

#include "block/command.h"
#include "compat.h"
#include "control/journal_ctl.h"
#include "control/power.h"
#include "control/settings.h"
#include "control/snapshot.h"

static struct sblk_device *to_sblk(struct device *device)
{
	return dev_to_disk(device)->private_data;
}

#define SBLK_ATTR(name, format, value) \
	static ssize_t name##_show(struct device *device, struct device_attribute *attr, char *buf) \
	{ \
		struct sblk_device *dev = to_sblk(device); \
		return sysfs_emit(buf, format "\n", value); \
	} \
	static DEVICE_ATTR_RO(name)

SBLK_ATTR(capacity_bytes, "%llu", dev->config.capacity_bytes);
SBLK_ATTR(depth, "%u", dev->config.depth);
SBLK_ATTR(mode, "%s", dev->bio_mode ? "bio" : "mq");
SBLK_ATTR(poll_queues, "%u", dev->config.poll_queues);
SBLK_ATTR(snapshots, "%u", dev->nr_snapshots);
SBLK_ATTR(flags, "0x%x", dev->config.flags);
SBLK_ATTR(cache_bytes, "%llu", dev->config.cache_bytes);

/* Not a single value, but of what hangs it is the only trace. */
static ssize_t waiting_show(struct device *device, struct device_attribute *attr, char *buf)
{
	return sblk_cmd_show_waiting(to_sblk(device), buf);
}
static DEVICE_ATTR_RO(waiting);

/* One that looks at what others may be changing. Removal waits for readers of sysfs with the lock held. */
#define SBLK_STATE(name, value) \
	static ssize_t name##_show(struct device *device, struct device_attribute *attr, char *buf) \
	{ \
		struct sblk_device *dev = to_sblk(device); \
		u64 number; \
		if (!mutex_trylock(&dev->control)) \
			return -EBUSY; \
		number = value; \
		mutex_unlock(&dev->control); \
		return sysfs_emit(buf, "%llu\n", number); \
	}

SBLK_STATE(allocated_bytes, sblk_allocated_bytes(dev))
static DEVICE_ATTR_RO(allocated_bytes);
SBLK_STATE(volatile_writes, dev->medium.cache ? READ_ONCE(dev->cache.count) : 0)
static DEVICE_ATTR_RO(volatile_writes);
SBLK_STATE(written_back, dev->medium.cache ? READ_ONCE(dev->cache.written_back) : 0)
static DEVICE_ATTR_RO(written_back);

/* All zero where there is no journal. */
#define SBLK_JOURNAL(name, field) \
	SBLK_STATE(name, dev->medium.journal ? READ_ONCE(dev->journal.field) : 0) \
	static DEVICE_ATTR_RO(name)

SBLK_JOURNAL(journal_used_bytes, head);
SBLK_JOURNAL(journal_entries, entries);
SBLK_JOURNAL(journal_overflow, overflow);
SBLK_JOURNAL(journal_position, position);
SBLK_JOURNAL(journal_epoch, epoch);

/*
 * Removal waits for whoever is in here while it holds dev->control, so nobody in here may wait for that: the system call
 * is begun again instead, and finds the file gone. 0 with the lock held.
 */
static int store_lock(struct sblk_device *dev)
{
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (mutex_trylock(&dev->control))
		return 0;
	msleep(5);
	return restart_syscall();
}

/* What is written becomes `field` of `type`, handed to `set` with `init` beside it. */
#define SBLK_STORE(name, type, init, field, set) \
	static ssize_t name##_store(struct device *device, struct device_attribute *attr, const char *buf, \
				    size_t count) \
	{ \
		struct sblk_device *dev = to_sblk(device); \
		u64 number; \
		int err = kstrtou64(buf, 0, &number); \
		if (!err) \
			err = store_lock(dev); \
		if (err) \
			return err; \
		{ \
			type arg = init; \
			arg.field = number; \
			/* Does not fit. */ \
			err = arg.field == number ? set(dev, &arg) : -EINVAL; \
		} \
		mutex_unlock(&dev->control); \
		return err ? err : count; \
	} \
	static DEVICE_ATTR_RW(name)

/* An attribute that can be written. */
#define SBLK_SETTING(name, format, value, type, init, field, set) \
	static ssize_t name##_show(struct device *device, struct device_attribute *attr, char *buf) \
	{ \
		struct sblk_device *dev = to_sblk(device); \
		return sysfs_emit(buf, format "\n", value); \
	} \
	SBLK_STORE(name, type, init, field, set)

#define SBLK_TUNE(name, flag, value) \
	SBLK_SETTING(name, "%u", value, struct sampleblk_tune, { .set = flag }, name, sblk_tune)

SBLK_TUNE(queues, SAMPLEBLK_TUNE_QUEUES, dev->config.queues);
SBLK_TUNE(completion, SAMPLEBLK_TUNE_COMPLETION, dev->config.completion);
SBLK_TUNE(histograms, SAMPLEBLK_TUNE_HISTOGRAMS, test_bit(SBLK_SLOW_HISTOGRAMS, &dev->slow_path));
SBLK_TUNE(read_only, SAMPLEBLK_TUNE_READ_ONLY, !!(dev->config.flags & SAMPLEBLK_F_READ_ONLY));
SBLK_TUNE(sector_atomic, SAMPLEBLK_TUNE_SECTOR_ATOMIC, !!(dev->config.flags & SAMPLEBLK_F_SECTOR_ATOMIC));

#define SBLK_LIMIT(name) \
	SBLK_SETTING(name, "%llu", sblk_get_limits(dev).name, struct sampleblk_limits, sblk_get_limits(dev), name, \
		     sblk_set_limits)

SBLK_LIMIT(bytes_per_second);
SBLK_LIMIT(iops);
SBLK_LIMIT(stall_period_ns);
SBLK_LIMIT(stall_ns);
SBLK_LIMIT(stall_offset_ns);

/* A constant latency, as a number; of any other model there is only the name to show. */
static ssize_t latency_show(struct sblk_device *dev, u32 op, char *buf)
{
	static const char *const models[] = { "none",	     "constant", "uniform", "normal", "lognormal",
					      "exponential", "pareto",	 "empirical" };
	const struct sblk_latency *latency;
	ssize_t ret;

	rcu_read_lock();
	latency = rcu_dereference(dev->latency[op]);
	if (!latency || latency->model == SAMPLEBLK_LATENCY_CONSTANT)
		ret = sysfs_emit(buf, "%llu\n", latency ? latency->a : 0);
	else
		ret = sysfs_emit(buf, "%s\n", models[latency->model]);
	rcu_read_unlock();
	return ret;
}

static int set_latency(struct sblk_device *dev, struct sampleblk_timing *timing)
{
	timing->model = timing->a ? SAMPLEBLK_LATENCY_CONSTANT : SAMPLEBLK_LATENCY_NONE;
	return sblk_set_timing(dev, timing);
}

#define SBLK_LATENCY(name, op) \
	static ssize_t name##_show(struct device *device, struct device_attribute *attr, char *buf) \
	{ \
		return latency_show(to_sblk(device), op, buf); \
	} \
	SBLK_STORE(name, struct sampleblk_timing, { .ops = 1U << (op) }, a, set_latency)

SBLK_LATENCY(read_latency_ns, SAMPLEBLK_OP_READ);
SBLK_LATENCY(write_latency_ns, SAMPLEBLK_OP_WRITE);
SBLK_LATENCY(discard_latency_ns, SAMPLEBLK_OP_DISCARD);
SBLK_LATENCY(write_zeroes_latency_ns, SAMPLEBLK_OP_WRITE_ZEROES);
SBLK_LATENCY(flush_latency_ns, SAMPLEBLK_OP_FLUSH);

static int set_powered(struct sblk_device *dev, struct sampleblk_power *power)
{
	if (power->action > 1)
		return -EINVAL;
	power->action = power->action ? SAMPLEBLK_POWER_ON : SAMPLEBLK_POWER_CUT;
	return sblk_power(dev, power);
}

/* 0 cuts the power, and all that is volatile is lost; 1 brings it back. */
SBLK_SETTING(powered, "%u", !dev->medium.off, struct sampleblk_power, {}, action, set_powered);

static int set_journal(struct sblk_device *dev, struct sampleblk_journal *journal)
{
	journal->action = journal->bytes ? SAMPLEBLK_JOURNAL_START : SAMPLEBLK_JOURNAL_STOP;
	return sblk_journal_control(dev, journal);
}

/* 0 stops the journal; any other number begins one of so many bytes. */
SBLK_STATE(journal_bytes, dev->medium.journal ? dev->journal.bytes : 0)
SBLK_STORE(journal_bytes, struct sampleblk_journal, {}, bytes, set_journal);

#define SBLK_COUNTER(name) \
	static ssize_t name##_show(struct device *device, struct device_attribute *attr, char *buf) \
	{ \
		struct sampleblk_counters counters = { .queue = SAMPLEBLK_QUEUE_ALL }; \
		int err = sblk_counters(to_sblk(device), &counters); \
		return err ? err : sysfs_emit(buf, "%llu\n", counters.name); \
	} \
	static DEVICE_ATTR_RO(name)

SBLK_COUNTER(reads);
SBLK_COUNTER(writes);
SBLK_COUNTER(discards);
SBLK_COUNTER(write_zeroes);
SBLK_COUNTER(flushes);
SBLK_COUNTER(fua_writes);
SBLK_COUNTER(read_bytes);
SBLK_COUNTER(write_bytes);
SBLK_COUNTER(discard_bytes);
SBLK_COUNTER(write_zeroes_bytes);
SBLK_COUNTER(errors);
SBLK_COUNTER(deferred);
SBLK_COUNTER(delayed);
SBLK_COUNTER(faults);
SBLK_COUNTER(batched);
SBLK_COUNTER(polled);

static struct attribute *sblk_attrs[] = {
	&dev_attr_capacity_bytes.attr,
	&dev_attr_queues.attr,
	&dev_attr_depth.attr,
	&dev_attr_flags.attr,
	&dev_attr_allocated_bytes.attr,
	&dev_attr_reads.attr,
	&dev_attr_writes.attr,
	&dev_attr_discards.attr,
	&dev_attr_write_zeroes.attr,
	&dev_attr_flushes.attr,
	&dev_attr_fua_writes.attr,
	&dev_attr_read_bytes.attr,
	&dev_attr_write_bytes.attr,
	&dev_attr_discard_bytes.attr,
	&dev_attr_write_zeroes_bytes.attr,
	&dev_attr_errors.attr,
	&dev_attr_deferred.attr,
	&dev_attr_delayed.attr,
	&dev_attr_faults.attr,
	&dev_attr_batched.attr,
	&dev_attr_polled.attr,
	&dev_attr_mode.attr,
	&dev_attr_completion.attr,
	&dev_attr_poll_queues.attr,
	&dev_attr_powered.attr,
	&dev_attr_histograms.attr,
	&dev_attr_read_only.attr,
	&dev_attr_sector_atomic.attr,
	&dev_attr_bytes_per_second.attr,
	&dev_attr_iops.attr,
	&dev_attr_stall_period_ns.attr,
	&dev_attr_stall_ns.attr,
	&dev_attr_stall_offset_ns.attr,
	&dev_attr_read_latency_ns.attr,
	&dev_attr_write_latency_ns.attr,
	&dev_attr_discard_latency_ns.attr,
	&dev_attr_write_zeroes_latency_ns.attr,
	&dev_attr_flush_latency_ns.attr,
	&dev_attr_cache_bytes.attr,
	&dev_attr_volatile_writes.attr,
	&dev_attr_written_back.attr,
	&dev_attr_journal_bytes.attr,
	&dev_attr_journal_used_bytes.attr,
	&dev_attr_journal_entries.attr,
	&dev_attr_journal_overflow.attr,
	&dev_attr_journal_position.attr,
	&dev_attr_journal_epoch.attr,
	&dev_attr_snapshots.attr,
	&dev_attr_waiting.attr,
	NULL,
};

static const struct attribute_group sblk_group = {
	.name = "sampleblk",
	.attrs = sblk_attrs,
};

const struct attribute_group *sblk_disk_groups[] = { &sblk_group, NULL };
