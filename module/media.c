// SPDX-License-Identifier: GPL-2.0-only
#include "media.h"

static bool zeroes(u32 type)
{
	return type == SAMPLEBLK_OP_DISCARD || type == SAMPLEBLK_OP_WRITE_ZEROES;
}

static bool journaling(const struct sblk_media *media)
{
	/* In the past, writes go to a layer that the next seek throws away: they are no part of the story. */
	return media->journal && !sblk_journal_in_past(media->journal);
}

int sblk_media_begin(struct sblk_media *media, u32 type, bool fua, u64 pos, u64 len, u64 now_ns)
{
	struct sblk_store *store = media->store;
	u64 room = sblk_journal_write_room(zeroes(type) ? 0 : len);
	bool journal;
	int err;

	sblk_lock(&media->lock);
	journal = journaling(media);
	media->entry = 0;
	if (media->off) {
		sblk_unlock(&media->lock);
		return -EIO;
	}
	if (type == SAMPLEBLK_OP_FLUSH) {
		media->flushed = media->cache ? media->cache->count : 0;
		if (media->cache)
			sblk_cache_flush(media->cache);
		if (journal)
			media->entry = sblk_journal_begin(media->journal, store, type, 0, 0, 0, 0, now_ns);
		return 0;
	}
	if (media->cache)
		sblk_cache_note(media->cache, store, pos, len,
				(fua ? SBLK_CACHE_DURABLE : 0) | (zeroes(type) ? SBLK_CACHE_ZEROES : 0));
	if (journal)
		media->entry = sblk_journal_begin(media->journal, store, type, fua ? SAMPLEBLK_JOURNAL_FUA : 0, pos, len,
						  room, now_ns);
	err = sblk_media_prepare(media, type, pos, len, GFP_NOWAIT | __GFP_NOWARN);
	if (err) {
		if (media->cache)
			sblk_cache_forget_last(media->cache);
		if (journal)
			sblk_journal_forget_last(media->journal, media->entry);
		sblk_unlock(&media->lock);
	}
	return err;
}

u64 sblk_media_end(struct sblk_media *media)
{
	u64 entry = media->entry;

	if (entry)
		sblk_journal_end(media->journal, media->store, entry);
	sblk_unlock(&media->lock);
	return entry;
}

void sblk_media_complete(struct sblk_media *media, u64 entry, u64 now_ns, bool failed)
{
	if (media->journal)
		sblk_journal_complete(media->journal, entry, now_ns, failed);
}

int sblk_media_prepare(struct sblk_media *media, u32 type, u64 pos, u64 len, gfp_t gfp)
{
	if (!len)
		return 0;
	return zeroes(type) ? sblk_store_prepare_discard(media->store, pos, len, gfp) :
			      sblk_store_prepare(media->store, pos, len, gfp);
}

struct cut_entries {
	struct sblk_media *media;
	u64 now_ns;
};

static int journal_cut_entry(const struct sblk_cache_entry *entry, void *arg)
{
	struct cut_entries *cut = arg;

	sblk_journal_begin(cut->media->journal, cut->media->store, SAMPLEBLK_JOURNAL_POWER_CUT, 0, entry->pos, entry->len,
			   sblk_journal_any_room(entry->len), cut->now_ns);
	return 0;
}

/* What the cut changed, in the journal: the same ranges as the cache, as they were before and are after. */
static void journal_cut_end(struct cut_entries *cut, u64 offset)
{
	struct sblk_journal *journal = cut->media->journal;

	while (offset < journal->header->head) {
		struct sampleblk_journal_entry *entry = (void *)journal->header + offset;

		if (entry->type == SAMPLEBLK_JOURNAL_POWER_CUT) {
			sblk_journal_end(journal, cut->media->store, offset);
			entry->complete_ns = cut->now_ns;
		}
		offset += entry->bytes;
	}
}

int sblk_media_cut(struct sblk_media *media, struct sblk_cut *cut, u64 now_ns)
{
	struct cut_entries entries = { .media = media, .now_ns = now_ns };
	bool journal;
	u64 head = 0;
	int err = 0;

	sblk_lock(&media->lock);
	if (media->off)
		err = -EALREADY;
	media->off = true;
	sblk_unlock(&media->lock);
	if (err || !media->cache)
		return err;

	/* From here on nobody writes. */
	journal = journaling(media);
	if (journal) {
		head = media->journal->header->head;
		sblk_cache_walk(media->cache, journal_cut_entry, &entries);
	}
	err = sblk_cache_cut(media->cache, media->store, cut);
	if (journal)
		journal_cut_end(&entries, head);
	if (err) {
		sblk_lock(&media->lock);
		media->off = false;
		sblk_unlock(&media->lock);
	}
	return err;
}

int sblk_media_power_on(struct sblk_media *media)
{
	int err = 0;

	sblk_lock(&media->lock);
	if (!media->off)
		err = -EALREADY;
	media->off = false;
	sblk_unlock(&media->lock);
	return err;
}
