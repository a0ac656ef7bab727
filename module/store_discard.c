// SPDX-License-Identifier: GPL-2.0-only
/* Discards and zeroes: pages go only when nobody can be copying from them any more. */
#include "store_table.h"

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
	sblk_pages_gone(reap->count);
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
			err = sblk_page_zero(store, pos, part, gfp);
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
