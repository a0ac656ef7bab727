// SPDX-License-Identifier: GPL-2.0-only
#include "block/open.h"

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

static int claim_and_lock(struct sblk_device *dev)
{
	int err = sblk_claim_disk(dev->disk, dev);

	if (err)
		return err;
	err = sblk_lock_open(dev->disk);
	if (err)
		sblk_unclaim_disk(dev->disk, dev);
	return err;
}

int sblk_exclusive_begin(struct sblk_device *dev, bool force)
{
	int err;

	/*
	 * Who has the claim or the lock may be waiting for pages that are written, one who discards or the last who closes:
	 * as sblk_freeze(), this does not wait for a rule.
	 */
	sblk_drain_begin(dev);
	err = claim_and_lock(dev);
	sblk_drain_end(dev);
	if (err)
		return err;
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
