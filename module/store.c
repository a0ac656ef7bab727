// SPDX-License-Identifier: GPL-2.0-only
#include "store.h"

/* A table's upper level stays below this many entries; past that leaves grow. */
#define SBLK_MAX_LEAVES (1ULL << 20)
#define SBLK_MIN_LEAF_SHIFT 9 /* 512 pointers: one page of them */

static u64 page_limit = ~0ULL;
static atomic64_t pages_in_use = ATOMIC64_INIT(0);

void sblk_store_set_limit(u64 pages)
{
	page_limit = pages;
}

static void *page_alloc(struct sblk_store *store, gfp_t gfp)
{
	void *page;

	if ((u64)atomic64_inc_return(&pages_in_use) > page_limit)
		goto none;
	page = (void *)__get_free_page(gfp | __GFP_NOWARN);
	if (!page)
		goto none;
	atomic64_inc(&store->allocated);
	return page;
none:
	atomic64_dec(&pages_in_use);
	return NULL;
}

static void page_free(struct sblk_store *store, void *page)
{
	free_page((unsigned long)page);
	atomic64_dec(&store->allocated);
	atomic64_dec(&pages_in_use);
}

struct sblk_store *sblk_store_create(u64 bytes)
{
	struct sblk_store *store = kzalloc(sizeof(*store), GFP_KERNEL);
	u64 pages = (bytes + SBLK_PAGE_BYTES - 1) >> SBLK_PAGE_SHIFT;

	if (!store)
		return NULL;
	store->bytes = bytes;
	store->leaf_shift = SBLK_MIN_LEAF_SHIFT;
	while (((pages - 1) >> store->leaf_shift) + 1 > SBLK_MAX_LEAVES)
		store->leaf_shift++;
	store->nr_leaves = ((pages - 1) >> store->leaf_shift) + 1;
	atomic64_set(&store->allocated, 0);
	store->leaves = kvcalloc(store->nr_leaves, sizeof(*store->leaves), GFP_KERNEL);
	if (!store->leaves) {
		kfree(store);
		return NULL;
	}
	return store;
}

void sblk_store_destroy(struct sblk_store *store)
{
	u64 i, j;

	if (!store)
		return;
	for (i = 0; i < store->nr_leaves; i++) {
		void **leaf = store->leaves[i];

		if (!leaf)
			continue;
		for (j = 0; j < 1ULL << store->leaf_shift; j++)
			if (leaf[j])
				page_free(store, leaf[j]);
		kvfree(leaf);
		cond_resched();
	}
	kvfree(store->leaves);
	kfree(store);
}

/* The place of a page's pointer, or NULL while its leaf is not there. */
static inline void **slot_find(struct sblk_store *store, u64 index)
{
	void **leaf = READ_ONCE(store->leaves[index >> store->leaf_shift]);

	return leaf ? leaf + (index & ((1ULL << store->leaf_shift) - 1)) : NULL;
}

/* The same, with the leaf made first where it is missing. */
static void **slot_make(struct sblk_store *store, u64 index, gfp_t gfp)
{
	void **slot = slot_find(store, index);
	void **leaf;

	if (slot)
		return slot;
	/* kvzalloc() may sleep however it is asked; an atomic caller is content with what the slab has. */
	if (gfpflags_allow_blocking(gfp))
		leaf = kvzalloc(sizeof(void *) << store->leaf_shift, gfp);
	else
		leaf = kzalloc(sizeof(void *) << store->leaf_shift, gfp | __GFP_NOWARN);
	if (!leaf)
		return NULL;
	if (cmpxchg(&store->leaves[index >> store->leaf_shift], NULL, leaf))
		kvfree(leaf);
	return slot_find(store, index);
}

void sblk_store_read(struct sblk_store *store, u64 pos, void *to, size_t len)
{
	while (len) {
		size_t offset = pos & (SBLK_PAGE_BYTES - 1);
		size_t part = min_t(size_t, len, SBLK_PAGE_BYTES - offset);
		void **slot = slot_find(store, pos >> SBLK_PAGE_SHIFT);
		void *page;

		rcu_read_lock();
		page = slot ? READ_ONCE(*slot) : NULL;
		if (page)
			memcpy(to, page + offset, part);
		else
			memset(to, 0, part);
		rcu_read_unlock();
		to += part;
		pos += part;
		len -= part;
	}
}

