/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a range of the store held, packed as chunks one after another: a header, and for SAMPLEBLK_CHUNK_DATA the bytes.
 * What reads as zero takes no room. Undo and redo data of the journal are this.
 */
#ifndef SBLK_CHUNK_LIST_H
#define SBLK_CHUNK_LIST_H

#include <linux/sampleblk.h>

#include "core/store.h"

/* The room that the range takes as it is now. Stays true until somebody writes there. */
u64 sblk_chunks_size(struct sblk_store *store, u64 pos, u64 len);

/* Packs the range to `to`, which has that room; returns the bytes used. */
u64 sblk_chunks_pack(struct sblk_store *store, u64 pos, u64 len, void *to);

/* Makes [pos, pos + len) of the store hold what was packed of it. 0 or -ENOMEM; again from the start is then allowed. */
int sblk_chunks_apply(struct sblk_store *store, const void *chunks, u64 bytes, u64 pos, u64 len, gfp_t gfp);

/* Gets all the memory that this would need, so that it cannot fail then; nothing reads otherwise. 0 or -ENOMEM. */
int sblk_chunks_reserve(struct sblk_store *store, const void *chunks, u64 bytes, u64 pos, u64 len, gfp_t gfp);

#endif
