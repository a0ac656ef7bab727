// SPDX-License-Identifier: GPL-2.0-only
#include "block/open.h"

#include <linux/sched/signal.h>

#include "block/freeze.h"
#include "compat.h"

/* With the lock that opening takes. */
int sblk_open(struct gendisk *disk)
{
	struct sblk_device *dev = disk->private_data;

	if (READ_ONCE(dev->closing))
		return -ENXIO;
	kref_get(&dev->kref);
	return 0;
}

void sblk_release(struct gendisk *disk)
{
	sblk_device_put(disk->private_data);
}

unsigned int sblk_openers(struct sblk_device *dev)
{
	return sblk_disk_openers(dev->disk);
}

/* The last who closes a disk has the lock while its pages are written: as sblk_freeze(), this does not wait for a rule. */
static int lock_open(struct sblk_device *dev)
{
	unsigned long deadline = jiffies + SBLK_FREEZE_DEADLINE;

	while (!sblk_trylock_open(dev->disk)) {
		sblk_release_stuck(dev);
		if (signal_pending(current))
			return -EINTR;
		if (time_after(jiffies, deadline))
			return -EBUSY;
		schedule_timeout_interruptible(1);
	}
	return 0;
}

int sblk_exclusive_begin(struct sblk_device *dev, bool force)
{
	/* One who is claiming the disk, for whom a claim waits without end, waits for the lock. */
	int err = lock_open(dev);

	if (err)
		return err;
	sblk_unlock_open(dev->disk);
	err = sblk_claim_disk(dev->disk, dev);
	if (err)
		return err;
	err = lock_open(dev);
	if (err) {
		sblk_unclaim_disk(dev->disk, dev);
		return err;
	}
	if (!force && sblk_disk_openers(dev->disk)) {
		sblk_exclusive_end(dev);
		return -EBUSY;
	}
	return 0;
}

void sblk_exclusive_end(struct sblk_device *dev)
{
	sblk_unlock_open(dev->disk);
	sblk_unclaim_disk(dev->disk, dev);
}

void sblk_forget_pages(struct sblk_device *dev, u64 from)
{
	sblk_truncate_disk(dev->disk, from);
}
