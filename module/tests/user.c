// SPDX-License-Identifier: GPL-2.0-only
#include "user.h"

static pthread_rwlock_t readers = PTHREAD_RWLOCK_INITIALIZER;
static long successes_left = -1;

void rcu_read_lock(void)
{
	pthread_rwlock_rdlock(&readers);
}

void rcu_read_unlock(void)
{
	pthread_rwlock_unlock(&readers);
}

void call_rcu(struct rcu_head *head, void (*free_it)(struct rcu_head *head))
{
	pthread_rwlock_wrlock(&readers);
	pthread_rwlock_unlock(&readers);
	free_it(head);
}

void user_fail_after(long successes)
{
	__atomic_store_n(&successes_left, successes, __ATOMIC_RELAXED);
}

void *user_alloc(size_t size, size_t align, bool zero)
{
	void *memory = NULL;

	if (__atomic_load_n(&successes_left, __ATOMIC_RELAXED) >= 0 &&
	    __atomic_fetch_sub(&successes_left, 1, __ATOMIC_RELAXED) <= 0) {
		__atomic_store_n(&successes_left, 0, __ATOMIC_RELAXED);
		return NULL;
	}
	/* Untouched memory costs nothing, as in the kernel. */
	if (align <= 8 && zero)
		return calloc(1, size);
	if (align <= 8)
		memory = malloc(size);
	else if (posix_memalign(&memory, align, size))
		return NULL;
	if (memory)
		memset(memory, zero ? 0 : 0xa5, size < 65536 ? size : 65536);
	return memory;
}

static const char zero_page[4096] __attribute__((aligned(4096)));

const void *user_zero_page(void)
{
	return zero_page;
}
