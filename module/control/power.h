/* SPDX-License-Identifier: GPL-2.0-only */
/* The volatile cache and the power of a device; with dev->control held. */
#ifndef SBLK_POWER_H
#define SBLK_POWER_H

#include "block/device.h"

/* Checks and completes the configuration of the cache; at creation. 0 or -EINVAL. */
int sblk_cache_configure(struct sampleblk_config *config);

int sblk_power(struct sblk_device *dev, struct sampleblk_power *power);
int sblk_volatile_list(struct sblk_device *dev, struct sampleblk_volatile_list *list);

#endif
