/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The volatile write cache. The store always holds what was written last; the cache holds what was there before, newest
 * last, for every write since the last flush. So a flush only forgets, and a power cut goes back through it and writes
 * again what is to survive. Bounded: what no longer fits is written back, as in a disk, oldest first.
 */
#ifndef SBLK_CACHE_H
#define SBLK_CACHE_H

#include "log.h"

struct sblk_cache_entry {
	u64 id; /* counts the writes of the device, from 1 */
	u64 pos;
	u64 len;
	u32 bytes; /* of this entry with its undo data; 0: go on at the ring's start */
	u32 undo_bytes;
	u32 flags;
	u32 reserved;
};

#define SBLK_CACHE_DURABLE (1U << 0) /* FUA: survives, but hides older writes */
#define SBLK_CACHE_ZEROES (1U << 1) /* discard or write-zeroes */

struct sblk_cache {
	void *ring;
	u64 size;
	u64 head; /* where the next entry goes */
	u64 tail; /* the oldest entry */
	u64 head_before; /* the newest entry: what sblk_cache_forget_last() goes back to */
	u64 count;
	u64 next_id;
	u64 written_back; /* writes that became durable for want of room */
};

struct sblk_cut {
	u32 mode; /* SAMPLEBLK_CUT_* */
	u32 flags; /* SAMPLEBLK_CUT_F_* */
	u32 survive_percent;
	u64 seed;
	const struct sampleblk_survivor *survivors; /* ascending by id */
	u64 nr_survivors;
	/* The result */
	u64 dropped;
	u64 survived;
	u64 torn;
};

int sblk_cache_init(struct sblk_cache *cache, u64 size);
void sblk_cache_destroy(struct sblk_cache *cache);

/* Remembers what the range holds, before it is written. Never fails: what is too large is durable at once. */
void sblk_cache_note(struct sblk_cache *cache, struct sblk_store *store, u64 pos, u64 len, u32 flags);

/* A flush: everything written so far is durable. */
void sblk_cache_flush(struct sblk_cache *cache);

/* Takes the newest entry back, whose write did not happen. */
void sblk_cache_forget_last(struct sblk_cache *cache);

/*
 * Makes the store what a disk would hold whose power failed now. Nobody may be writing. 0, or -ENOMEM before anything
 * was changed. May sleep.
 */
int sblk_cache_cut(struct sblk_cache *cache, struct sblk_store *store, struct sblk_cut *cut);

/* Calls `each` for the volatile writes, oldest first, until it returns other than 0; returns that. */
int sblk_cache_walk(const struct sblk_cache *cache, int (*each)(const struct sblk_cache_entry *entry, void *arg), void *arg);

/* A well mixed number for each (seed, n): all chance in the driver is this. */
static inline u64 sblk_random(u64 seed, u64 n)
{
	u64 z = seed + n * 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

#endif
