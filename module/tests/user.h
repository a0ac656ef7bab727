/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's names for a user-space build of the driver's data structures (platform.h). Memory comes from malloc, so
 * that the sanitizers watch it; any allocation can be made to fail.
 */
#ifndef SBLK_TESTS_USER_H
#define SBLK_TESTS_USER_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t u64;
typedef uint32_t u32;
typedef int64_t s64;
typedef int32_t s32;
typedef unsigned int gfp_t;

#define U32_MAX UINT32_MAX
#define GFP_KERNEL 1U
#define GFP_NOWAIT 0U
#define GFP_NOIO 1U
#define __GFP_NOWARN 0U
#define __GFP_ZERO 2U
#define __GFP_RETRY_MAYFAIL 0U
#define gfpflags_allow_blocking(gfp) ((gfp) & 1U)

#define PAGE_SHIFT 12
#define PAGE_SIZE 4096UL

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define min_t(type, a, b) \
	({ \
		type min_a_ = (a), min_b_ = (b); \
		min_a_ < min_b_ ? min_a_ : min_b_; \
	})
#define max_t(type, a, b) \
	({ \
		type max_a_ = (a), max_b_ = (b); \
		max_a_ > max_b_ ? max_a_ : max_b_; \
	})
#define ALIGN(x, a) (((x) + (a) - 1) & ~((u64)(a) - 1))
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))
#define struct_size(p, member, n) (sizeof(*(p)) + sizeof((p)->member[0]) * (n))
#define check_add_overflow(a, b, sum) __builtin_add_overflow(a, b, sum)
#define cond_resched() ((void)0)
#define hweight64(x) ((u64)__builtin_popcountll(x))
#define ilog2(x) (63 - __builtin_clzll(x))

/* Acquire, where the kernel has an address dependency. */
#define READ_ONCE(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define WRITE_ONCE(x, value) __atomic_store_n(&(x), value, __ATOMIC_RELAXED)
#define smp_store_release(p, value) __atomic_store_n(p, value, __ATOMIC_RELEASE)
#define xchg(p, value) __atomic_exchange_n(p, value, __ATOMIC_ACQ_REL)
#define cmpxchg(p, old, new) \
	({ \
		__typeof__(*(p)) expected_ = (old); \
		__atomic_compare_exchange_n(p, &expected_, new, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE); \
		expected_; \
	})

#define WARN_ON_ONCE(x) \
	({ \
		bool warned_ = (x); \
		if (warned_) \
			abort(); \
		warned_; \
	})

typedef struct {
	s64 counter;
} atomic64_t;

#define ATOMIC64_INIT(i) { i }
#define atomic64_read(v) __atomic_load_n(&(v)->counter, __ATOMIC_RELAXED)
#define atomic64_set(v, i) __atomic_store_n(&(v)->counter, i, __ATOMIC_RELAXED)
#define atomic64_inc(v) ((void)__atomic_add_fetch(&(v)->counter, 1, __ATOMIC_RELAXED))
#define atomic64_dec(v) ((void)__atomic_sub_fetch(&(v)->counter, 1, __ATOMIC_RELAXED))
#define atomic64_add(i, v) ((void)__atomic_add_fetch(&(v)->counter, i, __ATOMIC_RELAXED))
#define atomic64_sub(i, v) ((void)__atomic_sub_fetch(&(v)->counter, i, __ATOMIC_RELAXED))
#define atomic64_add_return(i, v) __atomic_add_fetch(&(v)->counter, i, __ATOMIC_RELAXED)
#define atomic64_inc_return(v) atomic64_add_return(1, v)
#define atomic64_cmpxchg(v, old, new) cmpxchg(&(v)->counter, (s64)(old), (s64)(new))

struct kref {
	int refs;
};

static inline void kref_init(struct kref *kref)
{
	__atomic_store_n(&kref->refs, 1, __ATOMIC_RELAXED);
}

static inline void kref_get(struct kref *kref)
{
	__atomic_add_fetch(&kref->refs, 1, __ATOMIC_RELAXED);
}

static inline int kref_read(struct kref *kref)
{
	return __atomic_load_n(&kref->refs, __ATOMIC_RELAXED);
}

static inline int kref_put(struct kref *kref, void (*release)(struct kref *kref))
{
	if (__atomic_sub_fetch(&kref->refs, 1, __ATOMIC_ACQ_REL))
		return 0;
	release(kref);
	return 1;
}

typedef pthread_mutex_t spinlock_t;

#define spin_lock_init(lock) pthread_mutex_init(lock, NULL)
#define spin_lock(lock) pthread_mutex_lock(lock)
#define spin_unlock(lock) pthread_mutex_unlock(lock)
#define sblk_lock(lock) spin_lock(lock)
#define sblk_unlock(lock) spin_unlock(lock)

struct rcu_head {
	void *unused;
};

/* user.c: readers share a lock, and call_rcu() waits for it. */
void rcu_read_lock(void);
void rcu_read_unlock(void);
void call_rcu(struct rcu_head *head, void (*free)(struct rcu_head *head));

/* Fails when the countdown says so; `zero` clears the memory, else its beginning is filled with what is not zero. */
void *user_alloc(size_t size, size_t align, bool zero);

/* The next `successes` allocations succeed and all after them fail; negative: none fails. */
void user_fail_after(long successes);

#define kzalloc(size, gfp) user_alloc(size, 8, true)
#define kvzalloc(size, gfp) user_alloc(size, 8, true)
#define kvcalloc(n, size, gfp) user_alloc((size_t)(n) * (size), 8, true)
#define kvmalloc(size, gfp) user_alloc(size, 8, false)
#define vmalloc(size) user_alloc(size, 8, false)
#define vmalloc_user(size) user_alloc(size, 8, true)
#define kfree(p) free(p)
#define kvfree(p) free(p)
#define vfree(p) free(p)
#define __get_free_page(gfp) ((unsigned long)user_alloc(PAGE_SIZE, PAGE_SIZE, (gfp) & __GFP_ZERO))
#define free_page(address) free((void *)(address))

/* One that nobody may write to. */
const void *user_zero_page(void);
#define sblk_zero_page() ((void *)user_zero_page())

static inline void sblk_copy_page(void *to, const void *from)
{
	memcpy(to, from, PAGE_SIZE);
}

static inline bool sblk_pages_alloc(void **pages, unsigned int order)
{
	unsigned int i;

	for (i = 0; i < 1U << order; i++) {
		pages[i] = user_alloc(PAGE_SIZE, PAGE_SIZE, false);
		if (!pages[i]) {
			while (i)
				free(pages[--i]);
			return false;
		}
	}
	return true;
}

/* Memory in one piece could not be freed page by page here. */
#define SBLK_POPULATE_ORDER 0

static inline void *sblk_chunk_alloc(int node, unsigned int order)
{
	(void)node;
	(void)order;
	return user_alloc(PAGE_SIZE, PAGE_SIZE, true);
}

static inline u64 mul_u64_u64_shr(u64 a, u64 b, unsigned int shift)
{
	return (u64)(((unsigned __int128)a * b) >> shift);
}

static inline u64 mul_u64_u64_div_u64(u64 a, u64 b, u64 divisor)
{
	return (u64)((unsigned __int128)a * b / divisor);
}

static inline u64 div_u64(u64 a, u32 b)
{
	return a / b;
}

static inline u64 div64_u64(u64 a, u64 b)
{
	return a / b;
}

static inline u64 div64_u64_rem(u64 a, u64 b, u64 *remainder)
{
	*remainder = a % b;
	return a / b;
}

#endif
