/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What core/ needs of its surroundings: here the kernel. tests/platform/ has a file of the same name for user space; the
 * include path decides.
 */
#ifndef SBLK_PLATFORM_H
#define SBLK_PLATFORM_H

#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/kasan-checks.h>
#include <linux/kernel.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/types.h>
#include <linux/vmalloc.h>

#ifndef unrcu_pointer /* 5.14 */
#define unrcu_pointer(p) ((typeof(*(p)) __force *)(p))
#endif

/* A page of zeroes that nobody writes to. */
static inline void *sblk_zero_page(void)
{
	return page_address(ZERO_PAGE(0));
}

/* copy_page() is not instrumented, so KASAN is told. */
static inline void sblk_copy_page(void *to, const void *from)
{
	kasan_check_read(from, PAGE_SIZE);
	kasan_check_write(to, PAGE_SIZE);
	copy_page(to, (void *)from);
}

/* 1 << order pages with anything in them, each to be freed by itself. Only if they are at hand: neither waits nor reclaims. */
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

/* A signal is pending that a long loop in a system call should end for. */
static inline bool sblk_interrupted(void)
{
	return signal_pending(current);
}

#endif
