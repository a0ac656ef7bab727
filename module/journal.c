// SPDX-License-Identifier: GPL-2.0-only
#include "journal.h"

#define ENTRY_BYTES sizeof(struct sampleblk_journal_entry)

static struct sampleblk_journal_entry *entry_at(const struct sblk_journal *journal, u64 offset)
{
	return (void *)journal->header + offset;
}

int sblk_journal_init(struct sblk_journal *journal, u64 bytes)
{
	struct sampleblk_journal_header *header = vmalloc_user(bytes);

	memset(journal, 0, sizeof(*journal));
	if (!header)
		return -ENOMEM;
	journal->header = header;
	header->magic = SAMPLEBLK_JOURNAL_MAGIC;
	header->bytes = bytes;
	header->first = ALIGN(sizeof(*header), 64);
	header->head = header->first;
	header->next_sequence = 1;
	journal->position_end = header->head;
	return 0;
}

void sblk_journal_destroy(struct sblk_journal *journal)
{
	vfree(journal->header);
	journal->header = NULL;
}

u64 sblk_journal_write_room(u64 len)
{
	return len + sizeof(struct sampleblk_chunk);
}

u64 sblk_journal_any_room(u64 len)
{
	return len + sizeof(struct sampleblk_chunk) * ((len >> SBLK_PAGE_SHIFT) + 2);
}

u64 sblk_journal_begin(struct sblk_journal *journal, struct sblk_store *store, u32 type, u32 flags, u64 pos, u64 len,
		       u64 redo_room, u64 now_ns)
{
	struct sampleblk_journal_header *header = journal->header;
	u64 undo = len ? sblk_chunks_size(store, pos, len) : 0;
	u64 bytes = ALIGN(ENTRY_BYTES + undo + redo_room, 8);
	struct sampleblk_journal_entry *entry;
	u64 offset = header->head;
	u64 sequence = header->next_sequence++;

	/* After a gap nothing more is taken: what lies before it stays a whole story. */
	if (header->overflow || bytes > header->bytes - offset || bytes > U32_MAX) {
		header->overflow++;
		return 0;
	}
	entry = entry_at(journal, offset);
	memset(entry, 0, sizeof(*entry));
	entry->sequence = sequence;
	entry->bytes = bytes;
	entry->previous_bytes = journal->last_bytes;
	entry->type = type;
	entry->flags = flags;
	entry->epoch = atomic64_read(&journal->epoch);
	header->epoch = entry->epoch;
	entry->sector = pos >> 9;
	entry->sectors = len >> 9;
	entry->submit_ns = now_ns;
	entry->undo_bytes = len ? sblk_chunks_pack(store, pos, len, entry + 1) : 0;
	entry->redo_bytes = 0;
	journal->last_bytes = bytes;
	header->entries++;
	header->position = sequence;
	journal->position_end = offset + bytes;
	/* A reader who sees the head moved sees the entry. */
	smp_store_release(&header->head, offset + bytes);
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

void sblk_journal_forget_last(struct sblk_journal *journal, u64 offset)
{
	struct sampleblk_journal_header *header = journal->header;

	header->next_sequence--;
	if (!offset) {
		header->overflow--;
		return;
	}
	journal->last_bytes = entry_at(journal, offset)->previous_bytes;
	header->entries--;
	header->position--;
	journal->position_end = offset;
	WRITE_ONCE(header->head, offset);
}

void sblk_journal_complete(struct sblk_journal *journal, u64 offset, u64 now_ns, bool failed)
{
	struct sampleblk_journal_entry *entry;

	if (!offset)
		return;
	entry = entry_at(journal, offset);
	if (failed)
		entry->flags |= SAMPLEBLK_JOURNAL_FAILED;
	else if (entry->type == SAMPLEBLK_OP_FLUSH)
		WRITE_ONCE(journal->header->epoch, (u64)atomic64_inc_return(&journal->epoch));
	WRITE_ONCE(entry->complete_ns, now_ns);
}

u64 sblk_journal_mark(struct sblk_journal *journal, const char *text, u32 length, u64 now_ns)
{
	u64 offset = sblk_journal_begin(journal, NULL, SAMPLEBLK_JOURNAL_MARK, 0, 0, 0, length, now_ns);
	struct sampleblk_journal_entry *entry;

	if (!offset)
		return 0;
	entry = entry_at(journal, offset);
	memcpy(entry + 1, text, length);
	entry->redo_bytes = length;
	entry->complete_ns = now_ns;
	return entry->sequence;
}

static bool changes(const struct sampleblk_journal_entry *entry)
{
	return entry->sectors != 0;
}

static int undo(const struct sampleblk_journal_entry *entry, struct sblk_store *store)
{
	return changes(entry) ? sblk_chunks_apply(store, entry + 1, entry->undo_bytes, ~0ULL, GFP_KERNEL) : 0;
}

static int redo(const struct sampleblk_journal_entry *entry, struct sblk_store *store)
{
	const void *chunks = (const void *)(entry + 1) + entry->undo_bytes;

	return changes(entry) ? sblk_chunks_apply(store, chunks, entry->redo_bytes, ~0ULL, GFP_KERNEL) : 0;
}

/* The entry before `end`, which is not the first offset. */
static struct sampleblk_journal_entry *entry_before(const struct sblk_journal *journal, u64 end)
{
	u32 bytes = end == journal->header->head ? journal->last_bytes : entry_at(journal, end)->previous_bytes;

	return entry_at(journal, end - bytes);
}

/* Takes the store from one position to another, entry by entry. */
static int travel(const struct sblk_journal *journal, struct sblk_store *store, u64 sequence, u64 *position, u64 *end,
		  u64 *applied)
{
	*applied = 0;
	if (journal->header->overflow)
		return -EOVERFLOW;
	if (sequence >= journal->header->next_sequence)
		return -EINVAL;
	while (*position != sequence) {
		bool back = *position > sequence;
		const struct sampleblk_journal_entry *entry = back ? entry_before(journal, *end) : entry_at(journal, *end);
		int err = back ? undo(entry, store) : redo(entry, store);

		if (err)
			return err;
		*end = back ? *end - entry->bytes : *end + entry->bytes;
		*position = back ? entry->sequence - 1 : entry->sequence;
		++*applied;
		cond_resched();
	}
	return 0;
}

int sblk_journal_seek(struct sblk_journal *journal, struct sblk_store *store, u64 sequence, u64 *applied)
{
	u64 position = journal->header->position;
	int err = travel(journal, store, sequence, &position, &journal->position_end, applied);

	journal->header->position = position;
	return err;
}

int sblk_journal_view(const struct sblk_journal *journal, struct sblk_store *store, u64 sequence)
{
	u64 position = journal->header->position;
	u64 end = journal->position_end;
	u64 applied;

	return travel(journal, store, sequence, &position, &end, &applied);
}
