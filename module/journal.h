/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The journal: what each operation changed, in one buffer that user space maps (the layout is in the ABI). Whoever calls
 * sees to it that one writes at a time.
 */
#ifndef SBLK_JOURNAL_H
#define SBLK_JOURNAL_H

#include "log.h"

struct sblk_journal {
	struct sampleblk_journal_header *header; /* the buffer begins with it */
	u32 last_bytes; /* of the newest entry */
	atomic64_t epoch; /* flushes completed */
	u64 position_end; /* offset behind the entry that the store is as after */
};

/* `bytes` a multiple of the page size. 0 or -ENOMEM. */
int sblk_journal_init(struct sblk_journal *journal, u64 bytes);
void sblk_journal_destroy(struct sblk_journal *journal);

/*
 * Before the range changes: appends an entry with its undo data and `redo_room` for what comes. Its offset, or 0 when
 * there was no room, which is counted. A flush and a mark have no range.
 */
u64 sblk_journal_begin(struct sblk_journal *journal, struct sblk_store *store, u32 type, u32 flags, u64 pos, u64 len,
		       u64 redo_room, u64 now_ns);

/* What sblk_journal_begin() needs for a write, and for anything that may end up in any shape. */
u64 sblk_journal_write_room(u64 len);
u64 sblk_journal_any_room(u64 len);

/* After the range has changed. */
void sblk_journal_end(struct sblk_journal *journal, struct sblk_store *store, u64 offset);

/* The newest entry, or the newest overflow (offset 0), did not happen. */
void sblk_journal_forget_last(struct sblk_journal *journal, u64 offset);

/* The operation was reported to whoever asked. A flush that succeeded closes the epoch. From any context. */
void sblk_journal_complete(struct sblk_journal *journal, u64 offset, u64 now_ns, bool failed);

/* The mark's sequence, or 0 when there was no room. */
u64 sblk_journal_mark(struct sblk_journal *journal, const char *text, u32 length, u64 now_ns);

/*
 * Makes `store` what it was after `sequence`. 0; -EOVERFLOW after a gap; -EINVAL when there is no such sequence;
 * -ENOMEM, with the position as far as it came. May sleep.
 */
int sblk_journal_seek(struct sblk_journal *journal, struct sblk_store *store, u64 sequence, u64 *applied);

/* The same for a store on top, without moving the position. */
int sblk_journal_view(const struct sblk_journal *journal, struct sblk_store *store, u64 sequence);

static inline bool sblk_journal_in_past(const struct sblk_journal *journal)
{
	return journal->position_end != journal->header->head;
}

#endif
