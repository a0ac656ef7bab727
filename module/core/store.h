/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The memory of a device: a table of page pointers in two levels. Reads take no lock. The first write to a page installs
 * it, already filled, by cmpxchg; later ones copy into it. A discarded page is taken out by xchg and freed after an RCU
 * grace period, so whoever still copies from or into it does so harmlessly. Nothing orders two writes to the same bytes
 * at the same time, as on a disk; who needs an order, or readers that never see half a sector, replaces whole pages
 * instead (change.h).
 *
 * A store may lie on another one, which then never changes any more: what the upper one lacks is read from below, and
 * copied up by the first write to a part of it. That is all that a snapshot is.
 */
#ifndef SBLK_STORE_H
#define SBLK_STORE_H

#include "platform.h"

#define SBLK_PAGE_SHIFT PAGE_SHIFT
#define SBLK_PAGE_BYTES (1UL << SBLK_PAGE_SHIFT)

/* A page's address; NULL: what lies below, or zero; or SBLK_HOLE: zero, whatever lies below. */
typedef void __rcu *sblk_slot;

/* It is a page of zeroes, so that readers need not know. */
#define SBLK_HOLE sblk_zero_page()

struct sblk_store {
	struct kref kref; /* one for each owner: a device, a snapshot, a store above */
	struct sblk_store *base; /* what lies below, or NULL */
	u64 bytes;
	unsigned int leaf_shift; /* pages in a leaf, as a power of two; the same in all stores on each other */
	u64 nr_leaves;
	sblk_slot __rcu **leaves; /* [nr_leaves] of [1 << leaf_shift] */
	atomic64_t allocated; /* pages of its own */
	bool eager; /* was populated: nothing is given back */
};

/*
 * A sparse store that reads as zero, or as `base`, of which it takes a reference. NULL when there is no memory for its
 * table. May sleep.
 */
struct sblk_store *sblk_store_create(u64 bytes, struct sblk_store *base);

static inline struct sblk_store *sblk_store_get(struct sblk_store *store)
{
	kref_get(&store->kref);
	return store;
}

/* NULL is fine. The last one frees it; may sleep then. */
void sblk_store_put(struct sblk_store *store);

/*
 * Takes into `store` what lies below it and belongs to nobody else any more. Nobody may be using the store. May sleep.
 */
void sblk_store_merge(struct sblk_store *store);

/*
 * Gives it another size; what is cut off is lost, what is new reads as zero. Nobody may be reading or writing. 0; -EBUSY
 * on a store below; -EFBIG when that needs a table of another shape; -ENOMEM. May sleep.
 */
int sblk_store_resize(struct sblk_store *store, u64 bytes);

/*
 * Fills the whole store with memory, in chunks as large as can be had on that node, which it then keeps: discards only
 * zero. 0, -ENOMEM, or -EINTR for a signal. May sleep.
 */
int sblk_store_populate(struct sblk_store *store, int node);

/* [pos, pos + len) must lie within the store, here and below. Never fails: what is missing is zero. */
void sblk_store_read(struct sblk_store *store, u64 pos, void *to, size_t len);

/*
 * 0 or -ENOMEM; what has been copied by then stays. Sleeps only if `gfp` lets it. Writing the same bytes again after
 * -ENOMEM is allowed and how a write is tried again.
 */
int sblk_store_write(struct sblk_store *store, u64 pos, const void *from, size_t len, gfp_t gfp);

/*
 * Puts pages there for all of the range, which reads as before: a write of it then needs no memory, so that there is no part
 * of it when there is none. 0 or -ENOMEM, as a write.
 */
int sblk_store_reserve(struct sblk_store *store, u64 pos, u64 len, gfp_t gfp);

/* The same for a discard of it. */
int sblk_store_reserve_discard(struct sblk_store *store, u64 pos, u64 len, gfp_t gfp);

/* How many pages a write of many gets at once: the largest order of which the allocator keeps a stock on each CPU. */
#define SBLK_WRITER_ORDER 3
#define SBLK_WRITER_PAGES (1UL << SBLK_WRITER_ORDER)

/* The same in pieces that follow each other, as a request has them. */
struct sblk_writer {
	struct sblk_store *store;
	u64 pos; /* where the next piece goes */
	u64 left; /* what all pieces that are still to come have together */
	gfp_t gfp;
	unsigned int nr_pages; /* got ahead */
	void *pages[SBLK_WRITER_PAGES];
};

void sblk_writer_begin(struct sblk_writer *writer, struct sblk_store *store, u64 pos, u64 len, gfp_t gfp);

/* As sblk_store_write(). After an error nothing but sblk_writer_end() may follow. */
int sblk_writer_write(struct sblk_writer *writer, const void *from, size_t len);

void sblk_writer_end(struct sblk_writer *writer);

/*
 * Makes the range read as zero and gives whole pages back. 0, or -ENOMEM where zeroes must be remembered on top of what
 * lies below; again is then allowed.
 */
int sblk_store_discard(struct sblk_store *store, u64 pos, u64 len, gfp_t gfp);

/* Makes the range read as zero but gives nothing back: what has a page keeps it. 0 or -ENOMEM, as a discard. */
int sblk_store_zero(struct sblk_store *store, u64 pos, u64 len, gfp_t gfp);

/* Whether the page that holds `pos` may hold anything but zeroes; where it does not, how far that goes on. */
bool sblk_store_present(struct sblk_store *store, u64 pos, u64 *absent_until);

/* Of this store and all below it. */
u64 sblk_store_allocated_bytes(struct sblk_store *store);

/*
 * How many pages everything of the driver together may hold: the machine must survive a device that is larger than its
 * memory. Set once, before the first store.
 */
void sblk_pages_set_limit(u64 pages);

/*
 * Counts pages before they are allocated; false beyond the limit. Discarded pages count until they are free, so one who
 * may sleep waits for those.
 */
bool sblk_pages_charge(u64 count, gfp_t gfp);
void sblk_pages_uncharge(u64 count);

/* The same for `bytes` of anything else that is large. */
static inline u64 sblk_pages_of(u64 bytes)
{
	return (bytes + SBLK_PAGE_BYTES - 1) >> SBLK_PAGE_SHIFT;
}

#endif
