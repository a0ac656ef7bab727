// SPDX-License-Identifier: GPL-2.0-only
#include "core/change.h"

#include "core/store_slots.h"

/* The part of the page `index` that lies in [pos, pos + len), as an offset in the page; its length, 0 for none. */
static size_t covered(u64 index, u64 pos, u64 len, size_t *offset)
{
	u64 begin = index << SBLK_PAGE_SHIFT;
	u64 from = max_t(u64, pos, begin);
	u64 to = min_t(u64, pos + len, begin + SBLK_PAGE_BYTES);

	*offset = from - begin;
	return from < to ? to - from : 0;
}

/* Gives `page` what is read of the store outside of [offset, offset + part). */
static void complete_page(struct sblk_store *store, u64 index, void *page, size_t offset, size_t part)
{
	const void *old = page_lookup(store, index);
	size_t end = offset + part;

	if (old) {
		memcpy(page, old, offset);
		memcpy(page + end, old + end, SBLK_PAGE_BYTES - end);
	} else {
		memset(page, 0, offset);
		memset(page + end, 0, SBLK_PAGE_BYTES - end);
	}
}

static void swap_page(struct sblk_store *store, sblk_slot *slot, void **page)
{
	void *new = *page;

	*page = slot_swap(slot, new);
	atomic64_add(is_page(new) - is_page(*page), &store->allocated);
}

/* --- making one */

static int pages_init(struct sblk_change *change, u32 capacity, gfp_t gfp)
{
	size_t bytes = capacity * sizeof(*change->pages);

	change->capacity = capacity;
	change->pages = gfpflags_allow_blocking(gfp) ? kvmalloc(bytes, gfp | __GFP_NOWARN) :
						       kmalloc(bytes, gfp | __GFP_NOWARN);
	return change->pages ? 0 : -ENOMEM;
}

static void change_clear(struct sblk_change *change)
{
	u32 i;

	for (i = 0; i < change->nr_pages; i++)
		if (is_page(change->pages[i].page))
			sblk_page_free(change->pages[i].page);
	kvfree(change->pages);
	if (change->spare[0])
		sblk_page_free(change->spare[0]);
	if (change->spare[1])
		sblk_page_free(change->spare[1]);
	memset(change, 0, sizeof(*change));
}

void sblk_change_init_empty(struct sblk_change *change)
{
	memset(change, 0, sizeof(*change));
	refcount_set(&change->refs, 1);
}

int sblk_change_init_write(struct sblk_change *change, struct sblk_store *store, u64 pos, u64 len, gfp_t gfp)
{
	u64 first = pos >> SBLK_PAGE_SHIFT;
	u64 last = (pos + len - 1) >> SBLK_PAGE_SHIFT;
	u64 index;

	sblk_change_init_empty(change);
	change->pos = pos;
	change->len = len;
	if (pages_init(change, last - first + 1, gfp))
		return -ENOMEM;
	for (index = first; index <= last; index++) {
		void *page = slot_make(store, index, gfp) ? sblk_page_alloc(gfp) : NULL;

		if (!page) {
			change_clear(change);
			return -ENOMEM;
		}
		change->pages[change->nr_pages++] = (struct sblk_change_page){ index, page };
	}
	return 0;
}

/* How many pages of the range are there, up to `limit`; shortens the range to those. */
static u32 count_present(struct sblk_store *store, u64 pos, u64 *len, u32 limit)
{
	u64 end = pos + *len;
	u64 at = pos;
	u32 count = 0;

	while (at < end) {
		u64 next = (at | (SBLK_PAGE_BYTES - 1)) + 1;
		u64 absent_until;

		if (!sblk_store_present(store, at, &absent_until)) {
			at = absent_until;
			continue;
		}
		if (count == limit) {
			*len = at - pos;
			break;
		}
		count++;
		at = next;
	}
	return count;
}

/* What reads as zero at an index, with nothing of its own if that will do. */
static void *empty_page(struct sblk_store *store, u64 index)
{
	return page_below(store, index) ? SBLK_HOLE : NULL;
}

