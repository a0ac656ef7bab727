/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The platform of core/ in user space, under the sanitizers. Memory comes from malloc, and any allocation can be made to
 * fail. What the kernel promises is promised here and no more, so that a missing barrier is a data race to TSan: READ_ONCE()
 * orders nothing, and RCU readers are waited for by a thread of their own, not by whoever frees. Sleeping with a spinlock
 * held or in an RCU reader aborts.
 */
#ifndef SBLK_PLATFORM_H
#define SBLK_PLATFORM_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t u64;
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint8_t u8;
typedef int64_t s64;
typedef int32_t s32;
typedef unsigned int gfp_t;

#define U32_MAX UINT32_MAX
#define U16_MAX UINT16_MAX
#define GFP_KERNEL 1U
#define GFP_NOWAIT 0U
#define GFP_NOIO 1U
#define __GFP_NOWARN 0U
#define __GFP_ZERO 2U
#define __GFP_RETRY_MAYFAIL 0U
#define gfpflags_allow_blocking(gfp) ((gfp) & 1U)

#define PAGE_SHIFT 12
#define PAGE_SIZE 4096UL

#define __rcu
#define __force
#define __must_check __attribute__((warn_unused_result))
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
#define check_mul_overflow(a, b, product) __builtin_mul_overflow(a, b, product)
#define hweight64(x) ((u64)__builtin_popcountll(x))
#define ilog2(x) (63 - __builtin_clzll(x))
#define BUILD_BUG_ON(condition) ((void)sizeof(char[1 - 2 * !!(condition)]))

#define READ_ONCE(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, value) __atomic_store_n(&(x), value, __ATOMIC_RELAXED)
#define smp_store_release(p, value) __atomic_store_n(p, value, __ATOMIC_RELEASE)
#define smp_load_acquire(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define xchg(p, value) __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST)
#define cmpxchg(p, old, new) \
	({ \
		__typeof__(*(p)) expected_ = (old); \
		__atomic_compare_exchange_n(p, &expected_, new, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED); \
		expected_; \
	})

#define WARN_ON_ONCE(x) \
	({ \
		bool warned_ = (x); \
		if (warned_) \
			abort(); \
		warned_; \
	})

/* user.c: aborts where the kernel could not sleep. */
void might_sleep(void);
#define cond_resched() might_sleep()

/* A signal is pending: user_interrupt() says so. */
bool sblk_interrupted(void);
void user_interrupt(bool pending);

/* --- counts */

typedef struct {
	s64 counter;
} atomic64_t;

#define ATOMIC64_INIT(i) { i }
#define atomic64_read(v) __atomic_load_n(&(v)->counter, __ATOMIC_RELAXED)
#define atomic64_set(v, i) __atomic_store_n(&(v)->counter, i, __ATOMIC_RELAXED)
#define atomic64_inc(v) ((void)__atomic_add_fetch(&(v)->counter, 1, __ATOMIC_RELAXED))
#define atomic64_dec(v) ((void)__atomic_sub_fetch(&(v)->counter, 1, __ATOMIC_RELAXED))
#define atomic64_add(i, v) ((void)__atomic_add_fetch(&(v)->counter, (s64)(i), __ATOMIC_RELAXED))
#define atomic64_sub(i, v) ((void)__atomic_sub_fetch(&(v)->counter, (s64)(i), __ATOMIC_RELAXED))
#define atomic64_add_return(i, v) __atomic_add_fetch(&(v)->counter, (s64)(i), __ATOMIC_SEQ_CST)
#define atomic64_inc_return(v) atomic64_add_return(1, v)
#define atomic64_cmpxchg(v, old, new) cmpxchg(&(v)->counter, (s64)(old), (s64)(new))

typedef struct {
	int refs;
} refcount_t;

static inline void refcount_set(refcount_t *r, int n)
{
	__atomic_store_n(&r->refs, n, __ATOMIC_RELAXED);
}

static inline void refcount_inc(refcount_t *r)
{
	if (__atomic_fetch_add(&r->refs, 1, __ATOMIC_RELAXED) <= 0)
		abort();
}

static inline bool refcount_dec_and_test(refcount_t *r)
{
	return !__atomic_sub_fetch(&r->refs, 1, __ATOMIC_ACQ_REL);
}

struct kref {
	refcount_t refcount;
};

static inline void kref_init(struct kref *kref)
{
	refcount_set(&kref->refcount, 1);
}

static inline void kref_get(struct kref *kref)
{
	refcount_inc(&kref->refcount);
}

static inline int kref_read(struct kref *kref)
{
	return __atomic_load_n(&kref->refcount.refs, __ATOMIC_RELAXED);
}

static inline int kref_put(struct kref *kref, void (*release)(struct kref *kref))
{
	if (!refcount_dec_and_test(&kref->refcount))
		return 0;
	release(kref);
	return 1;
}

