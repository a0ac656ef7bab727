// SPDX-License-Identifier: GPL-2.0-only
#include "control/replace.h"

#include "block/command.h"
#include "block/open.h"

int sblk_replace_begin(struct sblk_device *dev, bool force, struct sblk_freeze *freeze)
{
	int err = sblk_exclusive_begin(dev, force);

	if (err)
		return err;
	/* Whoever looks at one state looks at the next. */
	sblk_freeze_often(dev);
	err = sblk_freeze(dev, freeze);
	if (err) {
		sblk_exclusive_end(dev);
		return err;
	}
	if (sblk_openers(dev))
		sblk_slow_path_on(dev, SBLK_SLOW_REFUSE);
	return 0;
}

void sblk_replace_end(struct sblk_device *dev, struct sblk_freeze *freeze)
{
	/* Not while it is frozen: the page cache waits for what it is writing. */
	sblk_unfreeze(dev, freeze);
	sblk_forget_pages(dev, 0);
	sblk_slow_path_off(dev, SBLK_SLOW_REFUSE);
	sblk_exclusive_end(dev);
}

int sblk_replace_store(struct sblk_device *dev, struct sblk_store *below, bool force)
{
	struct sblk_freeze freeze;
	struct sblk_store *top;
	int err;

	/* The journal could not tell of it in fewer bytes than the device has. */
	if (dev->medium.journal)
		return -EBUSY;
	top = sblk_store_create(below->bytes, below);
	if (!top)
		return -ENOMEM;
	err = sblk_replace_begin(dev, force, &freeze);
	if (!err) {
		top = sblk_medium_replace(&dev->medium, top);
		sblk_replace_end(dev, &freeze);
	}
	sblk_store_put(top);
	return err;
}
