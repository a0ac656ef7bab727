// SPDX-License-Identifier: GPL-2.0-only
#include "core/store.h"

#include "core/store_slots.h"

/* A table's upper level stays below this many entries; past that leaves grow. */
#define SBLK_MAX_LEAVES (1ULL << 20)
#define SBLK_MIN_LEAF_SHIFT 9 /* 512 pointers: one page of them */

/* --- memory */

static u64 page_limit = ~0ULL;
static atomic64_t pages_in_use = ATOMIC64_INIT(0);

void sblk_pages_set_limit(u64 pages)
{
	page_limit = pages;
}

static bool charge(u64 count)
{
	if (count > page_limit)
		return false;
	if ((u64)atomic64_add_return(count, &pages_in_use) > page_limit) {
		atomic64_sub(count, &pages_in_use);
		return false;
	}
	return true;
}

void sblk_pages_uncharge(u64 count)
{
	atomic64_sub(count, &pages_in_use);
}

bool sblk_pages_charge(u64 count, gfp_t gfp)
{
	if (likely(charge(count)))
		return true;
	if (!gfpflags_allow_blocking(gfp))
		return false;
	rcu_barrier();
	return charge(count);
}

void *sblk_page_alloc(gfp_t gfp)
{
	void *page;

	if (!sblk_pages_charge(1, gfp))
		return NULL;
	page = (void *)__get_free_page(gfp | __GFP_NOWARN);
	if (!page)
		sblk_pages_uncharge(1);
	return page;
}

void sblk_page_free(void *page)
{
	free_page((unsigned long)page);
	sblk_pages_uncharge(1);
}

static u64 leaf_pages(const struct sblk_store *store)
{
	return sblk_pages_of(sizeof(sblk_slot) << store->leaf_shift);
}

sblk_slot *sblk_leaf_make(struct sblk_store *store, u64 index, gfp_t gfp)
{
	size_t bytes = sizeof(sblk_slot) << store->leaf_shift;
	sblk_slot *leaf;

	if (!sblk_pages_charge(leaf_pages(store), gfp))
		return NULL;
	/* kvzalloc() may sleep however it is asked; an atomic caller makes do with what the slab has. */
	if (gfpflags_allow_blocking(gfp))
		leaf = kvzalloc(bytes, gfp);
	else
		leaf = kzalloc(bytes, gfp | __GFP_NOWARN);
	if (!leaf || cmpxchg(&store->leaves[index >> store->leaf_shift], NULL, (sblk_slot __rcu __force *)leaf)) {
		kvfree(leaf);
		sblk_pages_uncharge(leaf_pages(store));
	}
	return slot_find(store, index);
}

/* --- creation and layers */

static unsigned int leaf_shift_of(u64 bytes)
{
	unsigned int shift = SBLK_MIN_LEAF_SHIFT;

	while (((sblk_pages_of(bytes) - 1) >> shift) + 1 > SBLK_MAX_LEAVES)
		shift++;
	return shift;
}

struct sblk_store *sblk_store_create(u64 bytes, struct sblk_store *base)
{
	struct sblk_store *store = kzalloc(sizeof(*store), GFP_KERNEL);

	if (!store)
		return NULL;
	kref_init(&store->kref);
	store->bytes = bytes;
	store->leaf_shift = leaf_shift_of(bytes);
	store->nr_leaves = ((sblk_pages_of(bytes) - 1) >> store->leaf_shift) + 1;
	/* One that has shrunk keeps its table. */
	if (base)
		store->nr_leaves = max_t(u64, store->nr_leaves, base->nr_leaves);
	atomic64_set(&store->allocated, 0);
	store->leaves = kvcalloc(store->nr_leaves, sizeof(*store->leaves), GFP_KERNEL);
	if (!store->leaves) {
		kfree(store);
		return NULL;
	}
	if (base)
		store->base = sblk_store_get(base);
	return store;
}

/* Of a store that nobody uses, or only to look. */
static sblk_slot *leaf_of(struct sblk_store *store, u64 i)
{
	return rcu_dereference_raw(store->leaves[i]);
}

