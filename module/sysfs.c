// SPDX-License-Identifier: GPL-2.0-only
/* /sys/block/sampleblkN/sampleblk/…: single values, read-only; what changes them are the ioctls. */
#include <linux/device.h>

#include "compat.h"
#include "sampleblk.h"

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
SBLK_ATTR(queues, "%u", dev->config.queues);
SBLK_ATTR(depth, "%u", dev->config.depth);
SBLK_ATTR(mode, "%s", dev->bio_mode ? "bio" : "mq");
SBLK_ATTR(completion, "%u", dev->config.completion);
SBLK_ATTR(poll_queues, "%u", dev->config.poll_queues);
SBLK_ATTR(powered, "%u", !dev->media.off);
SBLK_ATTR(snapshots, "%u", dev->nr_snapshots);
SBLK_ATTR(flags, "0x%x", dev->config.flags);

static ssize_t allocated_bytes_show(struct device *device, struct device_attribute *attr, char *buf)
{
	struct sblk_device *dev = to_sblk(device);
	u64 bytes;

	/* Removal waits for readers of sysfs with this lock held. */
	if (!mutex_trylock(&dev->control))
		return -EBUSY;
	bytes = sblk_store_allocated_bytes(dev->media.store);
	mutex_unlock(&dev->control);
	return sysfs_emit(buf, "%llu\n", bytes);
}
static DEVICE_ATTR_RO(allocated_bytes);

#define SBLK_COUNTER(name) \
	static ssize_t name##_show(struct device *device, struct device_attribute *attr, char *buf) \
	{ \
		struct sampleblk_counters counters = { .queue = SAMPLEBLK_QUEUE_ALL }; \
		int err = sblk_device_counters(to_sblk(device), &counters); \
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
	&dev_attr_snapshots.attr,
	NULL,
};

static const struct attribute_group sblk_group = {
	.name = "sampleblk",
	.attrs = sblk_attrs,
};

const struct attribute_group *sblk_disk_groups[] = { &sblk_group, NULL };
