// SPDX-License-Identifier: GPL-2.0-only
#include "cache.h"

int sblk_cache_init(struct sblk_cache *cache, u64 size)
{
	memset(cache, 0, sizeof(*cache));
	cache->ring = vmalloc(size);
	if (!cache->ring)
		return -ENOMEM;
	cache->size = size;
	cache->next_id = 1;
	return 0;
}

void sblk_cache_destroy(struct sblk_cache *cache)
{
	vfree(cache->ring);
	cache->ring = NULL;
}

static struct sblk_cache_entry *entry_at(const struct sblk_cache *cache, u64 offset)
{
	return cache->ring + offset;
}

void sblk_cache_flush(struct sblk_cache *cache)
{
	cache->head = 0;
	cache->tail = 0;
	cache->count = 0;
}

/* The oldest write reaches the medium: nothing of it is remembered any more. */
static void write_back_oldest(struct sblk_cache *cache)
{
	cache->tail += entry_at(cache, cache->tail)->bytes;
	cache->count--;
	cache->written_back++;
	if (!cache->count) {
		sblk_cache_flush(cache);
		return;
	}
	/* The rest of the ring was too short for the entry that came next. */
	if (cache->tail + sizeof(struct sblk_cache_entry) > cache->size || !entry_at(cache, cache->tail)->bytes)
		cache->tail = 0;
}

/* Whether `need` bytes lie free in one piece at the head, which may move to the ring's start for it. */
static bool room(struct sblk_cache *cache, u64 need)
{
	if (!cache->count)
		return true;
	if (cache->head > cache->tail) {
		if (cache->size - cache->head >= need)
			return true;
		if (cache->tail <= need)
			return false;
		if (cache->size - cache->head >= sizeof(struct sblk_cache_entry))
			entry_at(cache, cache->head)->bytes = 0;
		cache->head = 0;
		return true;
	}
	return cache->tail - cache->head > need;
}

void sblk_cache_note(struct sblk_cache *cache, struct sblk_store *store, u64 pos, u64 len, u32 flags)
{
	u64 undo = sblk_chunks_size(store, pos, len);
	u64 need = ALIGN(sizeof(struct sblk_cache_entry) + undo, 8);
	struct sblk_cache_entry *entry;
	u64 id = cache->next_id++;
	u64 head = cache->head;

	if (need > cache->size || need > U32_MAX) {
		/* No cache holds it, and what it covers must not come back: all older writes go first. */
		cache->written_back += cache->count + 1;
		sblk_cache_flush(cache);
		return;
	}
	while (!room(cache, need)) {
		write_back_oldest(cache);
		head = cache->head;
	}
	cache->head_before = head;
	entry = entry_at(cache, cache->head);
	entry->id = id;
	entry->pos = pos;
	entry->len = len;
	entry->bytes = need;
	entry->flags = flags;
	entry->undo_bytes = sblk_chunks_pack(store, pos, len, entry + 1);
	cache->head += need;
	cache->count++;
}

void sblk_cache_forget_last(struct sblk_cache *cache)
{
	cache->next_id--;
	if (!cache->count)
		return; /* it was too large to be remembered */
	cache->count--;
	cache->head = cache->head_before;
	if (!cache->count)
		sblk_cache_flush(cache);
}

int sblk_cache_walk(const struct sblk_cache *cache, int (*each)(const struct sblk_cache_entry *entry, void *arg), void *arg)
{
	u64 offset = cache->tail;
	u64 i;

	for (i = 0; i < cache->count; i++) {
		const struct sblk_cache_entry *entry;
		int ret;

		if (offset + sizeof(*entry) > cache->size || !entry_at(cache, offset)->bytes)
			offset = 0;
		entry = entry_at(cache, offset);
		ret = each(entry, arg);
		if (ret)
			return ret;
		offset += entry->bytes;
	}
	return 0;
}

