/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The zones of a host-managed device: conditions, write pointers, and how many may be open or active. The rules are those
 * of ZBC and ZNS as Linux sees them (include/uapi/linux/blkzoned.h, Documentation/block). Data is none of its business.
 */
#ifndef SBLK_ZONES_H
#define SBLK_ZONES_H

#include <linux/blkzoned.h>
#include <linux/sampleblk.h>

#include "core/op.h"
#include "platform.h"

#define SBLK_MAX_ZONES (1U << 20)

struct sblk_zone {
	u64 written; /* bytes, from its start: where the write pointer is */
	u8 cond; /* enum blk_zone_cond; BLK_ZONE_COND_NOT_WP of a conventional one */
};

struct sblk_zones {
	u64 zone_bytes; /* a power of two */
	u64 usable_bytes; /* of each sequential zone, from its start */
	u32 nr;
	u32 conventional; /* the first of them */
	u32 max_open; /* 0: all */
	u32 max_active;
	/* Held during a change, by one who may not sleep but is in no interrupt; guards what follows. */
	spinlock_t turn;
	u32 in_line; /* changes that need somebody who may sleep, or came after one that does */
	spinlock_t lock; /* within `turn`; guards what follows */
	u32 explicitly_open;
	u32 implicitly_open;
	u32 closed;
	u32 next_to_close; /* of those that are implicitly open, in turn */
	struct sblk_zone zones[];
};

/* Fills in defaults; -EINVAL for what no zoned device can be. Without zones there is nothing to it. */
int sblk_zones_configure(struct sampleblk_config *config);

/* All empty; NULL without memory. May sleep. */
struct sblk_zones *sblk_zones_create(const struct sampleblk_config *config);
/* NULL is fine. */
void sblk_zones_destroy(struct sblk_zones *zones);

/*
 * --- taking turns
 *
 * A change is a write, from its admission until its data is there and its zone goes on behind that, or what is done to a
 * zone. One at a time: else a write that waits for memory would have moved the write pointer over what a power cut or an
 * error leaves unwritten, or would land in a zone that has been reset and written to again.
 */

/*
 * Makes a change that may not sleep; what it returns. -ENOMEM, also from others before it that wait: it is in line, and the
 * caller sees to it that those in line are made one after another.
 */
int sblk_zones_change(struct sblk_zones *zones, int (*change)(void *arg), void *arg);

/* Makes one that is in line, and may sleep; what it returns. */
int sblk_zones_change_in_line(struct sblk_zones *zones, int (*change)(void *arg), void *arg);

/* --- in its turn: a write of `len` bytes at `*pos` */

/*
 * Whether it may be done. An append has its zone's start as `*pos`, and is told where it goes. 0; -EIO when it is not where
 * the zone goes on, or has no room; -EMFILE when too many zones are open, -ENFILE when too many are active.
 */
int sblk_zones_admit(struct sblk_zones *zones, u64 *pos, u64 len, bool append);

/* `len` bytes of what was admitted have been written. None: it leaves no trace. */
void sblk_zones_advance(struct sblk_zones *zones, u64 pos, u64 len);

/* --- in its turn: what is done to a zone */

/* SBLK_ZONE_OPEN, _CLOSE or _FINISH. As above; -EIO also of a conventional zone, and of what its condition does not allow. */
int sblk_zones_manage(struct sblk_zones *zones, u64 pos, enum sblk_op op);

/* The zone at `pos` is empty, its data gone; -EIO of a conventional one. */
int sblk_zones_reset(struct sblk_zones *zones, u64 pos);

/* --- at any time */

/* Of `len` bytes from `pos` on, how many lie before the zone's write pointer. A request lies within one zone. */
u64 sblk_zones_readable(struct sblk_zones *zones, u64 pos, u64 len);

/* Without power nothing is open. Nobody may be at a change. */
void sblk_zones_power_cut(struct sblk_zones *zones);

/* What the zone of this number is now, in sectors. */
struct blk_zone sblk_zones_report(struct sblk_zones *zones, u32 number);

#endif