/* Copies into the page that is there; false when none is. */
static inline bool page_overwrite(void **slot, size_t offset, const void *from, size_t part)
{
	void *page;

	rcu_read_lock();
	page = READ_ONCE(*slot);
	if (page)
		memcpy(page + offset, from, part);
	rcu_read_unlock();
	return page;
}

/* Readers must never see a page before its data, so it is filled first and installed then. */
static int page_install(struct sblk_store *store, void **slot, size_t offset, const void *from, size_t part, gfp_t gfp)
{
	void *page = page_alloc(store, part == SBLK_PAGE_BYTES ? gfp : gfp | __GFP_ZERO);

	if (!page)
		return -ENOMEM;
	memcpy(page + offset, from, part);
	/* Lost to another first write, which may be of other sectors of the page: then into that one. */
	while (cmpxchg(slot, NULL, page)) {
		if (page_overwrite(slot, offset, from, part)) {
			page_free(store, page);
			break;
		}
	}
	return 0;
}

int sblk_store_write(struct sblk_store *store, u64 pos, const void *from, size_t len, gfp_t gfp)
{
	while (len) {
		size_t offset = pos & (SBLK_PAGE_BYTES - 1);
		size_t part = min_t(size_t, len, SBLK_PAGE_BYTES - offset);
		void **slot = slot_make(store, pos >> SBLK_PAGE_SHIFT, gfp);

		if (!slot)
			return -ENOMEM;
		if (!page_overwrite(slot, offset, from, part)) {
			int err = page_install(store, slot, offset, from, part, gfp);

			if (err)
				return err;
		}
		from += part;
		pos += part;
		len -= part;
	}
	return 0;
}

/* Pages on their way out, freed together after a grace period. */
struct sblk_reap {
	struct rcu_head rcu;
	unsigned int count;
	void *pages[61];
};

static void reap_free(struct rcu_head *rcu)
{
	struct sblk_reap *reap = container_of(rcu, struct sblk_reap, rcu);
	unsigned int i;

	for (i = 0; i < reap->count; i++)
		free_page((unsigned long)reap->pages[i]);
	atomic64_sub(reap->count, &pages_in_use);
	kfree(reap);
}

static struct sblk_reap *reap_add(struct sblk_reap *reap, void *page)
{
	reap->pages[reap->count++] = page;
	if (reap->count < ARRAY_SIZE(reap->pages))
		return reap;
	call_rcu(&reap->rcu, reap_free);
	return NULL;
}

static void page_zero(void **slot, size_t offset, size_t part)
{
	void *page;

	rcu_read_lock();
	page = READ_ONCE(*slot);
	if (page)
		memset(page + offset, 0, part);
	rcu_read_unlock();
}

void sblk_store_discard(struct sblk_store *store, u64 pos, u64 len)
{
	struct sblk_reap *reap = NULL;

	while (len) {
		size_t offset = pos & (SBLK_PAGE_BYTES - 1);
		u64 part = min_t(u64, len, SBLK_PAGE_BYTES - offset);
		void **slot = slot_find(store, pos >> SBLK_PAGE_SHIFT);

		if (!slot) {
			/* A leaf that is not there is zero to its end. */
			u64 leaf_bytes = SBLK_PAGE_BYTES << store->leaf_shift;

			part = min_t(u64, len, leaf_bytes - (pos & (leaf_bytes - 1)));
		} else if (part < SBLK_PAGE_BYTES) {
			page_zero(slot, offset, part);
		} else if (READ_ONCE(*slot)) {
			/* Without memory to remember what is to be freed, the page stays and is zero. */
			if (!reap)
				reap = kzalloc(sizeof(*reap), GFP_NOWAIT | __GFP_NOWARN);
			if (reap) {
				void *page = xchg(slot, NULL);

				if (page) {
					atomic64_dec(&store->allocated);
					reap = reap_add(reap, page);
				}
			} else {
				page_zero(slot, 0, SBLK_PAGE_BYTES);
			}
		}
		pos += part;
		len -= part;
	}
	if (reap && reap->count)
		call_rcu(&reap->rcu, reap_free);
	else
		kfree(reap);
}
