/* SPDX-License-Identifier: GPL-2.0-only */
/* A store's table of pages, for store.c and change.c: how a page is found, made and given back. */
#ifndef SBLK_STORE_SLOTS_H
#define SBLK_STORE_SLOTS_H

#include "core/store.h"

/* One page, counted; NULL beyond the limit, too. It belongs to no store yet. */
void *sblk_page_alloc(gfp_t gfp);
void sblk_page_free(void *page);

/* Whole, aligned pages have a copy of their own, which beats memcpy() wherever that goes byte by byte or by short words. */
static inline void copy_part(void *to, const void *from, size_t part)
{
	if (part == SBLK_PAGE_BYTES && !(((unsigned long)to | (unsigned long)from) & (SBLK_PAGE_BYTES - 1)))
		sblk_copy_page(to, from);
	else
		memcpy(to, from, part);
}

/* The place of a page's pointer, or NULL while its leaf is missing. Leaves stay as long as their store. */
static inline sblk_slot *slot_find(struct sblk_store *store, u64 index)
{
	sblk_slot *leaf = rcu_dereference_raw(store->leaves[index >> store->leaf_shift]);

	return leaf ? leaf + (index & ((1ULL << store->leaf_shift) - 1)) : NULL;
}

/* Makes the leaf that an index needs; the place in it, or NULL without memory. */
sblk_slot *sblk_leaf_make(struct sblk_store *store, u64 index, gfp_t gfp);

/* slot_find(), with the leaf made first where it is missing. */
static inline sblk_slot *slot_make(struct sblk_store *store, u64 index, gfp_t gfp)
{
	sblk_slot *slot = slot_find(store, index);

	return likely(slot) ? slot : sblk_leaf_make(store, index, gfp);
}

/*
 * What a slot holds, for one who reads the page under rcu_read_lock(), or under the lock that every change of the slot
 * takes, or who only compares.
 */
static inline void *slot_read(const sblk_slot *slot)
{
	return rcu_dereference_raw(*slot);
}

/* Puts something else there; returns what was there. Orders what was written into `page` before it can be found. */
static inline void *slot_swap(sblk_slot *slot, void *page)
{
	return unrcu_pointer(xchg(slot, RCU_INITIALIZER(page)));
}

/* The same if it is still `old`. */
static inline bool slot_replace(sblk_slot *slot, void *old, void *page)
{
	return unrcu_pointer(cmpxchg(slot, RCU_INITIALIZER(old), RCU_INITIALIZER(page))) == old;
}

/* The page that is read for an index, from here or below; NULL reads as zero. As slot_read(). */
static inline void *page_lookup(struct sblk_store *store, u64 index)
{
	do {
		sblk_slot *slot = slot_find(store, index);
		void *page = slot ? slot_read(slot) : NULL;

		if (likely(page))
			return page;
		store = store->base;
	} while (unlikely(store));
	return NULL;
}

/* What lies below a missing page; NULL where that is zero. Stores below never change. */
static inline void *page_below(struct sblk_store *store, u64 index)
{
	void *page = store->base ? page_lookup(store->base, index) : NULL;

	return page == SBLK_HOLE ? NULL : page;
}

static inline bool is_page(const void *page)
{
	return page && page != SBLK_HOLE;
}

#endif
