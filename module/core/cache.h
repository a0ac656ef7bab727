/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The volatile write cache. The store always holds what was written last; the cache keeps the changes that may not be
 * durable yet, oldest first, each with what it replaced. So a flush only forgets, and a power cut takes them back, newest
 * first, and then makes again what is to survive, oldest first.
 *
 * A durable change stays listed while an older one is not durable: taking that back would take it along. Bounded: what no
 * longer fits is written back, as in a disk, oldest first.
 */
#ifndef SBLK_CACHE_H
#define SBLK_CACHE_H

#include <linux/sampleblk.h>

#include "core/record.h"

#define SBLK_CACHE_MAX_WRITES (1U << 20) /* so that all can be listed in one call */

struct sblk_cache {
	struct list_head records;
	u64 limit; /* bytes of writes */
	u64 bytes;
	u64 count;
	u64 next_id;
	u64 written_back; /* changes that became durable for want of room */
};

struct sblk_cut {
	u32 mode; /* SAMPLEBLK_CUT_* */
	u32 flags; /* SAMPLEBLK_CUT_F_* */
	u32 survive_percent;
	u32 unit_sectors; /* what a write is torn between: logical blocks */
	u64 seed;
	const struct sampleblk_survivor *survivors; /* ascending by id */
	u64 nr_survivors;
	/* The result */
	u64 dropped;
	u64 survived;
	u64 torn;
};

void sblk_cache_init(struct sblk_cache *cache, u64 limit);

/*
 * Adds a change that is being made, and makes room for it. `durable` is the order of the last flush that completed. The
 * cache takes a reference.
 */
void sblk_cache_add(struct sblk_cache *cache, struct sblk_record *record, u64 durable);

/* Whether a power cut cannot lose it. */
bool sblk_record_is_durable(const struct sblk_record *record, u64 durable);

/* Forgets what is durable and hides nothing. */
void sblk_cache_trim(struct sblk_cache *cache, u64 durable);

/* Everything is durable now. */
void sblk_cache_forget(struct sblk_cache *cache);

/* Makes the store what a disk would hold whose power failed now. Nobody may be reading or writing. Cannot fail. */
void sblk_cache_cut(struct sblk_cache *cache, struct sblk_store *store, struct sblk_cut *cut, u64 durable);

/* See sblk_change_settle() and sblk_change_copy_up(). 0 or -ENOMEM. May sleep. */
int sblk_cache_settle(struct sblk_cache *cache, struct sblk_store *store);
int sblk_cache_copy_up(struct sblk_cache *cache, struct sblk_store *store, struct sblk_store *top);

#endif