static int add_zeroes(struct sblk_change *change, struct sblk_store *store, u64 index, gfp_t gfp)
{
	size_t offset;
	bool whole = covered(index, change->pos, change->len, &offset) == SBLK_PAGE_BYTES;
	void *page = empty_page(store, index);

	if (!slot_make(store, index, gfp))
		return -ENOMEM;
	if (!whole || change->keep) {
		page = sblk_page_alloc(gfp | __GFP_ZERO);
		if (!page)
			return -ENOMEM;
	}
	change->pages[change->nr_pages++] = (struct sblk_change_page){ index, page };
	return 0;
}

int sblk_change_init_zeroes(struct sblk_change *change, struct sblk_store *store, u64 pos, u64 len, bool keep, gfp_t gfp)
{
	u32 present = count_present(store, pos, &len, SBLK_CHANGE_ZEROES);
	u64 at = pos;
	u64 end = pos + len;

	sblk_change_init_empty(change);
	change->zeroes = true;
	change->keep = keep || store->eager;
	change->pos = pos;
	change->len = len;
	if (present && pages_init(change, present, gfp))
		return -ENOMEM;
	if (store->base) {
		change->spare[0] = sblk_page_alloc(gfp);
		change->spare[1] = sblk_page_alloc(gfp);
		if (!change->spare[0] || !change->spare[1])
			goto no_memory;
	}
	while (at < end && change->nr_pages < present) {
		u64 absent_until;

		if (!sblk_store_present(store, at, &absent_until)) {
			at = absent_until;
			continue;
		}
		if (add_zeroes(change, store, at >> SBLK_PAGE_SHIFT, gfp))
			goto no_memory;
		at = (at | (SBLK_PAGE_BYTES - 1)) + 1;
	}
	return 0;
no_memory:
	change_clear(change);
	return -ENOMEM;
}

void sblk_change_fill(struct sblk_change *change, u64 offset, const void *from, size_t len)
{
	u64 at = (change->pos & (SBLK_PAGE_BYTES - 1)) + offset;

	while (len) {
		size_t in_page = at & (SBLK_PAGE_BYTES - 1);
		size_t part = min_t(size_t, len, SBLK_PAGE_BYTES - in_page);

		copy_part(change->pages[at >> SBLK_PAGE_SHIFT].page + in_page, from, part);
		at += part;
		from += part;
		len -= part;
	}
}

u8 *sblk_change_byte(struct sblk_change *change, u64 offset)
{
	u64 at = (change->pos & (SBLK_PAGE_BYTES - 1)) + offset;

	return change->pages[at >> SBLK_PAGE_SHIFT].page + (at & (SBLK_PAGE_BYTES - 1));
}

bool sblk_change_is_ready(const struct sblk_change *change, struct sblk_store *store)
{
	u64 at = change->pos;
	u64 end = change->zeroes ? change->pos + change->len : at;
	u32 i = 0;

	/* All pages that are there must be among those of the change. */
	while (at < end) {
		u64 absent_until;

		if (!sblk_store_present(store, at, &absent_until)) {
			at = absent_until;
			continue;
		}
		while (i < change->nr_pages && change->pages[i].index < at >> SBLK_PAGE_SHIFT)
			i++;
		if (i == change->nr_pages || change->pages[i].index != at >> SBLK_PAGE_SHIFT)
			return false;
		at = (at | (SBLK_PAGE_BYTES - 1)) + 1;
	}
	return true;
}

void sblk_change_make(struct sblk_change *change, struct sblk_store *store)
{
	u32 i;

	for (i = 0; i < change->nr_pages; i++) {
		struct sblk_change_page *page = &change->pages[i];
		size_t offset, part = covered(page->index, change->pos, change->len, &offset);

		if (is_page(page->page) && part < SBLK_PAGE_BYTES)
			complete_page(store, page->index, page->page, offset, part);
		swap_page(store, slot_find(store, page->index), &page->page);
	}
}

/* --- taking it back, and making it again */

void sblk_change_swap(struct sblk_change *change, struct sblk_store *store)
{
	u32 i;

	for (i = 0; i < change->nr_pages; i++)
		swap_page(store, slot_find(store, change->pages[i].index), &change->pages[i].page);
}

