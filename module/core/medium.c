// SPDX-License-Identifier: GPL-2.0-only
#include "core/medium.h"

#include "core/op.h"

static bool zeroes(u32 type)
{
	return type == SAMPLEBLK_OP_DISCARD || type == SAMPLEBLK_OP_WRITE_ZEROES;
}

static bool journaling(const struct sblk_medium *medium)
{
	/* In the past, writes go to a layer that the next seek throws away: they are no part of the story. */
	return medium->journal && !sblk_journal_in_past(medium->journal);
}

void sblk_medium_init(struct sblk_medium *medium, struct sblk_store *store)
{
	memset(medium, 0, sizeof(*medium));
	medium->store = store;
	spin_lock_init(&medium->lock);
	spin_lock_init(&medium->order_lock);
}

/* --- the way of a command */

bool sblk_medium_submit(struct sblk_medium *medium, struct sblk_ticket *ticket, u32 type, u64 now_ns)
{
	unsigned long irq;
	bool on;

	*ticket = (struct sblk_ticket){ .submit_ns = now_ns };
	spin_lock_irqsave(&medium->order_lock, irq);
	on = !medium->off;
	ticket->power_epoch = medium->power_epoch;
	if (on && type != SAMPLEBLK_OP_READ && sblk_medium_logs(medium)) {
		ticket->submit_order = ++medium->order;
		if (type == SAMPLEBLK_OP_FLUSH) {
			ticket->flush = ++medium->flushes;
			ticket->covers = medium->completed;
		}
	}
	spin_unlock_irqrestore(&medium->order_lock, irq);
	return on;
}

struct sblk_record *sblk_medium_record(struct sblk_medium *medium, u32 type, u64 pos, u64 len, bool keep, u32 flags,
				       gfp_t gfp)
{
	struct sblk_record *record;
	int err = 0;

	/* Where memory is waited for, what is durable by now gives its own back. */
	if (medium->cache && gfpflags_allow_blocking(gfp)) {
		spin_lock(&medium->lock);
		sblk_cache_trim(medium->cache, READ_ONCE(medium->durable));
		spin_unlock(&medium->lock);
	}
	record = kzalloc(sizeof(*record), gfp | __GFP_NOWARN);
	if (!record)
		return NULL;
	INIT_LIST_HEAD(&record->list);
	record->flags = flags;
	if (!len)
		sblk_change_init_empty(&record->change);
	else if (zeroes(type))
		err = sblk_change_init_zeroes(&record->change, medium->store, pos, len, keep, gfp);
	else
		err = sblk_change_init_write(&record->change, medium->store, pos, len, gfp);
	if (err) {
		kfree(record);
		return NULL;
	}
	return record;
}

static void journal_begin(struct sblk_medium *medium, const struct sblk_ticket *ticket, struct sblk_record *record,
			  u32 type, u64 *overflow)
{
	const struct sblk_change *change = &record->change;
	struct sblk_journal_op op = {
		.type = type,
		.flags = (record->flags & SBLK_RECORD_FUA ? SAMPLEBLK_JOURNAL_FUA : 0) |
			 (record->flags & SBLK_RECORD_ATOMIC ? SAMPLEBLK_JOURNAL_ATOMIC : 0),
		.pos = change->pos,
		.len = change->len,
		.epoch = (ticket->flush ? ticket->flush - 1 : READ_ONCE(medium->flushes)) - medium->flushes_before,
		.submit_order = ticket->submit_order,
		.submit_ns = ticket->submit_ns,
		.volatile_id = record->id,
	};

	record->entry = sblk_journal_begin(medium->journal, medium->store, &op,
					   sblk_journal_write_room(zeroes(type) ? 0 : change->len));
	if (!record->entry)
		*overflow = medium->journal->next_sequence - 1;
}

int sblk_medium_change(struct sblk_medium *medium, struct sblk_ticket *ticket, struct sblk_record *record, u32 type,
		       u64 *overflow)
{
	int err = 0;

	*overflow = 0;
	spin_lock(&medium->lock);
	if (medium->off || medium->power_epoch != ticket->power_epoch)
		err = -EIO;
	else if (!sblk_change_is_ready(&record->change, medium->store))
		err = -EAGAIN;
	if (err) {
		spin_unlock(&medium->lock);
		sblk_record_put(record);
		return err;
	}
	/* Takes the id first, which the journal tells. */
	if (medium->cache && type != SAMPLEBLK_OP_FLUSH)
		sblk_cache_add(medium->cache, record, READ_ONCE(medium->durable));
	if (journaling(medium))
		journal_begin(medium, ticket, record, type, overflow);
	sblk_change_make(&record->change, medium->store);
	if (journaling(medium)) {
		sblk_journal_end(medium->journal, medium->store, record->entry);
		sblk_journal_publish(medium->journal);
	}
	spin_unlock(&medium->lock);
	record->next = ticket->records;
	ticket->records = record;
	return 0;
}

