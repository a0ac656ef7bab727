// SPDX-License-Identifier: GPL-2.0-only
#include "core/journal.h"

#define ENTRY_BYTES sizeof(struct sampleblk_journal_entry)

static struct sampleblk_journal_entry *entry_at(const struct sblk_journal *journal, u64 offset)
{
	return (void *)journal->header + offset;
}

static u64 offsets_pages(u64 room)
{
	return sblk_pages_of(room * sizeof(u64));
}

int sblk_journal_init(struct sblk_journal *journal, u64 bytes)
{
	struct sampleblk_journal_header *header;

	memset(journal, 0, sizeof(*journal));
	if (!sblk_pages_charge(sblk_pages_of(bytes), GFP_KERNEL))
		return -ENOMEM;
	header = vmalloc_user(bytes);
	if (!header) {
		sblk_pages_uncharge(sblk_pages_of(bytes));
		return -ENOMEM;
	}
	journal->header = header;
	journal->bytes = bytes;
	journal->head = ALIGN(sizeof(*header), 64);
	journal->position_end = journal->head;
	journal->next_sequence = 1;
	header->magic = SAMPLEBLK_JOURNAL_MAGIC;
	header->bytes = bytes;
	header->first = journal->head;
	sblk_journal_publish(journal);
	return 0;
}

void sblk_journal_destroy(struct sblk_journal *journal)
{
	vfree(journal->header);
	vfree(journal->offsets);
	sblk_pages_uncharge(sblk_pages_of(journal->bytes) + offsets_pages(journal->room_offsets));
	memset(journal, 0, sizeof(*journal));
}

u64 sblk_journal_write_room(u64 len)
{
	return len + sizeof(struct sampleblk_chunk);
}

u64 sblk_journal_pages_room(u64 pages)
{
	/* A chunk of data and one of zeroes for each, and zeroes before the first. */
	return pages * (SBLK_PAGE_BYTES + 2 * sizeof(struct sampleblk_chunk)) + sizeof(struct sampleblk_chunk);
}

u64 sblk_journal_begin(struct sblk_journal *journal, struct sblk_store *store, const struct sblk_journal_op *op,
		       u64 redo_room)
{
	u64 undo = op->len ? sblk_chunks_size(store, op->pos, op->len) : 0;
	u64 bytes = ALIGN(ENTRY_BYTES + undo + redo_room, 8);
	struct sampleblk_journal_entry *entry;
	u64 sequence = journal->next_sequence++;
	u64 offset = journal->head;

	/* After a gap nothing more is taken: what lies before it stays a whole story. */
	if (journal->overflow || bytes > journal->bytes - offset || bytes > U32_MAX) {
		journal->overflow++;
		return 0;
	}
	entry = entry_at(journal, offset);
	*entry = (struct sampleblk_journal_entry){
		.sequence = sequence,
		.bytes = bytes,
		.previous_bytes = journal->last_bytes,
		.type = op->type,
		.flags = op->flags,
		.epoch = op->epoch,
		.sector = op->pos >> 9,
		.sectors = op->len >> 9,
		.submit_ns = op->submit_ns,
		.submit_order = op->submit_order,
		.volatile_id = op->volatile_id,
	};
	entry->undo_bytes = op->len ? sblk_chunks_pack(store, op->pos, op->len, entry + 1) : 0;
	journal->last_bytes = bytes;
	journal->entries++;
	journal->position = sequence;
	journal->head = offset + bytes;
	journal->position_end = journal->head;
	return offset;
}

void sblk_journal_end(struct sblk_journal *journal, struct sblk_store *store, u64 offset)
{
	struct sampleblk_journal_entry *entry;
	struct sampleblk_chunk *chunk;

	if (!offset)
		return;
	entry = entry_at(journal, offset);
	chunk = (void *)(entry + 1) + entry->undo_bytes;
	if (entry->type == SAMPLEBLK_OP_DISCARD || entry->type == SAMPLEBLK_OP_WRITE_ZEROES) {
		/* Known without looking, and a page that could not be freed would need more room than there is. */
		*chunk = (struct sampleblk_chunk){ entry->sector, entry->sectors, SAMPLEBLK_CHUNK_ZERO, 0 };
		entry->redo_bytes = sizeof(*chunk);
	} else if (entry->sectors) {
		entry->redo_bytes = sblk_chunks_pack(store, entry->sector << 9, entry->sectors << 9, chunk);
	}
}

