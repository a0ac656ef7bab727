// SPDX-License-Identifier: GPL-2.0-only
#include "store.h"

/* A table's upper level stays below this many entries; past that leaves grow. */
#define SBLK_MAX_LEAVES (1ULL << 20)
#define SBLK_MIN_LEAF_SHIFT 9 /* 512 pointers: one page of them */

/* In a slot: zero, whatever lies below. It is a page of zeroes, so that readers need not know. */
#define SBLK_HOLE ((void *)sblk_zero_page())

static u64 page_limit = ~0ULL;
static atomic64_t pages_in_use = ATOMIC64_INIT(0);

void sblk_store_set_limit(u64 pages)
{
	page_limit = pages;
}

/* Counts pages in before they are there; false beyond the limit. */
static bool pages_charge(struct sblk_store *store, unsigned int count)
{
	if ((u64)atomic64_add_return(count, &pages_in_use) > page_limit) {
		atomic64_sub(count, &pages_in_use);
		return false;
	}
	atomic64_add(count, &store->allocated);
	return true;
}

static void pages_uncharge(struct sblk_store *store, unsigned int count)
{
	atomic64_sub(count, &store->allocated);
	atomic64_sub(count, &pages_in_use);
}

static void *page_alloc(struct sblk_store *store, gfp_t gfp)
{
	void *page;

	if (!pages_charge(store, 1))
		return NULL;
	page = (void *)__get_free_page(gfp | __GFP_NOWARN);
	if (!page)
		pages_uncharge(store, 1);
	return page;
}

static void page_free(struct sblk_store *store, void *page)
{
	free_page((unsigned long)page);
	pages_uncharge(store, 1);
}

