/* SPDX-License-Identifier: GPL-2.0-only */
/* The multi-queue face of a device. */
#ifndef SBLK_QUEUE_H
#define SBLK_QUEUE_H

#include "block/device.h"

extern const struct block_device_operations sblk_mq_fops;

/* Fills dev->tag_set from dev->config, and that again with what the kernel granted. */
int sblk_tag_set_init(struct sblk_device *dev);

#endif