/* How many sectors of a write the caller lets survive. */
static u64 named_survivor(const struct sblk_cut *cut, u64 id)
{
	u64 low = 0, high = cut->nr_survivors;

	while (low < high) {
		u64 middle = low + (high - low) / 2;

		if (cut->survivors[middle].id == id)
			return cut->survivors[middle].sectors;
		if (cut->survivors[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return 0;
}

/* How much of a write survives, in bytes from its start. */
static u64 surviving(const struct sblk_cut *cut, const struct sblk_cache_entry *entry)
{
	u64 sectors = entry->len >> 9;
	u64 chance;

	if (entry->flags & SBLK_CACHE_DURABLE)
		return entry->len;
	switch (cut->mode) {
	case SAMPLEBLK_CUT_RANDOM:
		chance = sblk_random(cut->seed, entry->id);
		if (chance % 100 >= cut->survive_percent)
			return 0;
		/* A write of one sector cannot be torn. */
		if (!(cut->flags & SAMPLEBLK_CUT_F_TORN) || sectors < 2 || chance >> 63)
			return entry->len;
		return (1 + sblk_random(cut->seed ^ 0x7465, entry->id) % (sectors - 1)) << 9;
	case SAMPLEBLK_CUT_EXPLICIT:
		return min_t(u64, named_survivor(cut, entry->id), sectors) << 9;
	default:
		return 0;
	}
}

struct redo {
	u64 pos;
	u64 len;
	u64 data; /* offset of its bytes, or ~0 for zeroes */
};

struct survey {
	struct sblk_cut *cut;
	u64 bytes;
};

static int survey_entry(const struct sblk_cache_entry *entry, void *arg)
{
	struct survey *survey = arg;
	u64 keep = surviving(survey->cut, entry);

	if (!(entry->flags & SBLK_CACHE_ZEROES))
		survey->bytes += keep;
	if (!keep)
		survey->cut->dropped++;
	else if (keep < entry->len)
		survey->cut->torn++;
	else
		survey->cut->survived++;
	return 0;
}

static int list_offset(const struct sblk_cache_entry *entry, void *arg)
{
	const struct sblk_cache_entry ***next = arg;

	*(*next)++ = entry;
	return 0;
}

/* What is written while nobody may sleep cannot fail half way: memory for it is got first. */
static int prepare_entry(const struct sblk_cache_entry *entry, void *arg)
{
	/* A long discard over a sparse store must not fill it: only what is undone as data needs pages. */
	const void *chunks = entry + 1;
	const void *end = chunks + entry->undo_bytes;
	struct sblk_store *store = arg;

	if (!(entry->flags & SBLK_CACHE_ZEROES)) {
		int err = sblk_store_prepare(store, entry->pos, entry->len, GFP_KERNEL);

		if (err)
			return err;
	}
	while (chunks < end) {
		const struct sampleblk_chunk *chunk = chunks;

		chunks += sizeof(*chunk);
		if (chunk->kind == SAMPLEBLK_CHUNK_DATA) {
			int err = sblk_store_prepare(store, chunk->sector << 9, chunk->sectors << 9, GFP_KERNEL);

			if (err)
				return err;
			chunks += chunk->sectors << 9;
		}
	}
	return 0;
}

int sblk_cache_cut(struct sblk_cache *cache, struct sblk_store *store, struct sblk_cut *cut)
{
	const struct sblk_cache_entry **entries, **next;
	struct survey survey = { .cut = cut };
	struct redo *redo;
	u64 used = 0;
	void *data;
	int err;
	u64 i;

	cut->dropped = 0;
	cut->survived = 0;
	cut->torn = 0;
	if (!cache->count)
		return 0;
	sblk_cache_walk(cache, survey_entry, &survey);
	entries = kvcalloc(cache->count, sizeof(*entries), GFP_KERNEL);
	redo = kvcalloc(cache->count, sizeof(*redo), GFP_KERNEL);
	data = survey.bytes ? kvmalloc(survey.bytes, GFP_KERNEL) : NULL;
	err = -ENOMEM;
	if (!entries || !redo || (survey.bytes && !data))
		goto out;
	err = sblk_cache_walk(cache, prepare_entry, store);
	if (err)
		goto out;
	next = entries;
	sblk_cache_walk(cache, list_offset, &next);

	/* Back to what is durable; on the way, what survives is read just before it is undone. */
	for (i = cache->count; i-- > 0;) {
		const struct sblk_cache_entry *entry = entries[i];

		redo[i].pos = entry->pos;
		redo[i].len = surviving(cut, entry);
		redo[i].data = ~0ULL;
		if (redo[i].len && !(entry->flags & SBLK_CACHE_ZEROES)) {
			redo[i].data = used;
			sblk_store_read(store, entry->pos, data + used, redo[i].len);
			used += redo[i].len;
		}
		WARN_ON_ONCE(sblk_chunks_apply(store, entry + 1, entry->undo_bytes, ~0ULL, GFP_KERNEL));
		cond_resched();
	}
	for (i = 0; i < cache->count; i++) {
		cond_resched();
		if (!redo[i].len)
			continue;
		if (redo[i].data == ~0ULL)
			WARN_ON_ONCE(sblk_store_zero(store, redo[i].pos, redo[i].len, GFP_KERNEL));
		else
			WARN_ON_ONCE(sblk_store_write(store, redo[i].pos, data + redo[i].data, redo[i].len, GFP_KERNEL));
	}
	sblk_cache_flush(cache);
	err = 0;
out:
	kvfree(data);
	kvfree(redo);
	kvfree(entries);
	return err;
}
