/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a device writes to: the store, and over it the volatile cache and the journal where they are on. Then changes take
 * turns, so that the order of the log is the order in memory; otherwise callers use the store directly.
 *
 * What is durable is decided by Documentation/block/writeback_cache_control.rst: a flush that has completed made durable
 * what had completed before it was submitted, and a FUA write is durable when it has completed. For that, submissions and
 * completions of changes and flushes draw numbers from one count, their order. So a change is durable if its completion
 * has a lower number than the submission of some flush that completed.
 */
#ifndef SBLK_MEDIUM_H
#define SBLK_MEDIUM_H

#include "core/cache.h"
#include "core/journal.h"

struct sblk_medium {
	struct sblk_store *store;
	/* Taken for a change, by one who may not sleep but is in no interrupt; guards cache and journal. */
	spinlock_t lock;
	struct sblk_cache *cache; /* or NULL */
	struct sblk_journal *journal; /* or NULL; not appended to while its position is in the past */
	bool sector_atomic; /* readers must not see half a sector: changes replace pages also without a cache or journal */
	bool off; /* the power is cut; changes under both locks */

	/* Within `lock`, and from interrupts; guards what follows, sblk_record.completed, and completion in the journal. */
	spinlock_t order_lock;
	u64 power_epoch; /* counts power cuts */
	u64 order; /* the newest number */
	u64 durable; /* order of the submission of the newest flush that completed */
	u64 flushes; /* submitted */
	u64 flushed; /* number of the newest flush that completed, as counted by `flushes` */
	u64 flushes_before; /* the journal began */
	u64 completed; /* changes, without FUA */
	u64 completed_durable; /* of them made durable by flushes */
};

/* What a command has of the medium from its submission to its completion. */
struct sblk_ticket {
	u64 power_epoch;
	u64 submit_order;
	u64 submit_ns;
	bool no_promise; /* its success makes nothing durable, whatever it says */
	u64 flush; /* number of a flush, counted from 1; else 0 */
	u64 covers; /* of a flush: changes that it makes durable, counted as sblk_medium.completed */
	struct sblk_record *records; /* what was executed of it, last first */
};

void sblk_medium_init(struct sblk_medium *medium, struct sblk_store *store);

/* Whether changes go through sblk_medium_change(). */
static inline bool sblk_medium_logs(const struct sblk_medium *medium)
{
	return medium->cache || medium->journal || medium->sector_atomic;
}

/* A command of `type` (SAMPLEBLK_OP_*) came. False without power. */
bool sblk_medium_submit(struct sblk_medium *medium, struct sblk_ticket *ticket, u32 type, u64 now_ns);

/*
 * A record of a change (SAMPLEBLK_OP_WRITE, _DISCARD or _WRITE_ZEROES) to be handed to sblk_medium_change(), or of a flush
 * (len 0). Zeroes may end before `len`; with `keep` they give no page back. `flags` are SBLK_RECORD_*. NULL without memory;
 * sleeps if `gfp` lets it.
 */
struct sblk_record *sblk_medium_record(struct sblk_medium *medium, u32 type, u64 pos, u64 len, bool keep, u32 flags,
				       gfp_t gfp);

/*
 * Makes the change and takes the record over; it is then in ticket->records. 0; -EIO without power, or when it has been
 * away since the command came; -EAGAIN: a new record must be created, others have been quicker. Then the record is gone.
 * `overflow` is then the sequence for which the journal had no room, or 0.
 */
int sblk_medium_change(struct sblk_medium *medium, struct sblk_ticket *ticket, struct sblk_record *record, u32 type,
		       u64 *overflow);

/* What a flush did. */
struct sblk_flushed {
	u64 writes; /* made durable */
	u64 epoch; /* closed, as the journal counts them */
};

/*
 * The command is about to be answered. False when the power was cut since it came: then it must fail. From any context.
 * `flushed` is filled in for a flush that succeeded.
 */
bool sblk_medium_complete(struct sblk_medium *medium, struct sblk_ticket *ticket, bool failed, u64 now_ns,
			  struct sblk_flushed *flushed);

/*
 * The power goes. -EALREADY when it is off. From when it returns no change is made and no success is told; the caller
 * waits until nobody is reading or writing any more, and then calls sblk_medium_cut().
 */
int sblk_medium_power_off(struct sblk_medium *medium);

/* Loses what was volatile. May sleep. */
void sblk_medium_cut(struct sblk_medium *medium, struct sblk_cut *cut, u64 now_ns);

/* -EALREADY when it is on. */
int sblk_medium_power_on(struct sblk_medium *medium);

/* --- with no command on its way */

/* The journal begins: its epochs are counted from here. */
void sblk_medium_attach(struct sblk_medium *medium, struct sblk_journal *journal);

/*
 * `top`, which lies on the current store, takes its place; what is volatile stays so. 0, or -ENOMEM and nothing has
 * changed. May sleep.
 */
int sblk_medium_push(struct sblk_medium *medium, struct sblk_store *top);

/* Another store takes the place of the current one, which is returned; everything on it is durable. */
struct sblk_store *sblk_medium_replace(struct sblk_medium *medium, struct sblk_store *store);

/* Gives the store another size, as sblk_store_resize(); when it shrinks everything on it is durable. Without a journal. */
int sblk_medium_resize(struct sblk_medium *medium, u64 bytes);

/* Merges what lies below the store and belongs to nobody else. May sleep. */
void sblk_medium_merge(struct sblk_medium *medium);

/* --- from outside of commands */

/* Its sequence, or 0 when the journal is full or in the past; `overflow` as above. */
u64 sblk_medium_mark(struct sblk_medium *medium, const char *text, u32 length, u64 now_ns, u64 *overflow);

struct sblk_volatile_copy {
	struct sampleblk_volatile *list;
	u64 room;
	u64 nr; /* how many there are */
	u64 written_back;
	u64 order; /* it is how things were at this number */
};

/* What a power cut could lose now, oldest first. */
void sblk_medium_list(struct sblk_medium *medium, struct sblk_volatile_copy *copy);

#endif
