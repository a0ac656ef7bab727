// SPDX-License-Identifier: GPL-2.0-only
#include "store_table.h"

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
		return sblk_page_alloc(store, gfp);
	for (i = 1; i < SBLK_WRITER_PAGES; i++) {
		void *page = READ_ONCE(slot[i]);

		if (page && page != SBLK_HOLE)
			return sblk_page_alloc(store, gfp);
	}
	if (!sblk_pages_charge(store, SBLK_WRITER_PAGES))
		return sblk_page_alloc(store, gfp);
	if (!sblk_pages_alloc(writer->pages, SBLK_WRITER_ORDER)) {
		sblk_pages_uncharge(store, SBLK_WRITER_PAGES);
		return sblk_page_alloc(store, gfp);
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
				sblk_page_free(store, page);
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
						       sblk_page_alloc(store, gfp | __GFP_ZERO);

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
		sblk_page_free(writer->store, writer->pages[--writer->nr_pages]);
}

int sblk_page_zero(struct sblk_store *store, u64 pos, size_t len, gfp_t gfp)
{
	struct sblk_writer writer;
	int err;

	sblk_writer_begin(&writer, store, pos, len, gfp);
	err = page_write(&writer, NULL, len);
	sblk_writer_end(&writer);
	return err;
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
			void *page = sblk_page_alloc(store, gfp | __GFP_ZERO);

			if (!page)
				return -ENOMEM;
			page_install(store, index, slot, page, 0, NULL, 0);
		}
	}
	return 0;
}
