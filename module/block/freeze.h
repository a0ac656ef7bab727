/* SPDX-License-Identifier: GPL-2.0-only */
/* Waiting until nothing is on its way to a device. */
#ifndef SBLK_FREEZE_H
#define SBLK_FREEZE_H

#include "block/device.h"

struct sblk_freeze {
	unsigned int noio; /* of memalloc_noio_save() */
};

/*
 * Keeps commands from starting and waits for those that are on their way. What a rule lets hang is failed, as it would be
 * waited for in vain, and what one holds is answered; what is delayed is waited for. 0; -EINTR for a signal, -EBUSY when a
 * command takes longer than any delay: the device then goes on as before. In between memory is allocated without I/O,
 * which might be for this device. May sleep.
 */
int sblk_freeze(struct sblk_device *dev, struct sblk_freeze *freeze);
void sblk_unfreeze(struct sblk_device *dev, struct sblk_freeze *freeze);

/*
 * For a device that will be frozen again and again: from then on that waits for no grace period of RCU, which is most of
 * the time a quiet device takes, and each command costs two atomic operations instead. May sleep.
 */
void sblk_freeze_often(struct sblk_device *dev);

/*
 * Between these nothing waits for long, and what is on its way already is waited for by the caller: for one that waits for
 * a task, which waits for I/O, and for one whose call freezes the queue itself, without end if need be, which begins it
 * within sblk_freeze().
 */
void sblk_drain_begin(struct sblk_device *dev);
void sblk_drain_end(struct sblk_device *dev);

/* Fails whatever is on its way and comes yet, from now on; waits until it has been. */
void sblk_close(struct sblk_device *dev);

#endif
