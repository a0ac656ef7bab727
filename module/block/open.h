/* SPDX-License-Identifier: GPL-2.0-only */
/* Who has a device open. */
#ifndef SBLK_OPEN_H
#define SBLK_OPEN_H

#include "block/device.h"

/* Of both faces: ->open() and ->release(). An opener keeps the device's memory; its disk may go before. */
int sblk_open(struct gendisk *disk);
void sblk_release(struct gendisk *disk);

/* How many have it open, partitions and mounts included. */
unsigned int sblk_openers(struct sblk_device *dev);

/*
 * Keeps everybody from mounting, opening and partitioning the device until sblk_exclusive_end(). -EBUSY when it is
 * mounted or claimed otherwise, as what a file system has cached of it must not be taken away; unless `force` also when it
 * is just open. -EINTR for a signal.
 */
int sblk_exclusive_begin(struct sblk_device *dev, bool force);
void sblk_exclusive_end(struct sblk_device *dev);

/*
 * Empties the page cache of the disk and its partitions from a byte on, written or not. Only within sblk_exclusive_begin(),
 * and while the device fails what comes for there, so that nothing old is written and nothing waits.
 */
void sblk_forget_pages(struct sblk_device *dev, u64 from);

#endif