static void store_free(struct sblk_store *store)
{
	u64 i, j;

	for (i = 0; i < store->nr_leaves; i++) {
		sblk_slot *leaf = leaf_of(store, i);

		if (!leaf)
			continue;
		for (j = 0; j < 1ULL << store->leaf_shift; j++)
			if (is_page(slot_read(&leaf[j])))
				sblk_page_free(slot_read(&leaf[j]));
		kvfree(leaf);
		sblk_pages_uncharge(leaf_pages(store));
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

bool sblk_store_present(struct sblk_store *store, u64 pos, u64 *absent_until)
{
	u64 index = pos >> SBLK_PAGE_SHIFT;
	u64 in_leaf = 1ULL << store->leaf_shift;
	struct sblk_store *layer;
	bool leaf = false;

	if (is_page(page_lookup(store, index)))
		return true;
	for (layer = store; layer && !leaf; layer = layer->base)
		leaf = leaf_of(layer, index >> layer->leaf_shift);
	/* Stores on each other have the same shape: a leaf that none of them has is zero to its end. */
	*absent_until = (leaf ? index + 1 : (index | (in_leaf - 1)) + 1) << SBLK_PAGE_SHIFT;
	return false;
}

u64 sblk_store_allocated_bytes(struct sblk_store *store)
{
	u64 pages = 0;

	for (; store; store = store->base)
		pages += atomic64_read(&store->allocated);
	return pages << SBLK_PAGE_SHIFT;
}

static void count_moved(struct sblk_store *to, struct sblk_store *from)
{
	atomic64_inc(&to->allocated);
	atomic64_dec(&from->allocated);
}

/* Moves what `base` has and `store` lacks. Holes of the lower store hide what lies deeper, so they move like pages. */
static void merge_leaf(struct sblk_store *store, struct sblk_store *base, u64 i)
{
	sblk_slot *from = leaf_of(base, i);
	sblk_slot *to = leaf_of(store, i);
	u64 j;

	if (!from)
		return;
	if (!to) {
		rcu_assign_pointer(store->leaves[i], from);
		RCU_INIT_POINTER(base->leaves[i], NULL);
		for (j = 0; j < 1ULL << store->leaf_shift; j++)
			if (is_page(slot_read(&from[j])))
				count_moved(store, base);
		return;
	}
	for (j = 0; j < 1ULL << store->leaf_shift; j++) {
		void *page = slot_read(&from[j]);

		if (slot_read(&to[j]) || !page)
			continue;
		slot_swap(&from[j], NULL);
		slot_swap(&to[j], page);
		if (is_page(page))
			count_moved(store, base);
	}
}

void sblk_store_merge(struct sblk_store *store)
{
	while (store->base && kref_read(&store->base->kref) == 1) {
		struct sblk_store *base = store->base;
		u64 i;

		for (i = 0; i < store->nr_leaves; i++) {
			merge_leaf(store, base, i);
			cond_resched();
		}
		store->base = base->base;
		base->base = NULL;
		sblk_store_put(base);
	}
}

int sblk_store_populate(struct sblk_store *store, int node)
{
	u64 pages = sblk_pages_of(store->bytes);
	unsigned int order = SBLK_POPULATE_ORDER;
	u64 index = 0;

	while (index < pages) {
		bool failed = false;
		u64 i, count;
		void *chunk;

		if (sblk_interrupted())
			return -EINTR;
		while (order && (1ULL << order) > pages - index)
			order--;
		count = 1ULL << order;
		if (!sblk_pages_charge(count, GFP_KERNEL))
			return -ENOMEM;
		chunk = sblk_chunk_alloc(node, order);
		if (!chunk) {
			sblk_pages_uncharge(count);
			if (!order)
				return -ENOMEM;
			order--;
			continue;
		}
		for (i = 0; i < count; i++) {
			sblk_slot *slot = slot_make(store, index + i, GFP_KERNEL);
			void *page = chunk + (i << SBLK_PAGE_SHIFT);

			if (slot) {
				slot_swap(slot, page);
				atomic64_inc(&store->allocated);
			} else {
				sblk_page_free(page);
				failed = true;
			}
		}
		if (failed)
			return -ENOMEM;
		index += count;
		cond_resched();
	}
	store->eager = true;
	return 0;
}

/* --- reading and writing */

void sblk_store_read(struct sblk_store *store, u64 pos, void *to, size_t len)
{
	while (len) {
		size_t offset = pos & (SBLK_PAGE_BYTES - 1);
		size_t part = min_t(size_t, len, SBLK_PAGE_BYTES - offset);
		void *page;

		rcu_read_lock();
		page = page_lookup(store, pos >> SBLK_PAGE_SHIFT);
		if (page)
			copy_part(to, page + offset, part);
		else
			memset(to, 0, part);
		rcu_read_unlock();
		to += part;
		pos += part;
		len -= part;
	}
}

/* Copies into the page that is there; false when none is. `from` may be NULL, for zeroes. */
static bool page_overwrite(sblk_slot *slot, size_t offset, const void *from, size_t part)
{
	void *page;
	bool done;

	rcu_read_lock();
	page = slot_read(slot);
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
static void *writer_page(struct sblk_writer *writer, const sblk_slot *slot)
{
	struct sblk_store *store = writer->store;
	u64 in_leaf = 1ULL << store->leaf_shift;
	u64 at = (writer->pos >> SBLK_PAGE_SHIFT) & (in_leaf - 1);
	unsigned int i;

	if (writer->nr_pages)
		return writer->pages[--writer->nr_pages];
	if (writer->left < SBLK_WRITER_PAGES << SBLK_PAGE_SHIFT || at + SBLK_WRITER_PAGES > in_leaf)
		return sblk_page_alloc(writer->gfp);
	for (i = 1; i < SBLK_WRITER_PAGES; i++)
		if (is_page(slot_read(&slot[i])))
			return sblk_page_alloc(writer->gfp);
	if (!sblk_pages_charge(SBLK_WRITER_PAGES, GFP_NOWAIT))
		return sblk_page_alloc(writer->gfp);
	if (!sblk_pages_alloc(writer->pages, SBLK_WRITER_ORDER)) {
		sblk_pages_uncharge(SBLK_WRITER_PAGES);
		return sblk_page_alloc(writer->gfp);
	}
	writer->nr_pages = SBLK_WRITER_PAGES - 1;
	return writer->pages[writer->nr_pages];
}

/* Copies what lies below a missing page; false when that is nothing but zeroes, and `page` as it was. */
static bool copy_below(struct sblk_store *store, u64 index, void *page)
{
	void *below = page_below(store, index);

	if (below)
		sblk_copy_page(page, below);
	return below;
}

/*
 * Puts a page there with the new bytes in it: readers must never see one before its data, so it is filled first and
 * installed then. Around the new bytes it has what lies below. `page` is the caller's until then, and all zeroes unless
 * the new bytes are a whole page.
 */
static void page_install(struct sblk_store *store, u64 index, sblk_slot *slot, void *page, size_t offset,
			 const void *from, size_t part)
{
	bool whole = part == SBLK_PAGE_BYTES;
	bool clean = true; /* but for the new bytes */

	for (;;) {
		void *old = slot_read(slot);

		if (is_page(old)) {
			/* Lost to another first write, which may be of other sectors of the page: then into that one. */
			if (page_overwrite(slot, offset, from, part)) {
				sblk_page_free(page);
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
		if (slot_replace(slot, old, page)) {
			atomic64_inc(&store->allocated);
			return;
		}
	}
}

/* Writes a part of the page that the writer is at; `from` may be NULL, for zeroes. */
static int page_write(struct sblk_writer *writer, const void *from, size_t part)
{
	struct sblk_store *store = writer->store;
	size_t offset = writer->pos & (SBLK_PAGE_BYTES - 1);
	u64 index = writer->pos >> SBLK_PAGE_SHIFT;
	sblk_slot *slot = slot_make(store, index, writer->gfp);
	void *page;

	if (!slot)
		return -ENOMEM;
	if (likely(page_overwrite(slot, offset, from, part)))
		return 0;
	page = part == SBLK_PAGE_BYTES ? writer_page(writer, slot) : sblk_page_alloc(writer->gfp | __GFP_ZERO);
	if (!page)
		return -ENOMEM;
	page_install(store, index, slot, page, offset, from, part);
	return 0;
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
		sblk_page_free(writer->pages[--writer->nr_pages]);
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

int sblk_store_reserve(struct sblk_store *store, u64 pos, u64 len, gfp_t gfp)
{
	u64 end = pos + len;
	struct sblk_writer writer;
	int err = 0;

	sblk_writer_begin(&writer, store, pos, 0, gfp);
	while (writer.pos < end && !err) {
		/* Nothing of the page, which is put there all the same. */
		err = page_write(&writer, NULL, 0);
		writer.pos = (writer.pos | (SBLK_PAGE_BYTES - 1)) + 1;
	}
	sblk_writer_end(&writer);
	return err;
}

/* --- discards */

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
		sblk_page_free(reap->pages[i]);
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

/* Takes a whole page out; what it becomes says what is read from then on. */
static int page_drop(struct sblk_store *store, u64 index, struct sblk_reap **reap, gfp_t gfp)
{
	void *empty = page_below(store, index) ? SBLK_HOLE : NULL;
	sblk_slot *slot = empty ? slot_make(store, index, gfp) : slot_find(store, index);
	void *page;

	if (!slot)
		return empty ? -ENOMEM : 0;
	page = slot_read(slot);
	if (!is_page(page)) {
		/* Whoever writes first at the same moment comes after us. */
		if (empty)
			slot_replace(slot, NULL, empty);
		return 0;
	}
	/* Without memory to remember what is to be freed, the page stays and is zero. */
	if (!*reap)
		*reap = kzalloc(sizeof(**reap), GFP_NOWAIT | __GFP_NOWARN);
	if (!*reap) {
		page_overwrite(slot, 0, NULL, SBLK_PAGE_BYTES);
		return 0;
	}
	page = slot_swap(slot, empty);
	if (is_page(page)) {
		atomic64_dec(&store->allocated);
		*reap = reap_add(*reap, page);
	}
	return 0;
}

/* Zeroes that keep their page, within one page that is there. */
static int page_zero(struct sblk_store *store, u64 pos, size_t len, gfp_t gfp)
{
	struct sblk_writer writer;
	int err;

	sblk_writer_begin(&writer, store, pos, len, gfp);
	err = page_write(&writer, NULL, len);
	sblk_writer_end(&writer);
	return err;
}

static int store_clear(struct sblk_store *store, u64 pos, u64 len, gfp_t gfp, bool drop)
{
	struct sblk_reap *reap = NULL;
	int err = 0;

	while (len && !err) {
		u64 part = min_t(u64, len, SBLK_PAGE_BYTES - (pos & (SBLK_PAGE_BYTES - 1)));
		u64 absent_until;

		if (!sblk_store_present(store, pos, &absent_until))
			part = min_t(u64, len, absent_until - pos);
		else if (!drop || part < SBLK_PAGE_BYTES)
			err = page_zero(store, pos, part, gfp);
		else
			err = page_drop(store, pos >> SBLK_PAGE_SHIFT, &reap, gfp);
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
	return store_clear(store, pos, len, gfp, !store->eager);
}

int sblk_store_zero(struct sblk_store *store, u64 pos, u64 len, gfp_t gfp)
{
	return store_clear(store, pos, len, gfp, false);
}

int sblk_store_reserve_discard(struct sblk_store *store, u64 pos, u64 len, gfp_t gfp)
{
	u64 end = pos + len;
	int err = 0;

	while (pos < end && !err) {
		u64 next = min_t(u64, end, (pos | (SBLK_PAGE_BYTES - 1)) + 1);
		u64 index = pos >> SBLK_PAGE_SHIFT;
		u64 absent_until;

		if (!sblk_store_present(store, pos, &absent_until))
			next = absent_until;
		else if (next - pos < SBLK_PAGE_BYTES)
			err = sblk_store_reserve(store, pos, next - pos, gfp);
		else if (page_below(store, index) && !slot_make(store, index, gfp))
			err = -ENOMEM;
		pos = next;
	}
	return err;
}

/* --- another size */

int sblk_store_resize(struct sblk_store *store, u64 bytes)
{
	u64 nr_leaves = ((sblk_pages_of(bytes) - 1) >> store->leaf_shift) + 1;
	u64 from = min_t(u64, bytes, store->bytes);
	u64 to = sblk_pages_of(max_t(u64, bytes, store->bytes)) << SBLK_PAGE_SHIFT; /* with all of its last page */
	sblk_slot __rcu **leaves;
	int err;

	/* Layers on each other have the same shape. */
	if (store->base)
		return -EBUSY;
	if (leaf_shift_of(bytes) != store->leaf_shift)
		return -EFBIG;
	/* Never shorter: leaves stay as long as their store. */
	if (nr_leaves > store->nr_leaves) {
		leaves = kvcalloc(nr_leaves, sizeof(*leaves), GFP_KERNEL);
		if (!leaves)
			return -ENOMEM;
		memcpy(leaves, store->leaves, store->nr_leaves * sizeof(*leaves));
		kvfree(store->leaves);
		store->leaves = leaves;
		store->nr_leaves = nr_leaves;
	}
	/* Also of one that was populated: the memory of what is cut off is given back. */
	err = store_clear(store, from, to - from, GFP_KERNEL, true);
	if (!err)
		store->bytes = bytes;
	return err;
}
