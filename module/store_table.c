// SPDX-License-Identifier: GPL-2.0-only
/* The table itself, and stores on top of each other. */
#include "store_table.h"

/* A table's upper level stays below this many entries; past that leaves grow. */
#define SBLK_MAX_LEAVES (1ULL << 20)
#define SBLK_MIN_LEAF_SHIFT 9 /* 512 pointers: one page of them */

static u64 page_limit = ~0ULL;
static atomic64_t pages_in_use = ATOMIC64_INIT(0);

void sblk_store_set_limit(u64 pages)
{
	page_limit = pages;
}

bool sblk_pages_charge(struct sblk_store *store, unsigned int count)
{
	if ((u64)atomic64_add_return(count, &pages_in_use) > page_limit) {
		atomic64_sub(count, &pages_in_use);
		return false;
	}
	atomic64_add(count, &store->allocated);
	return true;
}

void sblk_pages_uncharge(struct sblk_store *store, unsigned int count)
{
	atomic64_sub(count, &store->allocated);
	atomic64_sub(count, &pages_in_use);
}

void sblk_pages_gone(unsigned int count)
{
	atomic64_sub(count, &pages_in_use);
}

void *sblk_page_alloc(struct sblk_store *store, gfp_t gfp)
{
	void *page;

	if (!sblk_pages_charge(store, 1))
		return NULL;
	page = (void *)__get_free_page(gfp | __GFP_NOWARN);
	if (!page)
		sblk_pages_uncharge(store, 1);
	return page;
}

void sblk_page_free(struct sblk_store *store, void *page)
{
	free_page((unsigned long)page);
	sblk_pages_uncharge(store, 1);
}

struct sblk_store *sblk_store_create(u64 bytes, struct sblk_store *base)
{
	struct sblk_store *store = kzalloc(sizeof(*store), GFP_KERNEL);
	u64 pages = (bytes + SBLK_PAGE_BYTES - 1) >> SBLK_PAGE_SHIFT;
	unsigned int i;

	if (!store)
		return NULL;
	kref_init(&store->kref);
	store->bytes = bytes;
	store->leaf_shift = SBLK_MIN_LEAF_SHIFT;
	while (((pages - 1) >> store->leaf_shift) + 1 > SBLK_MAX_LEAVES)
		store->leaf_shift++;
	store->nr_leaves = ((pages - 1) >> store->leaf_shift) + 1;
	atomic64_set(&store->allocated, 0);
	for (i = 0; i < SBLK_STORE_LOCKS; i++)
		spin_lock_init(&store->locks[i]);
	store->leaves = kvcalloc(store->nr_leaves, sizeof(*store->leaves), GFP_KERNEL);
	if (!store->leaves) {
		kfree(store);
		return NULL;
	}
	if (base) {
		store->base = sblk_store_get(base);
		store->atomic = base->atomic;
	}
	return store;
}

static void store_free(struct sblk_store *store)
{
	u64 i, j;

	for (i = 0; i < store->nr_leaves; i++) {
		void **leaf = store->leaves[i];

		if (!leaf)
			continue;
		for (j = 0; j < 1ULL << store->leaf_shift; j++)
			if (leaf[j] && leaf[j] != SBLK_HOLE)
				sblk_page_free(store, leaf[j]);
		kvfree(leaf);
		cond_resched();
	}
	kvfree(store->leaves);
	kfree(store);
}

static void store_release(struct kref *kref)
{
	/* The caller goes on down by itself: a long chain must not recurse. */
}

void sblk_store_put(struct sblk_store *store)
{
	while (store && kref_put(&store->kref, store_release)) {
		struct sblk_store *base = store->base;

		store_free(store);
		store = base;
	}
}

void **sblk_leaf_make(struct sblk_store *store, u64 index, gfp_t gfp)
{
	void **leaf;

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

bool sblk_store_present(struct sblk_store *store, u64 pos, u64 *absent_until)
{
	u64 index = pos >> SBLK_PAGE_SHIFT;
	u64 leaf_pages = 1ULL << store->leaf_shift;
	struct sblk_store *layer;
	bool leaf = false;
	void *page;

	rcu_read_lock();
	page = page_lookup(store, index);
	rcu_read_unlock();
	if (page && page != SBLK_HOLE)
		return true;
	for (layer = store; layer && !leaf; layer = layer->base)
		leaf = READ_ONCE(layer->leaves[index >> layer->leaf_shift]);
	/* Stores on each other have the same shape: a leaf that none of them has is zero to its end. */
	*absent_until = (leaf ? index + 1 : (index | (leaf_pages - 1)) + 1) << SBLK_PAGE_SHIFT;
	return false;
}

u64 sblk_store_allocated_bytes(struct sblk_store *store)
{
	u64 pages = 0;

	for (; store; store = store->base)
		pages += atomic64_read(&store->allocated);
	return pages << SBLK_PAGE_SHIFT;
}

/* Moves what `base` has and `store` lacks. */
static void merge_leaf(struct sblk_store *store, struct sblk_store *base, u64 i)
{
	void **from = base->leaves[i];
	void **to = store->leaves[i];
	u64 j;

	if (!from)
		return;
	if (!to) {
		/* Holes of the lower store hide what lies deeper, so they move like pages. */
		store->leaves[i] = from;
		base->leaves[i] = NULL;
		for (j = 0; j < 1ULL << store->leaf_shift; j++) {
			if (from[j] && from[j] != SBLK_HOLE) {
				atomic64_inc(&store->allocated);
				atomic64_dec(&base->allocated);
			}
		}
		return;
	}
	for (j = 0; j < 1ULL << store->leaf_shift; j++) {
		if (to[j] || !from[j])
			continue;
		to[j] = from[j];
		from[j] = NULL;
		if (to[j] != SBLK_HOLE) {
			atomic64_inc(&store->allocated);
			atomic64_dec(&base->allocated);
		}
	}
}

void sblk_store_merge(struct sblk_store *store)
{
	while (store->base && kref_read(&store->base->kref) == 1) {
		struct sblk_store *base = store->base;
		u64 i;

		for (i = 0; i < store->nr_leaves; i++)
			merge_leaf(store, base, i);
		store->base = base->base;
		base->base = NULL;
		sblk_store_put(base);
	}
}

int sblk_store_populate(struct sblk_store *store, int node)
{
	u64 pages = (store->bytes + SBLK_PAGE_BYTES - 1) >> SBLK_PAGE_SHIFT;
	unsigned int order = SBLK_POPULATE_ORDER;
	u64 index = 0;

	while (index < pages) {
		bool failed = false;
		u64 i, count;
		void *chunk;

		while (order && (1ULL << order) > pages - index)
			order--;
		count = 1ULL << order;
		if (!sblk_pages_charge(store, count))
			return -ENOMEM;
		chunk = sblk_chunk_alloc(node, order);
		if (!chunk) {
			sblk_pages_uncharge(store, count);
			if (!order)
				return -ENOMEM;
			order--;
			continue;
		}
		for (i = 0; i < count; i++) {
			void **slot = slot_make(store, index + i, GFP_KERNEL);
			void *page = chunk + (i << SBLK_PAGE_SHIFT);

			if (slot) {
				*slot = page;
			} else {
				sblk_page_free(store, page);
				failed = true;
			}
		}
		if (failed)
			return -ENOMEM;
		index += count;
		cond_resched();
	}
	return 0;
}
