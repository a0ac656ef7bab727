/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a device writes to: the store, and over it the volatile cache and the journal where they are on. Then writes take
 * turns, so that the order of the log is the order in memory; otherwise callers use the store directly.
 */
#ifndef SBLK_MEDIA_H
#define SBLK_MEDIA_H

#include "cache.h"
#include "journal.h"

struct sblk_media {
	struct sblk_store *store;
	spinlock_t lock; /* held from begin to end of a write */
	struct sblk_cache *cache; /* or NULL */
	struct sblk_journal *journal; /* or NULL; not to be written to while its position is in the past */
	bool off; /* the power is cut */
	u64 entry; /* between begin and end: the journal's */
	u64 flushed; /* the same, of a flush: how many writes it made durable */
};

static inline bool sblk_media_logged(const struct sblk_media *media)
{
	return media->cache || media->journal;
}

/*
 * Before a write of `type` (SAMPLEBLK_OP_WRITE, _DISCARD, _WRITE_ZEROES or _FLUSH). 0 with the lock held, and the store
 * can then be written without sleeping and without fail; -EIO without power; -ENOMEM: sblk_media_prepare() and again.
 */
int sblk_media_begin(struct sblk_media *media, u32 type, bool fua, u64 pos, u64 len, u64 now_ns);

/* Between begin and end: the journal had no room for it. */
static inline bool sblk_media_overflowed(const struct sblk_media *media)
{
	return media->journal && !media->entry && !sblk_journal_in_past(media->journal);
}

/* After it. Returns the journal's entry, for sblk_media_complete(), or 0. */
u64 sblk_media_end(struct sblk_media *media);

/* From any context, interrupts too. The journal must not be taken away while requests are on their way. */
void sblk_media_complete(struct sblk_media *media, u64 entry, u64 now_ns, bool failed);

/* Gets the memory that a write needs; sleeps if `gfp` lets it. 0 or -ENOMEM. */
int sblk_media_prepare(struct sblk_media *media, u32 type, u64 pos, u64 len, gfp_t gfp);

/* -EALREADY when the power is off. Others may be calling the functions above. May sleep. */
int sblk_media_cut(struct sblk_media *media, struct sblk_cut *cut, u64 now_ns);

/* -EALREADY when it is on. */
int sblk_media_power_on(struct sblk_media *media);

#endif
