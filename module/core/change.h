/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A change of a store that can be taken back. Pages are replaced, not written into: the new ones are allocated and filled
 * where memory can be waited for, put in under a lock that all changes take, and what they replaced is kept here. So
 * making a change cannot fail, taking it back needs no memory, and a reader sees each page as it was or as it is, never
 * half of it.
 */
#ifndef SBLK_CHANGE_H
#define SBLK_CHANGE_H

#include "core/store.h"

/* A page to be put in; once it is, what was there before. As sblk_slot. */
struct sblk_change_page {
	u64 index;
	void *page;
};

struct sblk_change {
	struct rcu_head rcu;
	refcount_t refs;
	u32 nr_pages; /* of `pages` in use, ascending by index */
	u32 capacity;
	bool zeroes; /* a discard or write-zeroes: nothing to be filled in */
	bool keep; /* zeroes that give no page back */
	u64 pos;
	u64 len;
	void *spare[2]; /* pages for redoing the ends of zeroes over a store below */
	struct sblk_change_page *pages;
};

/*
 * Initialises a change, which lies in a larger structure that sblk_change_put() frees with kfree(): as a write of
 * [pos, pos + len) with a page for each that it touches, whose bytes sblk_change_fill() is then to be given. 0 or -ENOMEM.
 */
int sblk_change_init_write(struct sblk_change *change, struct sblk_store *store, u64 pos, u64 len, gfp_t gfp);

/*
 * The same of zeroes, up to SBLK_CHANGE_ZEROES pages that are there: `change->len` is then how far it goes. With `keep`
 * nothing is given back.
 */
#define SBLK_CHANGE_ZEROES 8192
int sblk_change_init_zeroes(struct sblk_change *change, struct sblk_store *store, u64 pos, u64 len, bool keep, gfp_t gfp);

/* Of nothing: for what is kept in order with changes. */
void sblk_change_init_empty(struct sblk_change *change);

/* The bytes of a write from `offset` on, before it is made. */
void sblk_change_fill(struct sblk_change *change, u64 offset, const void *from, size_t len);

/* A byte of those. */
u8 *sblk_change_byte(struct sblk_change *change, u64 offset);

/*
 * Whether it can be made: not for zeroes where others have put pages since it was initialised, then it must be initialised
 * again. Under the lock that it is then made under.
 */
bool sblk_change_is_ready(const struct sblk_change *change, struct sblk_store *store);

/* Makes the change. Under a lock that all other changes take, too. */
void sblk_change_make(struct sblk_change *change, struct sblk_store *store);

/* Takes it back, or makes it again after that: all later ones must have been taken back. Nobody else may be changing. */
void sblk_change_swap(struct sblk_change *change, struct sblk_store *store);

/*
 * Makes the first `len` bytes of it again after it was taken back, whatever else has been made again by then. Nobody else
 * may be changing or reading.
 */
void sblk_change_redo(struct sblk_change *change, struct sblk_store *store, u64 len);

/*
 * Lets the change say what it replaced without regard to what lies below `store`, so that the layers below may be merged or
 * another be put on top. 0 or -ENOMEM; a part may be done then, which changes nothing. May sleep.
 */
int sblk_change_settle(struct sblk_change *change, struct sblk_store *store);

/* Puts copies of the changed pages of `store` into `top`, which lies on it and will take its place. 0 or -ENOMEM. May sleep. */
int sblk_change_copy_up(struct sblk_change *change, struct sblk_store *store, struct sblk_store *top);

static inline void sblk_change_get(struct sblk_change *change)
{
	refcount_inc(&change->refs);
}

/*
 * The last one frees it with what it holds, after a grace period: a reader may still be copying from a page that it
 * replaced. From any context.
 */
void sblk_change_put(struct sblk_change *change);

#endif
