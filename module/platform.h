/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the driver's data structures need of their surroundings. In the kernel that is the kernel; under the unit tests
 * and their sanitizers it is tests/user.h, which offers the same names. store*.c, fault.c, timing.c, log.c, cache.c and
 * journal.c include this and nothing else of the kernel.
 */
#ifndef SBLK_PLATFORM_H
#define SBLK_PLATFORM_H

#ifdef __KERNEL__

#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/kasan-checks.h>
#include <linux/kernel.h>
#include <linux/kref.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/types.h>
#include <linux/vmalloc.h>

static inline void *sblk_zero_page(void)
{
	return page_address(ZERO_PAGE(0));
}

/* For locks that one function takes and another gives back: sparse is told of neither, as it cannot follow that. */
static inline void sblk_lock(spinlock_t *lock)
{
	spin_lock(lock);
	__release(lock);
}

static inline void sblk_unlock(spinlock_t *lock)
{
	__acquire(lock);
	spin_unlock(lock);
}

/* KASAN looks at what memcpy() does, but not here. */
static inline void sblk_copy_page(void *to, const void *from)
{
	kasan_check_read(from, PAGE_SIZE);
	kasan_check_write(to, PAGE_SIZE);
	copy_page(to, (void *)from);
}

/* 1 << order pages, each to be freed by itself, and what is in them is anything. Only if they lie ready. */
static inline bool sblk_pages_alloc(void **pages, unsigned int order)
{
	struct page *page = alloc_pages(__GFP_NORETRY | __GFP_NOWARN, order);
	unsigned int i;

	if (!page)
		return false;
	split_page(page, order);
	for (i = 0; i < 1U << order; i++)
		pages[i] = page_address(page + i);
	return true;
}

#define SBLK_POPULATE_ORDER 9

/* Zeroed pages in one piece, each to be freed by itself. */
static inline void *sblk_chunk_alloc(int node, unsigned int order)
{
	struct page *page = alloc_pages_node(node, GFP_KERNEL | __GFP_ZERO | __GFP_NORETRY | __GFP_NOWARN, order);

	if (!page)
		return NULL;
	split_page(page, order);
	return page_address(page);
}

#else
#include "tests/user.h"
#endif

#endif