static void flush_completed(struct sblk_medium *medium, const struct sblk_ticket *ticket, struct sblk_flushed *flushed)
{
	flushed->writes = 0;
	flushed->epoch = ticket->flush - 1 - medium->flushes_before;
	WRITE_ONCE(medium->durable, max_t(u64, medium->durable, ticket->submit_order));
	if (ticket->covers > medium->completed_durable) {
		flushed->writes = ticket->covers - medium->completed_durable;
		medium->completed_durable = ticket->covers;
	}
	medium->flushed = max_t(u64, medium->flushed, ticket->flush);
	if (medium->journal)
		sblk_journal_set_epoch(medium->journal, medium->flushed - medium->flushes_before);
}

static void record_completed(struct sblk_medium *medium, const struct sblk_ticket *ticket, struct sblk_record *record,
			     u64 order, u64 now_ns, bool failed)
{
	/* Of one that the power went from, a cut that is at it must not think that it was answered. */
	if (ticket->power_epoch == medium->power_epoch)
		WRITE_ONCE(record->completed, order);
	if (!ticket->flush && !(record->flags & SBLK_RECORD_FUA))
		medium->completed++;
	if (medium->journal)
		sblk_journal_complete(medium->journal, record->entry, order,
				      (ticket->flush ? ticket->flush - 1 : medium->flushes) - medium->flushes_before,
				      now_ns, failed);
}

bool sblk_medium_complete(struct sblk_medium *medium, struct sblk_ticket *ticket, bool failed, u64 now_ns,
			  struct sblk_flushed *flushed)
{
	struct sblk_record *record;
	unsigned long irq;
	bool in_time;

	spin_lock_irqsave(&medium->order_lock, irq);
	in_time = ticket->power_epoch == medium->power_epoch;
	failed |= !in_time;
	if (ticket->submit_order) {
		u64 order = ++medium->order;

		/* Who reads the journal must not believe it, either. */
		failed |= ticket->flush && ticket->no_promise;
		for (record = ticket->records; record; record = record->next)
			record_completed(medium, ticket, record, order, now_ns, failed);
		if (ticket->flush && !failed)
			flush_completed(medium, ticket, flushed);
	}
	spin_unlock_irqrestore(&medium->order_lock, irq);
	while ((record = ticket->records)) {
		ticket->records = record->next;
		sblk_record_put(record);
	}
	return in_time;
}

/* --- power */

int sblk_medium_power_off(struct sblk_medium *medium)
{
	unsigned long irq;
	int err = 0;

	spin_lock(&medium->lock);
	spin_lock_irqsave(&medium->order_lock, irq);
	if (medium->off) {
		err = -EALREADY;
	} else {
		WRITE_ONCE(medium->off, true);
		WRITE_ONCE(medium->power_epoch, medium->power_epoch + 1);
	}
	spin_unlock_irqrestore(&medium->order_lock, irq);
	spin_unlock(&medium->lock);
	return err;
}

int sblk_medium_power_on(struct sblk_medium *medium)
{
	unsigned long irq;
	int err = 0;

	spin_lock(&medium->lock);
	spin_lock_irqsave(&medium->order_lock, irq);
	if (!medium->off)
		err = -EALREADY;
	WRITE_ONCE(medium->off, false);
	spin_unlock_irqrestore(&medium->order_lock, irq);
	spin_unlock(&medium->lock);
	return err;
}

static u64 draw_order(struct sblk_medium *medium)
{
	unsigned long irq;
	u64 order;

	spin_lock_irqsave(&medium->order_lock, irq);
	order = ++medium->order;
	spin_unlock_irqrestore(&medium->order_lock, irq);
	return order;
}

static void journal_cut_run(struct sblk_medium *medium, const struct sblk_record *record, u32 first, u32 count, u64 order,
			    u64 now_ns)
{
	u64 pos = record->change.pages[first].index << SBLK_PAGE_SHIFT;
	struct sblk_journal_op op = {
		.type = SAMPLEBLK_JOURNAL_POWER_CUT,
		.pos = pos,
		.len = min_t(u64, (u64)count << SBLK_PAGE_SHIFT, medium->store->bytes - pos),
		.epoch = medium->flushes - medium->flushes_before,
		.submit_order = order,
		.submit_ns = now_ns,
		.volatile_id = record->id,
	};

	sblk_journal_begin(medium->journal, medium->store, &op, sblk_journal_pages_room(count));
}

/* What the cut may change, in the journal: the pages of the cache's changes, as they are now … */
static void journal_cut_begin(struct sblk_medium *medium, u64 order, u64 now_ns)
{
	struct sblk_record *record;

	list_for_each_entry(record, &medium->cache->records, list) {
		const struct sblk_change *change = &record->change;
		u32 first = 0;
		u32 i;

		for (i = 1; i <= change->nr_pages; i++) {
			if (i < change->nr_pages && change->pages[i].index == change->pages[i - 1].index + 1)
				continue;
			journal_cut_run(medium, record, first, i - first, order, now_ns);
			first = i;
			cond_resched();
		}
	}
}

