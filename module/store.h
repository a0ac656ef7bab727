/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The memory of a device: a table of page pointers in two levels. Reads take no lock. The first write to a page installs
 * it, already filled, by cmpxchg; later ones copy into it. A discarded page is taken out by xchg and freed after an RCU
 * grace period, so whoever still copies from or into it does so harmlessly. Nothing orders two writes to the same bytes
 * at the same time, as on a disk.
 */
#ifndef SBLK_STORE_H
#define SBLK_STORE_H

#include "platform.h"

#define SBLK_PAGE_SHIFT PAGE_SHIFT
#define SBLK_PAGE_BYTES (1UL << SBLK_PAGE_SHIFT)


struct sblk_store {
	u64 bytes;
	unsigned int leaf_shift; /* pages in a leaf, as a power of two */
	u64 nr_leaves;
	void ***leaves; /* [nr_leaves] of [1 << leaf_shift] pages */
	atomic64_t allocated; /* pages that hold data */
};

/* A sparse store that reads as zero. NULL when there is no memory for its table. May sleep. */
struct sblk_store *sblk_store_create(u64 bytes);

/* Nobody may be using it. May sleep. */
void sblk_store_destroy(struct sblk_store *store);

/* [pos, pos + len) must lie within the store, here and below. Never fails: what is not there is zero. */
void sblk_store_read(struct sblk_store *store, u64 pos, void *to, size_t len);

/*
 * 0 or -ENOMEM; what has been copied by then stays. Sleeps only if `gfp` lets it. Writing the same bytes again after
 * -ENOMEM is allowed and how a write is tried again.
 */
int sblk_store_write(struct sblk_store *store, u64 pos, const void *from, size_t len, gfp_t gfp);

/* Makes the range read as zero and gives whole pages back. Never fails and never sleeps. */
void sblk_store_discard(struct sblk_store *store, u64 pos, u64 len);

static inline u64 sblk_store_allocated_bytes(struct sblk_store *store)
{
	return (u64)atomic64_read(&store->allocated) << SBLK_PAGE_SHIFT;
}

/*
 * How many pages all stores together may hold: the machine must survive a device that is larger than its memory. Set
 * once, before the first store.
 */
void sblk_store_set_limit(u64 pages);

#endif