/* --- lists, as linux/list.h has them */

struct list_head {
	struct list_head *next, *prev;
};

static inline void INIT_LIST_HEAD(struct list_head *list)
{
	list->next = list;
	list->prev = list;
}

static inline bool list_empty(const struct list_head *head)
{
	return head->next == head;
}

static inline void list_add_tail(struct list_head *item, struct list_head *head)
{
	item->next = head;
	item->prev = head->prev;
	head->prev->next = item;
	head->prev = item;
}

static inline void list_del_init(struct list_head *item)
{
	item->prev->next = item->next;
	item->next->prev = item->prev;
	INIT_LIST_HEAD(item);
}

#define list_entry(ptr, type, member) container_of(ptr, type, member)
#define list_first_entry_or_null(head, type, member) \
	(list_empty(head) ? NULL : list_entry((head)->next, type, member))
#define list_for_each_entry(pos, head, member) \
	for (pos = list_entry((head)->next, __typeof__(*pos), member); &pos->member != (head); \
	     pos = list_entry(pos->member.next, __typeof__(*pos), member))
#define list_for_each_entry_reverse(pos, head, member) \
	for (pos = list_entry((head)->prev, __typeof__(*pos), member); &pos->member != (head); \
	     pos = list_entry(pos->member.prev, __typeof__(*pos), member))

/* --- locks: they spin, and who holds one must not sleep */

typedef struct {
	bool locked;
} spinlock_t;

void spin_lock_init(spinlock_t *lock);
void spin_lock(spinlock_t *lock);
void spin_unlock(spinlock_t *lock);
#define spin_lock_irqsave(lock, flags) ((flags) = 0, spin_lock(lock))
#define spin_unlock_irqrestore(lock, flags) ((void)(flags), spin_unlock(lock))

/* --- RCU */

struct rcu_head {
	struct rcu_head *next;
	void (*func)(struct rcu_head *head);
};

void rcu_read_lock(void);
void rcu_read_unlock(void);
/* A thread waits for the readers and then calls it. */
void call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head));
/* All that was given to call_rcu() has been called. */
void rcu_barrier(void);

/* Dependencies order in the kernel; compilers make an acquire of a consume, which is what TSan knows. */
#define rcu_dereference_raw(p) __atomic_load_n(&(p), __ATOMIC_CONSUME)
#define rcu_assign_pointer(p, v) __atomic_store_n(&(p), v, __ATOMIC_RELEASE)
#define RCU_INIT_POINTER(p, v) __atomic_store_n(&(p), v, __ATOMIC_RELAXED)
#define RCU_INITIALIZER(v) (v)
#define unrcu_pointer(p) (p)

/* --- memory */

/* `gfp` says whether it may sleep; `zero` clears the memory, else its beginning is filled with what is not zero. */
void *user_alloc(size_t size, size_t align, gfp_t gfp, bool zero);

/* The next `successes` allocations succeed and all after them fail; negative: none fails. */
void user_fail_after(long successes);

/* The same of those alone that may not sleep: memory is short, but whoever waits gets it. */
void user_fail_atomic(bool fail);

#define kmalloc(size, gfp) user_alloc(size, 8, gfp, false)
#define kzalloc(size, gfp) user_alloc(size, 8, gfp, true)
#define kvzalloc(size, gfp) user_alloc(size, 8, (gfp) | GFP_KERNEL, true)
#define kvcalloc(n, size, gfp) user_alloc((size_t)(n) * (size), 8, (gfp) | GFP_KERNEL, true)
#define kvmalloc(size, gfp) user_alloc(size, 8, (gfp) | GFP_KERNEL, false)
#define vmalloc(size) user_alloc(size, 8, GFP_KERNEL, false)
#define vmalloc_user(size) user_alloc(size, 8, GFP_KERNEL, true)
#define kfree(p) free(p)
#define kvfree(p) free(p)
#define vfree(p) free(p)
#define __get_free_page(gfp) ((unsigned long)user_alloc(PAGE_SIZE, PAGE_SIZE, gfp, (gfp) & __GFP_ZERO))
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
		pages[i] = user_alloc(PAGE_SIZE, PAGE_SIZE, GFP_NOWAIT, false);
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
	return user_alloc(PAGE_SIZE, PAGE_SIZE, GFP_KERNEL, true);
}

/* --- bits */

#define BITS_TO_LONGS(n) (((n) + 63) / 64)

static inline bool test_bit(u64 bit, const unsigned long *words)
{
	return __atomic_load_n(&words[bit / 64], __ATOMIC_RELAXED) >> (bit % 64) & 1;
}

static inline bool test_and_set_bit(u64 bit, unsigned long *words)
{
	return __atomic_fetch_or(&words[bit / 64], 1UL << (bit % 64), __ATOMIC_SEQ_CST) >> (bit % 64) & 1;
}

/* --- arithmetic */

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