void sblk_journal_publish(struct sblk_journal *journal)
{
	struct sampleblk_journal_header *header = journal->header;

	WRITE_ONCE(header->entries, journal->entries);
	WRITE_ONCE(header->overflow, journal->overflow);
	WRITE_ONCE(header->next_sequence, journal->next_sequence);
	WRITE_ONCE(header->position, journal->position);
	/* A reader who sees the head moved sees the entries before it. */
	smp_store_release(&header->head, journal->head);
}

void sblk_journal_complete(struct sblk_journal *journal, u64 offset, u64 order, u64 epoch, u64 now_ns, bool failed)
{
	struct sampleblk_journal_entry *entry;

	if (!offset)
		return;
	entry = entry_at(journal, offset);
	if (failed)
		WRITE_ONCE(entry->flags, entry->flags | SAMPLEBLK_JOURNAL_FAILED);
	WRITE_ONCE(entry->epoch, epoch);
	WRITE_ONCE(entry->complete_order, order);
	/* One who sees the time sees the rest. */
	smp_store_release(&entry->complete_ns, now_ns);
}

void sblk_journal_set_epoch(struct sblk_journal *journal, u64 epoch)
{
	WRITE_ONCE(journal->epoch, epoch);
	WRITE_ONCE(journal->header->epoch, epoch);
}

u64 sblk_journal_mark(struct sblk_journal *journal, const char *text, u32 length, u64 order, u64 epoch, u64 now_ns)
{
	struct sblk_journal_op op = {
		.type = SAMPLEBLK_JOURNAL_MARK,
		.epoch = epoch,
		.submit_order = order,
		.submit_ns = now_ns,
	};
	u64 offset = sblk_journal_begin(journal, NULL, &op, length);
	struct sampleblk_journal_entry *entry;

	if (offset) {
		entry = entry_at(journal, offset);
		memcpy(entry + 1, text, length);
		entry->redo_bytes = length;
		entry->complete_order = order;
		entry->complete_ns = now_ns;
	}
	sblk_journal_publish(journal);
	return offset ? entry_at(journal, offset)->sequence : 0;
}

/* --- going back and forth */

/* Whole, or not at all where there is no memory: the position must always say what the store is. */
static int travel_over(const struct sampleblk_journal_entry *entry, struct sblk_store *store, const void *chunks, u64 bytes)
{
	u64 pos = entry->sector << 9, len = entry->sectors << 9;
	int err;

	if (!len)
		return 0;
	err = sblk_chunks_reserve(store, chunks, bytes, pos, len, GFP_KERNEL);
	return err ? err : sblk_chunks_apply(store, chunks, bytes, pos, len, GFP_KERNEL);
}

static const void *redo_chunks(const struct sampleblk_journal_entry *entry)
{
	return (const void *)(entry + 1) + entry->undo_bytes;
}

static int undo(const struct sampleblk_journal_entry *entry, struct sblk_store *store)
{
	return travel_over(entry, store, entry + 1, entry->undo_bytes);
}

static int redo(const struct sampleblk_journal_entry *entry, struct sblk_store *store)
{
	return travel_over(entry, store, redo_chunks(entry), entry->redo_bytes);
}

/* The entry before `end`, which is not the first offset. */
static struct sampleblk_journal_entry *entry_before(const struct sblk_journal *journal, u64 end)
{
	u32 bytes = end == journal->head ? journal->last_bytes : entry_at(journal, end)->previous_bytes;

	return entry_at(journal, end - bytes);
}

/* Takes the store from one position to another, entry by entry. */
static int travel(const struct sblk_journal *journal, struct sblk_store *store, u64 sequence, u64 *position, u64 *end,
		  u64 *applied, const bool *stop)
{
	*applied = 0;
	if (journal->overflow)
		return -EOVERFLOW;
	if (sequence >= journal->next_sequence)
		return -EINVAL;
	while (*position != sequence) {
		bool back = *position > sequence;
		const struct sampleblk_journal_entry *entry = back ? entry_before(journal, *end) : entry_at(journal, *end);
		int err;

		if (sblk_interrupted() || READ_ONCE(*stop))
			return -EINTR;
		err = back ? undo(entry, store) : redo(entry, store);
		if (err)
			return err;
		*end = back ? *end - entry->bytes : *end + entry->bytes;
		*position = back ? entry->sequence - 1 : entry->sequence;
		++*applied;
		cond_resched();
	}
	return 0;
}

