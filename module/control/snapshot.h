/* SPDX-License-Identifier: GPL-2.0-only */
/* The snapshots of a device; with dev->control held. */
#ifndef SBLK_SNAPSHOT_H
#define SBLK_SNAPSHOT_H

#include "block/device.h"

int sblk_snapshot(struct sblk_device *dev, struct sampleblk_snapshot *snapshot);

/* A reference to what the snapshot holds, or NULL. */
struct sblk_store *sblk_snapshot_store(struct sblk_device *dev, u32 id);

/* Makes a store, to which nobody writes any more, a snapshot; its id. 0, -ENOSPC or -ENOMEM. */
int sblk_snapshot_keep(struct sblk_device *dev, struct sblk_store *store, u32 *id);

/* Memory that holds data, of the snapshots too. */
u64 sblk_allocated_bytes(struct sblk_device *dev);

/* Forgets all. */
void sblk_snapshots_destroy(struct sblk_device *dev);

#endif
