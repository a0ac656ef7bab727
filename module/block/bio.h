/* SPDX-License-Identifier: GPL-2.0-only */
/* The bio face of a device: no tags, no queues, no merging. */
#ifndef SBLK_BIO_H
#define SBLK_BIO_H

#include "block/device.h"

extern const struct block_device_operations sblk_bio_fops;

int sblk_bio_init(void);
void sblk_bio_exit(void);

#endif
