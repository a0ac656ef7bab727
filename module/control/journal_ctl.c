// SPDX-License-Identifier: GPL-2.0-only
#include "control/journal_ctl.h"

#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/vmalloc.h>

#include "block/command.h"
#include "block/freeze.h"
#include "block/integrity.h"
#include "block/trace.h"
#include "compat.h"
#include "control/replace.h"

#define SBLK_JOURNAL_MIN (64ULL << 10)
#define SBLK_JOURNAL_MAX (16ULL << 30)

static int journal_start(struct sblk_device *dev, u64 bytes)
{
	struct sblk_journal journal;
	struct sblk_freeze freeze;
	int err;

	/* Its seeks would have to take zones, or what is said of blocks, along. */
	if (dev->zones || sblk_has_integrity(dev))
		return -EOPNOTSUPP;
	if (dev->medium.journal)
		return -EBUSY;
	if (bytes < SBLK_JOURNAL_MIN || bytes > SBLK_JOURNAL_MAX || !PAGE_ALIGNED(bytes))
		return -EINVAL;
	err = sblk_journal_init(&journal, bytes);
	if (err)
		return err;
	journal.header->logical_block_bytes = dev->config.logical_block_bytes;
	sblk_slow_path_on(dev, SBLK_SLOW_LOG);
	err = sblk_freeze(dev, &freeze);
	if (err) {
		sblk_journal_destroy(&journal);
		sblk_slow_path_set(dev, SBLK_SLOW_LOG, sblk_medium_logs(&dev->medium));
		return err;
	}
	mutex_lock(&dev->map_lock);
	dev->journal = journal;
	sblk_medium_attach(&dev->medium, &dev->journal);
	mutex_unlock(&dev->map_lock);
	sblk_unfreeze(dev, &freeze);
	return 0;
}

static int journal_stop(struct sblk_device *dev)
{
	struct sblk_freeze freeze;
	int err;

	if (!dev->medium.journal)
		return -ENOENT;
	err = sblk_freeze(dev, &freeze);
	if (err)
		return err;
	mutex_lock(&dev->map_lock);
	dev->medium.journal = NULL;
	mutex_unlock(&dev->map_lock);
	/* The device stays as it is seen now. */
	sblk_store_put(dev->journal_store);
	dev->journal_store = NULL;
	sblk_medium_merge(&dev->medium);
	sblk_unfreeze(dev, &freeze);
	sblk_slow_path_set(dev, SBLK_SLOW_LOG, sblk_medium_logs(&dev->medium));
	/* Whoever has it mapped keeps the pages. */
	sblk_journal_destroy(&dev->journal);
	return 0;
}

static void journal_info(struct sblk_device *dev, struct sampleblk_journal *info)
{
	const struct sblk_journal *journal = &dev->journal;

	spin_lock(&dev->medium.lock);
	info->bytes = journal->bytes;
	info->used_bytes = journal->head;
	info->entries = journal->entries;
	info->overflow = journal->overflow;
	info->next_sequence = journal->next_sequence;
	info->position = journal->position;
	info->epoch = READ_ONCE(journal->epoch);
	spin_unlock(&dev->medium.lock);
}

int sblk_journal_control(struct sblk_device *dev, struct sampleblk_journal *journal)
{
	int err = 0;

	if (journal->action != SAMPLEBLK_JOURNAL_START && journal->bytes)
		return -EINVAL;
	if (journal->action == SAMPLEBLK_JOURNAL_START)
		err = journal_start(dev, journal->bytes);
	else if (journal->action == SAMPLEBLK_JOURNAL_STOP)
		err = journal_stop(dev);
	else if (journal->action != SAMPLEBLK_JOURNAL_INFO)
		err = -EINVAL;
	if (err)
		return err;
	/* What came in beside the question must not be taken for an answer. */
	*journal = (struct sampleblk_journal){ .index = journal->index, .action = journal->action };
	if (dev->medium.journal)
		journal_info(dev, journal);
	return 0;
}

int sblk_journal_do_mark(struct sblk_device *dev, struct sampleblk_mark *mark)
{
	u64 overflow;

	if (!mark->length || mark->length > SAMPLEBLK_MARK_BYTES)
		return -EINVAL;
	if (!dev->medium.journal)
		return -ENOENT;
	mark->sequence = sblk_medium_mark(&dev->medium, mark->text, mark->length, ktime_get_ns(), &overflow);
	if (overflow)
		trace_sampleblk_journal_overflow(dev, overflow);
	return mark->sequence ? 0 : -EOVERFLOW;
}

/* With the queue frozen: the store goes to `sequence`, and a layer for what is written there goes on top. */
static int seek_frozen(struct sblk_device *dev, u64 sequence, u64 *applied)
{
	struct sblk_store *store = dev->journal_store ? dev->journal_store : dev->medium.store;
	struct sblk_journal *journal = &dev->journal;
	u64 newest = journal->next_sequence - 1;
	struct sblk_store *top;
	int err;

	if (journal->overflow)
		return -EOVERFLOW;
	if (sequence > newest)
		return -EINVAL;
	/* To where it is: what is volatile stays so. */
	if (!dev->journal_store && sequence == newest) {
		*applied = 0;
		return 0;
	}
	/* What can fail for want of memory comes before what can not be taken back. */
	top = sblk_store_create(dev->config.capacity_bytes, store);
	if (!top)
		return -ENOMEM;
	if (dev->journal_store)
		sblk_store_put(sblk_medium_replace(&dev->medium, store));
	else
		sblk_medium_replace(&dev->medium, store);
	dev->journal_store = NULL;
	err = sblk_journal_seek(journal, store, sequence, applied, &dev->closing);
	if (journal->position == newest) {
		sblk_store_put(top);
	} else {
		/* Also after an error: what lies half way there must not be recorded on. */
		dev->journal_store = store;
		sblk_medium_replace(&dev->medium, top);
	}
	return err;
}

int sblk_journal_do_seek(struct sblk_device *dev, struct sampleblk_seek *seek)
{
	struct sblk_freeze freeze;
	u64 sequence;
	int err;

	if (seek->flags & ~SAMPLEBLK_SEEK_FORCE)
		return -EINVAL;
	if (!dev->medium.journal)
		return -ENOENT;
	err = sblk_replace_begin(dev, seek->flags & SAMPLEBLK_SEEK_FORCE, &freeze);
	if (err)
		return err;
	sequence = seek->sequence == SAMPLEBLK_SEEK_NEWEST ? dev->journal.next_sequence - 1 : seek->sequence;
	err = seek_frozen(dev, sequence, &seek->applied);
	sblk_replace_end(dev, &freeze);
	trace_sampleblk_snapshot(dev, SBLK_TRACE_SEEK, sequence);
	return err;
}

int sblk_journal_mmap(struct sblk_device *dev, struct vm_area_struct *vma, unsigned long page)
{
	unsigned int noio;
	int err = -ENOENT;

	if (vma->vm_flags & VM_WRITE)
		return -EACCES;
	mutex_lock(&dev->map_lock);
	/* The lock is also taken with the queue frozen: page tables must not wait for I/O that waits for whoever froze it. */
	noio = memalloc_noio_save();
	if (dev->medium.journal) {
		sblk_vm_read_only(vma);
		err = remap_vmalloc_range(vma, dev->journal.header, page);
	}
	memalloc_noio_restore(noio);
	mutex_unlock(&dev->map_lock);
	return err;
}
