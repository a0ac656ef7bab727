/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The journal: what each operation changed, in one buffer that user space maps (the layout is in the ABI). Whoever calls
 * sees to it that one appends at a time, and that one completes at a time.
 */
#ifndef SBLK_JOURNAL_H
#define SBLK_JOURNAL_H

#include "core/chunk_list.h"

struct sblk_journal {
	/* The buffer begins with it. It is told what follows here and never asked: user space can see it. */
	struct sampleblk_journal_header *header;
	u64 bytes; /* of the buffer */
	u64 head; /* where the next entry goes */
	u64 entries;
	u64 overflow;
	u64 next_sequence;
	u64 position;
	u64 position_end; /* offset behind the entry that the store is as after */
	u64 epoch; /* the open one */
	u32 last_bytes; /* of the newest entry */
	/* Where entries are, by sequence from 1; as many as were asked for by now. */
	u64 *offsets;
	u64 nr_offsets;
	u64 room_offsets;
};

/* An operation to be appended. */
struct sblk_journal_op {
	u32 type; /* as sampleblk_journal_entry.type */
	u32 flags;
	u64 pos;
	u64 len;
	u64 epoch;
	u64 submit_order;
	u64 submit_ns;
	u64 volatile_id;
};

/* `bytes` a multiple of the page size. 0 or -ENOMEM. */
int sblk_journal_init(struct sblk_journal *journal, u64 bytes);
void sblk_journal_destroy(struct sblk_journal *journal);

/*
 * Before the range changes: appends an entry with its undo data and `redo_room` for what comes, which nobody sees before
 * sblk_journal_publish(). Its offset, or 0 when there was no room, which is counted. A flush and a mark have no range.
 */
u64 sblk_journal_begin(struct sblk_journal *journal, struct sblk_store *store, const struct sblk_journal_op *op,
		       u64 redo_room);

/* What sblk_journal_begin() needs for a write; for `pages` pages that may end up in any shape. */
u64 sblk_journal_write_room(u64 len);
u64 sblk_journal_pages_room(u64 pages);

/* After the range has changed. */
void sblk_journal_end(struct sblk_journal *journal, struct sblk_store *store, u64 offset);

/* Shows everything up to the newest entry, all of which are whole. */
void sblk_journal_publish(struct sblk_journal *journal);

/* The operation was answered. From any context. */
void sblk_journal_complete(struct sblk_journal *journal, u64 offset, u64 order, u64 epoch, u64 now_ns, bool failed);

/* A flush completed: epochs before this one are durable. As sblk_journal_complete(). */
void sblk_journal_set_epoch(struct sblk_journal *journal, u64 epoch);

/* Appends a mark and publishes it; its sequence, or 0 when there was no room. */
u64 sblk_journal_mark(struct sblk_journal *journal, const char *text, u32 length, u64 order, u64 epoch, u64 now_ns);

/*
 * Makes `store` what it was after `sequence`. 0; -EOVERFLOW after a gap; -EINVAL when there is no such sequence; -ENOMEM,
 * or -EINTR for a signal or when `stop` says so, with the position as far as it came. May sleep.
 */
int sblk_journal_seek(struct sblk_journal *journal, struct sblk_store *store, u64 sequence, u64 *applied, const bool *stop);

/* The same for a store on top, without moving the position. */
int sblk_journal_view(const struct sblk_journal *journal, struct sblk_store *store, u64 sequence, const bool *stop);

/*
 * Puts what `parts` names over a store that nobody else uses, one after another, out of the first `entries` entries, which are
 * whole and have no gap; others may append meanwhile. `unit_sectors`: nothing is torn within so many. 0; -EINVAL for a part
 * that cannot be; -ENOMEM, or -EINTR as above. One at a time. May sleep.
 */
int sblk_journal_compose(struct sblk_journal *journal, u64 entries, struct sblk_store *store,
			 const struct sampleblk_part *parts, u64 nr_parts, u32 unit_sectors, const bool *stop);

static inline bool sblk_journal_in_past(const struct sblk_journal *journal)
{
	return journal->position_end != journal->head;
}

#endif