/* Whole, aligned pages have a copy of their own, which beats memcpy() wherever that goes byte by byte or by short words. */
static inline void copy_part(void *to, const void *from, size_t part)
{
	if (part == SBLK_PAGE_BYTES && !(((unsigned long)to | (unsigned long)from) & (SBLK_PAGE_BYTES - 1)))
		sblk_copy_page(to, from);
	else
		memcpy(to, from, part);
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
				page_free(store, leaf[j]);
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

static void page_lock(struct sblk_store *store, u64 index)
{
	if (unlikely(store->atomic))
		sblk_lock(page_lock_of(store, index));
}

static void page_unlock(struct sblk_store *store, u64 index)
{
	if (unlikely(store->atomic))
		sblk_unlock(page_lock_of(store, index));
}

void sblk_store_read(struct sblk_store *store, u64 pos, void *to, size_t len)
{
	while (len) {
		size_t offset = pos & (SBLK_PAGE_BYTES - 1);
		size_t part = min_t(size_t, len, SBLK_PAGE_BYTES - offset);
		u64 index = pos >> SBLK_PAGE_SHIFT;
		void *page;

		page_lock(store, index);
		rcu_read_lock();
		page = page_lookup(store, index);
		if (page)
			copy_part(to, page + offset, part);
		else
			memset(to, 0, part);
		rcu_read_unlock();
		page_unlock(store, index);
		to += part;
		pos += part;
		len -= part;
	}
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

/*
 * A page that will be written whole, so it may hold anything. Where none of the pages that follow is there either, but the
 * write goes on over them, they are got together: that costs the allocator little more than one.
 */
static void *writer_page(struct sblk_writer *writer, void **slot, gfp_t gfp)
{
	struct sblk_store *store = writer->store;
	u64 leaf_pages = 1ULL << store->leaf_shift;
	u64 in_leaf = (writer->pos >> SBLK_PAGE_SHIFT) & (leaf_pages - 1);
	unsigned int i;

	if (writer->nr_pages)
		return writer->pages[--writer->nr_pages];
	if (writer->left < SBLK_WRITER_PAGES << SBLK_PAGE_SHIFT || in_leaf + SBLK_WRITER_PAGES > leaf_pages)
		return page_alloc(store, gfp);
	for (i = 1; i < SBLK_WRITER_PAGES; i++) {
		void *page = READ_ONCE(slot[i]);

		if (page && page != SBLK_HOLE)
			return page_alloc(store, gfp);
	}
	if (!pages_charge(store, SBLK_WRITER_PAGES))
		return page_alloc(store, gfp);
	if (!sblk_pages_alloc(writer->pages, SBLK_WRITER_ORDER)) {
		pages_uncharge(store, SBLK_WRITER_PAGES);
		return page_alloc(store, gfp);
	}
	writer->nr_pages = SBLK_WRITER_PAGES - 1;
	return writer->pages[writer->nr_pages];
}

/* What lies below a page that is not there; false when that is nothing but zeroes, and `page` as it was. */
static bool copy_below(struct sblk_store *store, u64 index, void *page)
{
	void *below;

	if (!store->base)
		return false;
	rcu_read_lock();
	below = page_lookup(store->base, index);
	if (below == SBLK_HOLE)
		below = NULL;
	if (below)
		sblk_copy_page(page, below);
	rcu_read_unlock();
	return below;
}

/*
 * Puts a page there with the new bytes in it: readers must never see one before its data, so it is filled first and
 * installed then. Around the new bytes it has what lies below. `page` is the caller's until then, and all zeroes unless
 * the new bytes are a whole page.
 */
static void page_install(struct sblk_store *store, u64 index, void **slot, void *page, size_t offset, const void *from,
			 size_t part)
{
	bool whole = part == SBLK_PAGE_BYTES;
	bool clean = true; /* but for the new bytes */

	for (;;) {
		void *old = READ_ONCE(*slot);

		if (old && old != SBLK_HOLE) {
			/* Lost to another first write, which may be of other sectors of the page: then into that one. */
			if (page_overwrite(slot, offset, from, part)) {
				page_free(store, page);
				return;
			}
			continue;
		}
		if (!whole && !old && copy_below(store, index, page)) {
			clean = false;
		} else if (!whole && !clean) {
			memset(page, 0, SBLK_PAGE_BYTES);
			clean = true;
		}
		if (from)
			copy_part(page + offset, from, part);
		else
			memset(page + offset, 0, part);
		if (cmpxchg(slot, old, page) == old)
			return;
	}
}

/* Writes a part of the page that the writer is at; `from` may be NULL, for zeroes. */
static int page_write(struct sblk_writer *writer, const void *from, size_t part)
{
	struct sblk_store *store = writer->store;
	size_t offset = writer->pos & (SBLK_PAGE_BYTES - 1);
	u64 index = writer->pos >> SBLK_PAGE_SHIFT;
	void **slot = slot_make(store, index, writer->gfp);
	int err = 0;

	if (!slot)
		return -ENOMEM;
	page_lock(store, index);
	if (!page_overwrite(slot, offset, from, part)) {
		/* Under the page's lock nobody may sleep. */
		gfp_t gfp = store->atomic ? GFP_NOWAIT | __GFP_NOWARN : writer->gfp;
		void *page = part == SBLK_PAGE_BYTES ? writer_page(writer, slot, gfp) :
						       page_alloc(store, gfp | __GFP_ZERO);

		if (page)
			page_install(store, index, slot, page, offset, from, part);
		else
			err = -ENOMEM;
	}
	page_unlock(store, index);
	return err;
}

void sblk_writer_begin(struct sblk_writer *writer, struct sblk_store *store, u64 pos, u64 len, gfp_t gfp)
{
	writer->store = store;
	writer->pos = pos;
	writer->left = len;
	writer->gfp = gfp;
	writer->nr_pages = 0;
}

int sblk_writer_write(struct sblk_writer *writer, const void *from, size_t len)
{
	while (len) {
		size_t part = min_t(size_t, len, SBLK_PAGE_BYTES - (writer->pos & (SBLK_PAGE_BYTES - 1)));
		int err = page_write(writer, from, part);

		if (err)
			return err;
		from += part;
		len -= part;
		writer->pos += part;
		writer->left -= part;
	}
	return 0;
}

void sblk_writer_end(struct sblk_writer *writer)
{
	while (writer->nr_pages)
		page_free(writer->store, writer->pages[--writer->nr_pages]);
}

int sblk_store_write(struct sblk_store *store, u64 pos, const void *from, size_t len, gfp_t gfp)
{
	struct sblk_writer writer;
	int err;

	sblk_writer_begin(&writer, store, pos, len, gfp);
	err = sblk_writer_write(&writer, from, len);
	sblk_writer_end(&writer);
	return err;
}

int sblk_store_prepare(struct sblk_store *store, u64 pos, u64 len, gfp_t gfp)
{
	u64 index = pos >> SBLK_PAGE_SHIFT;
	u64 last = (pos + len - 1) >> SBLK_PAGE_SHIFT;

	for (; index <= last; index++) {
		void **slot = slot_make(store, index, gfp);

		if (!slot)
			return -ENOMEM;
		/* Writing nothing into a page installs it as it reads. */
		if (!page_overwrite(slot, 0, NULL, 0)) {
			void *page = page_alloc(store, gfp | __GFP_ZERO);

			if (!page)
				return -ENOMEM;
			page_install(store, index, slot, page, 0, NULL, 0);
		}
	}
	return 0;
}

int sblk_store_prepare_discard(struct sblk_store *store, u64 pos, u64 len, gfp_t gfp)
{
	u64 end = pos + len;

	while (pos < end) {
		u64 next = (pos | (SBLK_PAGE_BYTES - 1)) + 1;
		u64 absent_until;
		bool whole = !(pos & (SBLK_PAGE_BYTES - 1)) && next <= end;

		if (!sblk_store_present(store, pos, &absent_until)) {
			next = absent_until;
		} else if (!whole) {
			int err = sblk_store_prepare(store, pos, 1, gfp);

			if (err)
				return err;
		} else if (store->base && !slot_make(store, pos >> SBLK_PAGE_SHIFT, gfp)) {
			return -ENOMEM;
		}
		pos = next;
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

static bool below_present(struct sblk_store *store, u64 index)
{
	void *below = NULL;

	if (store->base) {
		rcu_read_lock();
		below = page_lookup(store->base, index);
		rcu_read_unlock();
	}
	return below && below != SBLK_HOLE;
}

/* Takes a whole page out; what it becomes says what is read from then on. */
static int page_drop(struct sblk_store *store, u64 index, struct sblk_reap **reap, gfp_t gfp)
{
	bool hole = below_present(store, index);
	void **slot = hole ? slot_make(store, index, gfp) : slot_find(store, index);
	void *page;

	if (!slot)
		return hole ? -ENOMEM : 0;
	page = READ_ONCE(*slot);
	if (!page || page == SBLK_HOLE) {
		/* Whoever writes first at the same moment comes after us. */
		if (hole)
			cmpxchg(slot, NULL, SBLK_HOLE);
		return 0;
	}
	/* Without memory to remember what is to be freed, the page stays and is zero. */
	if (!*reap)
		*reap = kzalloc(sizeof(**reap), GFP_NOWAIT | __GFP_NOWARN);
	if (!*reap) {
		page_overwrite(slot, 0, NULL, SBLK_PAGE_BYTES);
		return 0;
	}
	page = xchg(slot, hole ? SBLK_HOLE : NULL);
	if (page && page != SBLK_HOLE) {
		atomic64_dec(&store->allocated);
		*reap = reap_add(*reap, page);
	}
	return 0;
}

static int store_clear(struct sblk_store *store, u64 pos, u64 len, gfp_t gfp, bool drop)
{
	struct sblk_reap *reap = NULL;
	int err = 0;

	while (len && !err) {
		u64 part = min_t(u64, len, SBLK_PAGE_BYTES - (pos & (SBLK_PAGE_BYTES - 1)));
		u64 index = pos >> SBLK_PAGE_SHIFT;
		u64 absent_until;

		if (!sblk_store_present(store, pos, &absent_until)) {
			part = min_t(u64, len, absent_until - pos);
		} else if (!drop || part < SBLK_PAGE_BYTES) {
			struct sblk_writer writer;

			sblk_writer_begin(&writer, store, pos, part, gfp);
			err = page_write(&writer, NULL, part);
			sblk_writer_end(&writer);
		} else {
			page_lock(store, index);
			err = page_drop(store, index, &reap, GFP_NOWAIT | __GFP_NOWARN);
			page_unlock(store, index);
		}
		pos += part;
		len -= part;
	}
	if (reap && reap->count)
		call_rcu(&reap->rcu, reap_free);
	else
		kfree(reap);
	return err;
}

int sblk_store_discard(struct sblk_store *store, u64 pos, u64 len, gfp_t gfp)
{
	return store_clear(store, pos, len, gfp, true);
}

int sblk_store_zero(struct sblk_store *store, u64 pos, u64 len, gfp_t gfp)
{
	return store_clear(store, pos, len, gfp, false);
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
		if (!pages_charge(store, count))
			return -ENOMEM;
		chunk = sblk_chunk_alloc(node, order);
		if (!chunk) {
			pages_uncharge(store, count);
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
				page_free(store, page);
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