/* … and as they are after it. */
static void journal_cut_end(struct sblk_medium *medium, u64 offset, u64 order, u64 now_ns)
{
	struct sblk_journal *journal = medium->journal;

	while (offset < journal->head) {
		struct sampleblk_journal_entry *entry = (void *)journal->header + offset;

		sblk_journal_end(journal, medium->store, offset);
		entry->complete_order = order;
		entry->complete_ns = now_ns;
		offset += entry->bytes;
		cond_resched();
	}
	sblk_journal_publish(journal);
}

void sblk_medium_cut(struct sblk_medium *medium, struct sblk_cut *cut, u64 now_ns)
{
	u64 durable = medium->durable;
	u64 order, head;

	cut->dropped = 0;
	cut->survived = 0;
	cut->torn = 0;
	if (!medium->cache)
		return;
	/* Without power nobody appends to the journal or the cache, so neither lock is needed. */
	sblk_cache_trim(medium->cache, durable);
	order = draw_order(medium);
	if (!journaling(medium)) {
		sblk_cache_cut(medium->cache, medium->store, cut, durable);
		return;
	}
	head = medium->journal->head;
	journal_cut_begin(medium, order, now_ns);
	sblk_cache_cut(medium->cache, medium->store, cut, durable);
	journal_cut_end(medium, head, order, now_ns);
}

/* --- with no command on its way */

void sblk_medium_attach(struct sblk_medium *medium, struct sblk_journal *journal)
{
	medium->journal = journal;
	medium->flushes_before = medium->flushes;
	/* With none on its way, those that failed are of no interest any more. */
	medium->flushed = medium->flushes;
}

int sblk_medium_push(struct sblk_medium *medium, struct sblk_store *top)
{
	int err = 0;

	if (medium->cache) {
		sblk_cache_trim(medium->cache, medium->durable);
		err = sblk_cache_settle(medium->cache, medium->store);
		if (!err)
			err = sblk_cache_copy_up(medium->cache, medium->store, top);
	}
	if (!err)
		medium->store = top;
	return err;
}

struct sblk_store *sblk_medium_replace(struct sblk_medium *medium, struct sblk_store *store)
{
	struct sblk_store *old = medium->store;

	if (medium->cache)
		sblk_cache_forget(medium->cache);
	medium->store = store;
	return old;
}

int sblk_medium_resize(struct sblk_medium *medium, u64 bytes)
{
	bool shrinks = bytes < medium->store->bytes;
	int err = sblk_store_resize(medium->store, bytes);

	/* Changes know pages that may be gone. */
	if (!err && shrinks && medium->cache)
		sblk_cache_forget(medium->cache);
	return err;
}

void sblk_medium_merge(struct sblk_medium *medium)
{
	if (medium->cache) {
		sblk_cache_trim(medium->cache, medium->durable);
		/* It can be done at another time. */
		if (sblk_cache_settle(medium->cache, medium->store))
			return;
	}
	sblk_store_merge(medium->store);
}

/* --- from outside of commands */

u64 sblk_medium_mark(struct sblk_medium *medium, const char *text, u32 length, u64 now_ns, u64 *overflow)
{
	u64 sequence = 0;
	u64 order;

	*overflow = 0;
	spin_lock(&medium->lock);
	order = draw_order(medium);
	if (!sblk_journal_in_past(medium->journal)) {
		sequence = sblk_journal_mark(medium->journal, text, length, order,
					     READ_ONCE(medium->flushes) - medium->flushes_before, now_ns);
		if (!sequence)
			*overflow = medium->journal->next_sequence - 1;
	}
	spin_unlock(&medium->lock);
	return sequence;
}

static void list_record(struct sblk_volatile_copy *copy, const struct sblk_record *record, u64 durable)
{
	u64 completed = READ_ONCE(record->completed);
	bool in_flight = !completed || completed > copy->order;
	u32 flags = 0;

	if (in_flight)
		flags |= SAMPLEBLK_VOLATILE_IN_FLIGHT;
	else if (sblk_record_is_durable(record, durable))
		flags |= SAMPLEBLK_VOLATILE_DURABLE;
	if (record->change.zeroes)
		flags |= SAMPLEBLK_VOLATILE_ZEROES;
	if (copy->nr < copy->room)
		copy->list[copy->nr] = (struct sampleblk_volatile){
			.id = record->id,
			.sector = record->change.pos >> 9,
			.sectors = record->change.len >> 9,
			.flags = flags,
		};
	copy->nr++;
}

void sblk_medium_list(struct sblk_medium *medium, struct sblk_volatile_copy *copy)
{
	struct sblk_record *record;
	unsigned long irq;
	u64 durable;

	spin_lock(&medium->lock);
	spin_lock_irqsave(&medium->order_lock, irq);
	copy->order = medium->order;
	durable = medium->durable;
	spin_unlock_irqrestore(&medium->order_lock, irq);
	copy->nr = 0;
	copy->written_back = 0;
	if (medium->cache) {
		sblk_cache_trim(medium->cache, durable);
		list_for_each_entry(record, &medium->cache->records, list)
			list_record(copy, record, durable);
		copy->written_back = medium->cache->written_back;
	}
	spin_unlock(&medium->lock);
}
