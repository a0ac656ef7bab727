/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a range of the store held, packed as chunks one after another: a header, and for SBLK_CHUNK_DATA the bytes. What
 * reads as zero takes no room. Undo data of the cache, undo and redo data of the journal are all this.
 */
#ifndef SBLK_LOG_H
#define SBLK_LOG_H

#include <linux/sampleblk.h>

#include "platform.h"
#include "store.h"

/* The room that the range takes as it is now. Stays true until somebody writes there. */
u64 sblk_chunks_size(struct sblk_store *store, u64 pos, u64 len);

/* Packs the range to `to`, which has that room; returns the bytes used. */
u64 sblk_chunks_pack(struct sblk_store *store, u64 pos, u64 len, void *to);

/*
 * Makes the store hold what was packed, up to `limit_pos` only. 0 or -ENOMEM; again from the start is then allowed.
 */
int sblk_chunks_apply(struct sblk_store *store, const void *chunks, u64 bytes, u64 limit_pos, gfp_t gfp);

#endif
