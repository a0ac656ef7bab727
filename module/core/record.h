/* SPDX-License-Identifier: GPL-2.0-only */
/* An operation that was executed: what it changed, and when it was answered. */
#ifndef SBLK_RECORD_H
#define SBLK_RECORD_H

#include "core/change.h"

#define SBLK_RECORD_FUA (1U << 0) /* durable once it has completed */
#define SBLK_RECORD_ATOMIC (1U << 1) /* a power cut keeps all or nothing of it */

struct sblk_record {
	struct sblk_change change; /* the first member: sblk_change_put() frees it all */
	struct list_head list; /* in the cache; empty when it is not, or no longer, there */
	struct sblk_record *next; /* of the same request: long discards are executed in parts */
	u64 id; /* counts the changes of the device, from 1; 0 without a cache */
	u64 completed; /* order of its completion, 0 before; see medium.h */
	u64 entry; /* in the journal, or 0 */
	u32 flags; /* SBLK_RECORD_* */
};

static inline void sblk_record_put(struct sblk_record *record)
{
	BUILD_BUG_ON(offsetof(struct sblk_record, change));
	sblk_change_put(&record->change);
}

#endif
