// SPDX-License-Identifier: GPL-2.0-only
#include "core/cache.h"

#include "core/random.h"

void sblk_cache_init(struct sblk_cache *cache, u64 limit)
{
	memset(cache, 0, sizeof(*cache));
	INIT_LIST_HEAD(&cache->records);
	cache->limit = limit;
	cache->next_id = 1;
}

/* What counts against the limit: data. A discard only keeps pages that the device had before. */
static u64 data_bytes(const struct sblk_record *record)
{
	return record->change.zeroes ? 0 : record->change.len;
}

bool sblk_record_is_durable(const struct sblk_record *record, u64 durable)
{
	u64 completed = READ_ONCE(record->completed);

	return completed && (completed < durable || record->flags & SBLK_RECORD_FUA);
}

static struct sblk_record *oldest(struct sblk_cache *cache)
{
	return list_first_entry_or_null(&cache->records, struct sblk_record, list);
}

static void drop(struct sblk_cache *cache, struct sblk_record *record)
{
	list_del_init(&record->list);
	cache->bytes -= data_bytes(record);
	cache->count--;
	sblk_record_put(record);
}

void sblk_cache_trim(struct sblk_cache *cache, u64 durable)
{
	struct sblk_record *record;

	while ((record = oldest(cache)) && sblk_record_is_durable(record, durable))
		drop(cache, record);
}

void sblk_cache_add(struct sblk_cache *cache, struct sblk_record *record, u64 durable)
{
	sblk_cache_trim(cache, durable);
	record->id = cache->next_id++;
	sblk_change_get(&record->change);
	list_add_tail(&record->list, &cache->records);
	cache->bytes += data_bytes(record);
	cache->count++;
	while (cache->bytes > cache->limit || cache->count > SBLK_CACHE_MAX_WRITES) {
		if (!sblk_record_is_durable(oldest(cache), durable))
			cache->written_back++;
		drop(cache, oldest(cache));
	}
}

void sblk_cache_forget(struct sblk_cache *cache)
{
	while (!list_empty(&cache->records))
		drop(cache, oldest(cache));
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

static u64 random_survivor(const struct sblk_cut *cut, u64 id, u64 sectors, bool atomic)
{
	u64 chance = sblk_random(cut->seed, id);
	u64 units = div_u64(sectors, cut->unit_sectors);

	if (chance % 100 >= cut->survive_percent)
		return 0;
	/* One unit cannot be torn. */
	if (!(cut->flags & SAMPLEBLK_CUT_F_TORN) || atomic || units < 2 || chance >> 63)
		return sectors;
	return (1 + sblk_random(cut->seed ^ 0x7465, id) % (units - 1)) * cut->unit_sectors;
}

/* How much of a write survives, in bytes from its start. */
static u64 surviving(const struct sblk_cut *cut, const struct sblk_record *record, u64 durable)
{
	bool atomic = record->flags & SBLK_RECORD_ATOMIC;
	u64 sectors = record->change.len >> 9;
	u64 keep;

	if (sblk_record_is_durable(record, durable))
		return record->change.len;
	switch (cut->mode) {
	case SAMPLEBLK_CUT_RANDOM:
		return random_survivor(cut, record->id, sectors, atomic) << 9;
	case SAMPLEBLK_CUT_EXPLICIT:
		keep = min_t(u64, named_survivor(cut, record->id), sectors);
		return (atomic && keep < sectors ? 0 : keep) << 9;
	default:
		return 0;
	}
}

void sblk_cache_cut(struct sblk_cache *cache, struct sblk_store *store, struct sblk_cut *cut, u64 durable)
{
	struct sblk_record *record;

	cut->dropped = 0;
	cut->survived = 0;
	cut->torn = 0;
	list_for_each_entry_reverse(record, &cache->records, list) {
		sblk_change_swap(&record->change, store);
		cond_resched();
	}
	list_for_each_entry(record, &cache->records, list) {
		u64 keep = surviving(cut, record, durable);

		if (keep)
			sblk_change_redo(&record->change, store, keep);
		if (!keep)
			cut->dropped++;
		else if (keep < record->change.len)
			cut->torn++;
		else
			cut->survived++;
		cond_resched();
	}
	sblk_cache_forget(cache);
}

int sblk_cache_settle(struct sblk_cache *cache, struct sblk_store *store)
{
	struct sblk_record *record;
	int err = 0;

	list_for_each_entry(record, &cache->records, list) {
		err = sblk_change_settle(&record->change, store);
		if (err)
			break;
	}
	return err;
}

int sblk_cache_copy_up(struct sblk_cache *cache, struct sblk_store *store, struct sblk_store *top)
{
	struct sblk_record *record;
	int err = 0;

	list_for_each_entry(record, &cache->records, list) {
		err = sblk_change_copy_up(&record->change, store, top);
		if (err)
			break;
	}
	return err;
}
