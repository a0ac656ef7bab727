/* SPDX-License-Identifier: GPL-2.0-only */
#include "platform.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

/* --- where one must not sleep */

static _Thread_local unsigned int atomic_depth;

void might_sleep(void)
{
	if (atomic_depth)
		abort();
}

static bool interrupt_pending;

bool sblk_interrupted(void)
{
	return __atomic_load_n(&interrupt_pending, __ATOMIC_RELAXED);
}

void user_interrupt(bool pending)
{
	__atomic_store_n(&interrupt_pending, pending, __ATOMIC_RELAXED);
}

void spin_lock_init(spinlock_t *lock)
{
	__atomic_store_n(&lock->locked, false, __ATOMIC_RELAXED);
}

void spin_lock(spinlock_t *lock)
{
	atomic_depth++;
	while (__atomic_exchange_n(&lock->locked, true, __ATOMIC_ACQUIRE))
		sched_yield();
}

void spin_unlock(spinlock_t *lock)
{
	__atomic_store_n(&lock->locked, false, __ATOMIC_RELEASE);
	atomic_depth--;
}

/* --- RCU: readers count themselves in one of two places; a grace period sends new ones to the other and waits, twice */

static unsigned int readers[2];
static unsigned int current_side;
static _Thread_local unsigned int nesting;
static _Thread_local unsigned int my_side;

void rcu_read_lock(void)
{
	atomic_depth++;
	if (nesting++)
		return;
	my_side = __atomic_load_n(&current_side, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&readers[my_side], 1, __ATOMIC_SEQ_CST);
}

void rcu_read_unlock(void)
{
	if (!--nesting)
		__atomic_sub_fetch(&readers[my_side], 1, __ATOMIC_SEQ_CST);
	atomic_depth--;
}

static pthread_mutex_t callbacks_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t callbacks_come = PTHREAD_COND_INITIALIZER;
static pthread_cond_t callbacks_gone = PTHREAD_COND_INITIALIZER;
static struct rcu_head *callbacks;
static unsigned long callbacks_open;
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;

static void wait_for_readers(void)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		unsigned int old = __atomic_load_n(&current_side, __ATOMIC_SEQ_CST);

		__atomic_store_n(&current_side, !old, __ATOMIC_SEQ_CST);
		while (__atomic_load_n(&readers[old], __ATOMIC_SEQ_CST))
			sched_yield();
	}
}

static void *grace_periods(void *unused)
{
	(void)unused;
	for (;;) {
		struct rcu_head *list;
		unsigned long count = 0;

		pthread_mutex_lock(&callbacks_lock);
		while (!callbacks)
			pthread_cond_wait(&callbacks_come, &callbacks_lock);
		pthread_mutex_unlock(&callbacks_lock);
		/* So that many have one grace period, as in the kernel. */
		usleep(1000);
		pthread_mutex_lock(&callbacks_lock);
		list = callbacks;
		callbacks = NULL;
		pthread_mutex_unlock(&callbacks_lock);
		wait_for_readers();
		while (list) {
			struct rcu_head *head = list;

			list = head->next;
			head->func(head);
			count++;
		}
		pthread_mutex_lock(&callbacks_lock);
		callbacks_open -= count;
		if (!callbacks_open)
			pthread_cond_broadcast(&callbacks_gone);
		pthread_mutex_unlock(&callbacks_lock);
	}
	return NULL;
}

static void start_thread(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, grace_periods, NULL))
		abort();
	pthread_detach(thread);
}

void call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head))
{
	pthread_once(&thread_once, start_thread);
	head->func = func;
	pthread_mutex_lock(&callbacks_lock);
	if (!callbacks)
		pthread_cond_signal(&callbacks_come);
	head->next = callbacks;
	callbacks = head;
	callbacks_open++;
	pthread_mutex_unlock(&callbacks_lock);
}

void rcu_barrier(void)
{
	might_sleep();
	pthread_mutex_lock(&callbacks_lock);
	while (callbacks_open)
		pthread_cond_wait(&callbacks_gone, &callbacks_lock);
	pthread_mutex_unlock(&callbacks_lock);
}

/* --- memory */

static long successes_left = -1;
static bool atomic_fails;

void user_fail_after(long successes)
{
	__atomic_store_n(&successes_left, successes, __ATOMIC_RELAXED);
}

void user_fail_atomic(bool fail)
{
	__atomic_store_n(&atomic_fails, fail, __ATOMIC_RELAXED);
}

static bool fails(gfp_t gfp)
{
	if (__atomic_load_n(&atomic_fails, __ATOMIC_RELAXED) && !gfpflags_allow_blocking(gfp))
		return true;
	if (__atomic_load_n(&successes_left, __ATOMIC_RELAXED) < 0 ||
	    __atomic_fetch_sub(&successes_left, 1, __ATOMIC_RELAXED) > 0)
		return false;
	__atomic_store_n(&successes_left, 0, __ATOMIC_RELAXED);
	return true;
}

void *user_alloc(size_t size, size_t align, gfp_t gfp, bool zero)
{
	void *memory = NULL;

	if (gfpflags_allow_blocking(gfp))
		might_sleep();
	if (fails(gfp))
		return NULL;
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
