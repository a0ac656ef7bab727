/* SPDX-License-Identifier: GPL-2.0-only */
/* Which devices there are; how they come and go. */
#ifndef SBLK_REGISTRY_H
#define SBLK_REGISTRY_H

#include "block/device.h"

/* Makes a device, over a store that nobody writes to if `base` is not NULL; completes `config`. -EINTR for a signal. */
int sblk_device_add(struct sampleblk_config *config, struct sblk_store *base);

/* -EBUSY while it is open, unless `force`: then it is a disk that was pulled. */
int sblk_device_remove(u32 index, bool force);

void sblk_device_map(struct sampleblk_list *list);

/* A reference, or NULL. */
struct sblk_device *sblk_device_find(u32 index);

/* A reference with dev->control held and the disk there. -ENODEV, or -EINTR for a signal. */
struct sblk_device *sblk_device_lock(u32 index);
void sblk_device_unlock(struct sblk_device *dev);

void sblk_device_info(struct sblk_device *dev, struct sampleblk_info *info);

int sblk_registry_init(void);
void sblk_registry_exit(void);

#endif