int sblk_journal_seek(struct sblk_journal *journal, struct sblk_store *store, u64 sequence, u64 *applied, const bool *stop)
{
	int err = travel(journal, store, sequence, &journal->position, &journal->position_end, applied, stop);

	sblk_journal_publish(journal);
	return err;
}

int sblk_journal_view(const struct sblk_journal *journal, struct sblk_store *store, u64 sequence, const bool *stop)
{
	u64 position = journal->position;
	u64 end = journal->position_end;
	u64 applied;

	return travel(journal, store, sequence, &position, &end, &applied, stop);
}

/* --- what a crash may have left */

/* Notes where the first `entries` entries are. */
static int find_entries(struct sblk_journal *journal, u64 entries, const bool *stop)
{
	u64 at = ALIGN(sizeof(*journal->header), 64);

	if (entries > journal->room_offsets) {
		u64 room = max_t(u64, entries, 2 * journal->room_offsets);
		u64 more = offsets_pages(room) - offsets_pages(journal->room_offsets);
		u64 *offsets;

		if (!sblk_pages_charge(more, GFP_KERNEL))
			return -ENOMEM;
		offsets = vmalloc(room * sizeof(*offsets));
		if (!offsets) {
			sblk_pages_uncharge(more);
			return -ENOMEM;
		}
		if (journal->nr_offsets)
			memcpy(offsets, journal->offsets, journal->nr_offsets * sizeof(*offsets));
		vfree(journal->offsets);
		journal->offsets = offsets;
		journal->room_offsets = room;
	}
	if (journal->nr_offsets) {
		at = journal->offsets[journal->nr_offsets - 1];
		at += entry_at(journal, at)->bytes;
	}
	while (journal->nr_offsets < entries) {
		if (sblk_interrupted() || READ_ONCE(*stop))
			return -EINTR;
		journal->offsets[journal->nr_offsets++] = at;
		at += entry_at(journal, at)->bytes;
		cond_resched();
	}
	return 0;
}

static bool is_change(u32 type)
{
	return type == SAMPLEBLK_OP_WRITE || type == SAMPLEBLK_OP_DISCARD || type == SAMPLEBLK_OP_WRITE_ZEROES;
}

static int apply_part(const struct sblk_journal *journal, u64 entries, struct sblk_store *store,
		      const struct sampleblk_part *part, u32 unit_sectors)
{
	u64 sectors = part->sectors;
	const struct sampleblk_journal_entry *entry;

	/* Until the first gap, sequences count entries. */
	if (!part->sequence || part->sequence > entries)
		return -EINVAL;
	entry = entry_at(journal, journal->offsets[part->sequence - 1]);
	if (!is_change(entry->type))
		return -EINVAL;
	if (!part->first && !sectors)
		sectors = entry->sectors;
	if (!sectors || part->first > entry->sectors || sectors > entry->sectors - part->first)
		return -EINVAL;
	if (sectors != entry->sectors) {
		if (READ_ONCE(entry->flags) & SAMPLEBLK_JOURNAL_ATOMIC)
			return -EINVAL;
		if ((part->first | sectors) & (unit_sectors - 1))
			return -EINVAL;
	}
	return sblk_chunks_apply(store, redo_chunks(entry), entry->redo_bytes, (entry->sector + part->first) << 9,
				 sectors << 9, GFP_KERNEL);
}

int sblk_journal_compose(struct sblk_journal *journal, u64 entries, struct sblk_store *store,
			 const struct sampleblk_part *parts, u64 nr_parts, u32 unit_sectors, const bool *stop)
{
	int err = find_entries(journal, entries, stop);
	u64 i;

	for (i = 0; i < nr_parts && !err; i++) {
		if (sblk_interrupted() || READ_ONCE(*stop))
			return -EINTR;
		err = apply_part(journal, entries, store, &parts[i], unit_sectors);
		cond_resched();
	}
	return err;
}
