/* SPDX-License-Identifier: GPL-2.0-only */
/* A store's table of pages, for the store's own files: how a page is found, made, filled and given back. */
#ifndef SBLK_STORE_TABLE_H
#define SBLK_STORE_TABLE_H

#include "store.h"

/* In a slot: zero, whatever lies below. It is a page of zeroes, so that readers need not know. */
#define SBLK_HOLE ((void *)sblk_zero_page())

/* Counts pages in before they are there; false beyond the limit. */
bool sblk_pages_charge(struct sblk_store *store, unsigned int count);
void sblk_pages_uncharge(struct sblk_store *store, unsigned int count);
/* The same of pages that belong to no store any more. */
void sblk_pages_gone(unsigned int count);

/* One page, counted; NULL beyond the limit, too. */
void *sblk_page_alloc(struct sblk_store *store, gfp_t gfp);
void sblk_page_free(struct sblk_store *store, void *page);

/* Whole, aligned pages have a copy of their own, which beats memcpy() wherever that goes byte by byte or by short words. */
static inline void copy_part(void *to, const void *from, size_t part)
{
	if (part == SBLK_PAGE_BYTES && !(((unsigned long)to | (unsigned long)from) & (SBLK_PAGE_BYTES - 1)))
		sblk_copy_page(to, from);
	else
		memcpy(to, from, part);
}

/* The place of a page's pointer, or NULL while its leaf is not there. */
static inline void **slot_find(struct sblk_store *store, u64 index)
{
	void **leaf = READ_ONCE(store->leaves[index >> store->leaf_shift]);

	return leaf ? leaf + (index & ((1ULL << store->leaf_shift) - 1)) : NULL;
}

/* Makes the leaf that an index needs; the place in it, or NULL without memory. */
void **sblk_leaf_make(struct sblk_store *store, u64 index, gfp_t gfp);

/* slot_find(), with the leaf made first where it is missing. */
static inline void **slot_make(struct sblk_store *store, u64 index, gfp_t gfp)
{
	void **slot = slot_find(store, index);

	return likely(slot) ? slot : sblk_leaf_make(store, index, gfp);
}

/* The page that is read for an index, from here or below; NULL reads as zero. Under rcu_read_lock(). */
static inline void *page_lookup(struct sblk_store *store, u64 index)
{
	do {
		void **slot = slot_find(store, index);
		void *page = slot ? READ_ONCE(*slot) : NULL;

		if (likely(page))
			return page;
		store = store->base;
	} while (unlikely(store));
	return NULL;
}

static inline spinlock_t *page_lock_of(struct sblk_store *store, u64 index)
{
	return &store->locks[index % SBLK_STORE_LOCKS];
}

static inline void page_lock(struct sblk_store *store, u64 index)
{
	if (unlikely(store->atomic))
		sblk_lock(page_lock_of(store, index));
}

static inline void page_unlock(struct sblk_store *store, u64 index)
{
	if (unlikely(store->atomic))
		sblk_unlock(page_lock_of(store, index));
}

/* Copies into the page that is there; false when none is. `from` may be NULL, for zeroes. */
static inline bool page_overwrite(void **slot, size_t offset, const void *from, size_t part)
{
	void *page;
	bool done;

	rcu_read_lock();
	page = READ_ONCE(*slot);
	done = page && likely(page != SBLK_HOLE);
	if (done) {
		if (from)
			copy_part(page + offset, from, part);
		else
			memset(page + offset, 0, part);
	}
	rcu_read_unlock();
	return done;
}

/* Zeroes that keep their pages, within one page. */
int sblk_page_zero(struct sblk_store *store, u64 pos, size_t len, gfp_t gfp);

#endif