/* A part of a page becomes zero. Where that needs a page that is missing, there is one to spare. */
static void redo_zeroes_part(struct sblk_change *change, struct sblk_store *store, u64 pos, u64 len)
{
	u64 index = pos >> SBLK_PAGE_SHIFT;
	sblk_slot *slot = slot_find(store, index);
	void *page = slot ? slot_read(slot) : NULL;
	size_t offset = pos & (SBLK_PAGE_BYTES - 1);
	void **spare = change->spare[0] ? &change->spare[0] : &change->spare[1];

	if (is_page(page)) {
		memset(page + offset, 0, len);
	} else if (!page && page_below(store, index) && !WARN_ON_ONCE(!slot || !*spare)) {
		complete_page(store, index, *spare, offset, len);
		memset(*spare + offset, 0, len);
		swap_page(store, slot, spare);
	}
}

/* What is there now need not be what was there when the zeroes were written, so it is looked for again. */
static void redo_zeroes(struct sblk_change *change, struct sblk_store *store, u64 len)
{
	u64 pos = change->pos;
	u64 end = pos + len;

	while (pos < end) {
		u64 next = min_t(u64, end, (pos | (SBLK_PAGE_BYTES - 1)) + 1);

		if (next - pos < SBLK_PAGE_BYTES) {
			redo_zeroes_part(change, store, pos, next - pos);
		} else {
			next = end & ~(u64)(SBLK_PAGE_BYTES - 1);
			/* The leaf for a hole is there: what lies below was there when the change was initialised. */
			WARN_ON_ONCE(sblk_store_discard(store, pos, next - pos, GFP_NOWAIT | __GFP_NOWARN));
		}
		pos = next;
	}
}

static void redo_page(struct sblk_change_page *change, struct sblk_store *store, size_t offset, size_t part)
{
	sblk_slot *slot = slot_find(store, change->index);
	void *page = slot_read(slot);

	if (part == SBLK_PAGE_BYTES) {
		swap_page(store, slot, &change->page);
	} else if (is_page(page)) {
		memcpy(page + offset, change->page + offset, part);
	} else {
		complete_page(store, change->index, change->page, offset, part);
		swap_page(store, slot, &change->page);
	}
}

void sblk_change_redo(struct sblk_change *change, struct sblk_store *store, u64 len)
{
	u32 i;

	if (change->zeroes) {
		redo_zeroes(change, store, len);
		return;
	}
	for (i = 0; i < change->nr_pages; i++) {
		size_t offset, part = covered(change->pages[i].index, change->pos, len, &offset);

		if (part)
			redo_page(&change->pages[i], store, offset, part);
	}
}

/* --- moving to another store */

/* A copy of a page, or a hole for what is zero; NULL without memory. */
static void *explicit_page(const void *page)
{
	void *copy;

	if (!is_page(page))
		return SBLK_HOLE;
	copy = sblk_page_alloc(GFP_KERNEL);
	if (copy)
		sblk_copy_page(copy, page);
	return copy;
}

int sblk_change_settle(struct sblk_change *change, struct sblk_store *store)
{
	u32 i;

	for (i = 0; i < change->nr_pages; i++) {
		struct sblk_change_page *page = &change->pages[i];

		if (!page->page)
			page->page = explicit_page(page_below(store, page->index));
		if (!page->page)
			return -ENOMEM;
		cond_resched();
	}
	return 0;
}

int sblk_change_copy_up(struct sblk_change *change, struct sblk_store *store, struct sblk_store *top)
{
	u32 i;

	for (i = 0; i < change->nr_pages; i++) {
		u64 index = change->pages[i].index;
		sblk_slot *slot = slot_make(top, index, GFP_KERNEL);
		void *copy;

		if (!slot)
			return -ENOMEM;
		/* Another change of the same page has been here. */
		if (slot_read(slot))
			continue;
		copy = explicit_page(page_lookup(store, index));
		if (!copy)
			return -ENOMEM;
		swap_page(top, slot, &copy);
		cond_resched();
	}
	return 0;
}

static void change_free(struct rcu_head *rcu)
{
	struct sblk_change *change = container_of(rcu, struct sblk_change, rcu);

	change_clear(change);
	kfree(change);
}

void sblk_change_put(struct sblk_change *change)
{
	if (refcount_dec_and_test(&change->refs))
		call_rcu(&change->rcu, change_free);
}
