/* SPDX-License-Identifier: GPL-2.0-only */
/* Giving a device other contents at once; with dev->control held. */
#ifndef SBLK_REPLACE_H
#define SBLK_REPLACE_H

#include "block/freeze.h"

/*
 * Between these nothing is on its way and dev->medium.store may be replaced. -EBUSY while the device is mounted, or unless
 * `force` open; -EINTR for a signal. Whoever has it open then finds the new contents, and none of what the page cache held
 * of the old ones is written to them: such writes fail.
 */
int sblk_replace_begin(struct sblk_device *dev, bool force, struct sblk_freeze *freeze);
void sblk_replace_end(struct sblk_device *dev, struct sblk_freeze *freeze);

/*
 * The device then holds what `below` does, to which nobody writes any more, and is written to in a layer on top. Errors as
 * above, -EBUSY also while its journal records; -ENOMEM.
 */
int sblk_replace_store(struct sblk_device *dev, struct sblk_store *below, bool force);

#endif
