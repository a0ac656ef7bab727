// SPDX-License-Identifier: GPL-2.0-only
#include "block/command.h"

#include "block/integrity.h"
#include "block/trace.h"
#include "block/zoned.h"
#include "compat.h"
#include "core/random.h"

/* --- data */

/* Reads the first `len` bytes. */
static void io_read(struct sblk_store *store, const struct sblk_io *io, u64 len)
{
	u64 pos = io->pos;
	u64 end = pos + len;
	struct bio *bio;

	for (bio = io->bio; bio && pos < end; bio = bio->bi_next) {
		struct bvec_iter iter;
		struct bio_vec bvec;

		bio_for_each_segment(bvec, bio, iter) {
			size_t part = min_t(u64, bvec.bv_len, end - pos);
			void *to = sblk_bvec_map(&bvec);

			sblk_store_read(store, pos, to, part);
			flush_dcache_page(bvec.bv_page);
			sblk_bvec_unmap(to);
			pos += part;
			if (unlikely(pos == end))
				break;
		}
	}
}

/*
 * Calls `write(arg, data, len)` for the first `len` bytes that are to be written, until it fails. Inlined, as `write` is
 * a constant to each caller and an indirect call for each page is expensive with retpolines.
 */
static __always_inline int for_each_data(const struct sblk_io *io, u64 len,
					 int (*write)(void *arg, const void *data, size_t len), void *arg)
{
	struct bio *bio;
	int err = 0;

	for (bio = io->bio; bio && len && !err; bio = bio->bi_next) {
		struct bvec_iter iter;
		struct bio_vec bvec;

		bio_for_each_segment(bvec, bio, iter) {
			size_t part = min_t(u64, bvec.bv_len, len);
			void *from = sblk_bvec_map(&bvec);

			err = write(arg, from, part);
			sblk_bvec_unmap(from);
			len -= part;
			if (err || !len)
				break;
		}
	}
	return err;
}

static int writer_write(void *writer, const void *data, size_t len)
{
	return sblk_writer_write(writer, data, len);
}

static int io_write(struct sblk_store *store, const struct sblk_io *io, u64 pos, u64 len, gfp_t gfp)
{
	struct sblk_writer writer;
	int err;

	sblk_writer_begin(&writer, store, pos, len, gfp);
	err = for_each_data(io, len, writer_write, &writer);
	sblk_writer_end(&writer);
	return err;
}

/*
 * Whether no part of a write may be there without the rest, should memory run out, for good or until after a power cut: that
 * of an atomic one, or of a logical block.
 */
static bool is_whole_or_nothing(const struct sblk_device *dev, const struct sblk_io *io)
{
	return unlikely(io->atomic || dev->config.logical_block_bytes > PAGE_SIZE);
}

static int io_change(struct sblk_device *dev, const struct sblk_io *io, u64 pos, u64 len, gfp_t gfp)
{
	struct sblk_store *store = dev->medium.store;

	switch (io->op) {
	case SBLK_WRITE:
		if (is_whole_or_nothing(dev, io) && sblk_store_reserve(store, pos, len, gfp))
			return -ENOMEM;
		return io_write(store, io, pos, len, gfp);
	case SBLK_DISCARD:
	case SBLK_WRITE_ZEROES:
		return io->nounmap ? sblk_store_zero(store, pos, len, gfp) : sblk_store_discard(store, pos, len, gfp);
	default:
		return 0;
	}
}

/*
 * Narrows a discard to the granules that it names whole, where the device has any: it is a hint, and a device that keeps
 * account of larger pieces ignores the rest of it. False for nothing. Leaves other operations alone.
 */
static bool keep_whole_granules(const struct sblk_device *dev, enum sblk_op op, u64 *pos, u64 *len)
{
	u64 granule = dev->config.discard_granularity_bytes; /* a power of two */
	u64 first = dev->config.discard_alignment_bytes;
	u64 from = max(*pos, first), to = *pos + *len;

	if (op != SBLK_DISCARD || !granule)
		return true;
	if (to < first)
		return false;
	from = first + round_up(from - first, granule);
	to = first + round_down(to - first, granule);
	if (from >= to)
		return false;
	*pos = from;
	*len = to - from;
	return true;
}

/*
 * As sd asks again: the block layer looks at the end before a bio waits, for its cgroup's turn or until the queue is thawed,
 * and the device may have shrunk since. A flush of a request has no position.
 */
static bool is_beyond_end(const struct sblk_device *dev, const struct sblk_io *io)
{
	return io->len && io->pos + io->len > READ_ONCE(dev->config.capacity_bytes);
}

blk_status_t sblk_io_plain(struct sblk_device *dev, const struct sblk_io *io)
{
	if (unlikely(io->op >= SBLK_OPS))
		return BLK_STS_NOTSUPP;
	if (unlikely(is_beyond_end(dev, io)))
		return BLK_STS_IOERR;
	if (io->op == SBLK_READ) {
		io_read(dev->medium.store, io, io->len);
	} else {
		u64 pos = io->pos, len = io->len;

		if (unlikely(!keep_whole_granules(dev, io->op, &pos, &len)))
			return BLK_STS_OK;
		if (unlikely(io_change(dev, io, pos, len, SBLK_GFP_ATOMIC)))
			return BLK_STS_RESOURCE;
	}
	return BLK_STS_OK;
}

/* Changes the bytes that a fault corrupts, of `len` from `pos` on, through `change(arg, offset, mask, value)`. */
static void corrupt(const struct sblk_fault *fault, u64 len,
		    void (*change)(void *arg, u64 offset, u8 keep, u8 flip), void *arg)
{
	u64 count = max_t(u64, fault->arg0, 1);
	u64 bit;

	if (!len)
		return;
	if (fault->action == SAMPLEBLK_FAULT_SET_BYTE && fault->arg0 < len)
		change(arg, fault->arg0, 0, fault->arg1);
	if (fault->action != SAMPLEBLK_FAULT_CORRUPT)
		return;
	/* Each in a part of its own: a bit that is flipped twice would be as it was. */
	for (bit = 0; bit < count; bit++) {
		u64 from = div_u64(len * bit, count), to = div_u64(len * (bit + 1), count);

		change(arg, from + mul_u64_u64_shr(sblk_random(fault->random, bit), to - from, 64), 0xff,
		       1U << (fault->random >> 32 & 7));
	}
}

static void corrupt_bio(void *arg, u64 offset, u8 keep, u8 flip)
{
	struct bio *bio;

	for (bio = arg; bio; bio = bio->bi_next) {
		struct bvec_iter iter;
		struct bio_vec bvec;

		bio_for_each_segment(bvec, bio, iter) {
			if (offset < bvec.bv_len) {
				u8 *data = sblk_bvec_map(&bvec);

				data[offset] = (data[offset] & keep) ^ flip;
				sblk_bvec_unmap(data);
			}
			/* Wraps for all that follow: no other segment is hit. */
			offset -= bvec.bv_len;
		}
	}
}

struct written {
	struct sblk_store *store;
	u64 pos;
};

static void corrupt_written(void *arg, u64 offset, u8 keep, u8 flip)
{
	const struct written *written = arg;
	u8 value;

	sblk_store_read(written->store, written->pos + offset, &value, 1);
	value = (value & keep) ^ flip;
	/* The page is there: it was written. */
	sblk_store_write(written->store, written->pos + offset, &value, 1, SBLK_GFP_ATOMIC);
}

static void corrupt_change(void *change, u64 offset, u8 keep, u8 flip)
{
	u8 *byte = sblk_change_byte(change, offset);

	*byte = (*byte & keep) ^ flip;
}

/* --- execution */

struct fill {
	struct sblk_change *change;
	u64 offset;
};

static int change_fill(void *arg, const void *data, size_t len)
{
	struct fill *fill = arg;

	sblk_change_fill(fill->change, fill->offset, data, len);
	fill->offset += len;
	return 0;
}

/* Executes the rest of a change, or a flush, with the log. */
static int change_logged(struct sblk_cmd *cmd, u64 pos, u64 len, gfp_t gfp)
{
	struct sblk_device *dev = cmd->queue->dev;
	struct sblk_medium *medium = &dev->medium;
	u32 flags = cmd->io.fua && cmd->fault.action != SAMPLEBLK_FAULT_NOT_DURABLE ? SBLK_RECORD_FUA : 0;

	if (cmd->io.atomic)
		flags |= SBLK_RECORD_ATOMIC;
	do {
		struct sblk_record *record = sblk_medium_record(medium, cmd->io.op, pos + cmd->done, len - cmd->done,
								cmd->io.nounmap, flags, gfp);
		u64 part, overflow;
		int err;

		if (!record)
			return -ENOMEM;
		part = record->change.len;
		if (cmd->io.op == SBLK_WRITE) {
			struct fill fill = { .change = &record->change };

			for_each_data(&cmd->io, len, change_fill, &fill);
			corrupt(&cmd->fault, len, corrupt_change, &record->change);
		}
		err = sblk_medium_change(medium, &cmd->ticket, record, cmd->io.op, &overflow);
		if (err == -EAGAIN)
			continue;
		if (err)
			return err;
		if (unlikely(overflow))
			trace_sampleblk_journal_overflow(dev, overflow);
		cmd->done += part;
	} while (cmd->done < len);
	return 0;
}

bool sblk_cmd_has_power(const struct sblk_cmd *cmd)
{
	const struct sblk_medium *medium = &cmd->queue->dev->medium;

	return !READ_ONCE(medium->off) && READ_ONCE(medium->power_epoch) == cmd->ticket.power_epoch;
}

static int change_store(struct sblk_cmd *cmd, u64 pos, u64 len, gfp_t gfp)
{
	struct sblk_device *dev = cmd->queue->dev;
	struct sblk_store *store = dev->medium.store;
	bool keeps = sblk_has_integrity(dev) && cmd->io.op == SBLK_WRITE;
	int err = 0;

	if (keeps && !sblk_integrity_admits(dev, &cmd->io))
		return -EILSEQ;
	/* What can fail for want of memory comes before what makes the data another. */
	if (keeps)
		err = sblk_store_reserve(store, pos, len, gfp) ?:
			      sblk_integrity_reserve(&dev->integrity, store, pos, len, gfp);
	else if (sblk_has_integrity(dev))
		err = sblk_integrity_forget(&dev->integrity, store, pos, len, gfp);
	if (!err)
		err = keeps ? sblk_integrity_store(dev, &cmd->io, pos, len, &cmd->fault, gfp) :
			      io_change(dev, &cmd->io, pos, len, gfp);
	if (!err)
		corrupt(&cmd->fault, len, corrupt_written, &(struct written){ store, pos });
	return err;
}

/* What of a command is executed under its fault, if one acts on it; false for nothing. */
static bool faulty_range(const struct sblk_cmd *cmd, u64 *pos, u64 *len)
{
	u64 capacity = READ_ONCE(cmd->queue->dev->config.capacity_bytes);
	u64 arg0 = cmd->fault.arg0;

	*pos = cmd->io.pos;
	*len = cmd->io.len;
	switch (cmd->fault.action) {
	case SAMPLEBLK_FAULT_ERROR:
	case SAMPLEBLK_FAULT_LOST_WRITE:
		return false;
	case SAMPLEBLK_FAULT_TORN_WRITE:
	case SAMPLEBLK_FAULT_BAD_SECTOR:
		*len = min_t(u64, *len, min_t(u64, arg0, U64_MAX >> SECTOR_SHIFT) << SECTOR_SHIFT);
		return *len;
	case SAMPLEBLK_FAULT_MISDIRECTED_WRITE:
		*pos = arg0 << SECTOR_SHIFT;
		/* The device may have shrunk since the rule was checked. */
		if (*pos >= capacity)
			return false;
		*len = min_t(u64, *len, capacity - *pos);
		return true;
	}
	return true;
}

/* The status that a command is answered with whatever comes of its execution. */
static blk_status_t faulty_status(const struct sblk_cmd *cmd)
{
	if (cmd->fault.action == SAMPLEBLK_FAULT_ERROR)
		return errno_to_blk_status(-(int)cmd->fault.arg0);
	if (cmd->fault.action == SAMPLEBLK_FAULT_TORN_WRITE && cmd->fault.arg1)
		return errno_to_blk_status(-(int)cmd->fault.arg1);
	if (cmd->fault.action == SAMPLEBLK_FAULT_BAD_SECTOR)
		return BLK_STS_MEDIUM;
	return BLK_STS_OK;
}

static void cmd_read(struct sblk_cmd *cmd, u64 len)
{
	struct sblk_device *dev = cmd->queue->dev;
	/* Behind the write pointer there is nothing, whatever a misdirected or late write left there. */
	u64 readable = dev->zones ? sblk_zones_readable(dev->zones, cmd->io.pos, len) : len;
	struct bio *bio;

	for (bio = readable < len ? cmd->io.bio : NULL; bio; bio = bio->bi_next)
		zero_fill_bio(bio);
	io_read(dev->medium.store, &cmd->io, readable);
	if (sblk_has_integrity(dev))
		sblk_integrity_return(dev, &cmd->io, &cmd->fault);
	corrupt(&cmd->fault, len, corrupt_bio, cmd->io.bio);
}

static int do_unlogged(struct sblk_cmd *cmd, u64 pos, u64 len, gfp_t gfp)
{
	if (!sblk_cmd_has_power(cmd))
		return -EIO;
	if (cmd->io.op != SBLK_READ)
		return change_store(cmd, pos, len, gfp);
	cmd_read(cmd, len);
	return 0;
}

/* 0, -ENOMEM, -EIO or -EILSEQ. A power cut waits for whoever is in here. */
static int cmd_do(struct sblk_cmd *cmd, gfp_t gfp)
{
	struct sblk_device *dev = cmd->queue->dev;
	u64 pos, len;

	if (trace_sampleblk_start_enabled())
		trace_sampleblk_start(cmd, gfpflags_allow_blocking(gfp) ? ktime_get_ns() - cmd->start_ns : 0);
	if (!faulty_range(cmd, &pos, &len) || !keep_whole_granules(dev, cmd->io.op, &pos, &len))
		return 0;
	if (cmd->io.op != SBLK_READ && sblk_medium_logs(&dev->medium))
		return change_logged(cmd, pos, len, gfp);
	return do_unlogged(cmd, pos, len, gfp);
}

/* What a command is answered with that ended so. */
static blk_status_t status_after(const struct sblk_cmd *cmd, int err)
{
	if (err)
		return err == -ENOMEM ? BLK_STS_NOSPC : errno_to_blk_status(err);
	return faulty_status(cmd);
}

/* --- the answer */

blk_status_t sblk_cmd_account(struct sblk_cmd *cmd, blk_status_t status)
{
	struct sblk_queue *queue = cmd->queue;
	struct sblk_device *dev = queue->dev;
	enum sblk_op op = cmd->io.op;
	struct sblk_flushed flushed;
	u64 now = ktime_get_ns();

	if (!sblk_medium_complete(&dev->medium, &cmd->ticket, status, now, &flushed))
		status = BLK_STS_IOERR;
	else if (cmd->ticket.flush && !cmd->ticket.no_promise && !status)
		trace_sampleblk_flush(dev, flushed.writes, flushed.epoch);
	if (likely(op < SBLK_OPS))
		sblk_stats_count(queue->stats, op, cmd->io.len, cmd->io.fua);
	if (unlikely(status))
		this_cpu_inc(queue->stats->errors);
	if (test_bit(SBLK_SLOW_HISTOGRAMS, &dev->slow_path) && op < SBLK_OPS) {
		struct sblk_histograms __percpu *histograms = READ_ONCE(queue->histograms);

		if (histograms)
			sblk_histograms_count(histograms, op, now - cmd->start_ns);
	}
	if (trace_sampleblk_complete_enabled())
		trace_sampleblk_complete(cmd, blk_status_to_errno(status), now - cmd->start_ns);
	return status;
}

void sblk_cmd_end(struct sblk_cmd *cmd, blk_status_t status)
{
	cmd->end(cmd, sblk_cmd_account(cmd, status));
}

/* --- waiting */

static enum hrtimer_restart cmd_timer(struct hrtimer *timer)
{
	struct sblk_cmd *cmd = container_of(timer, struct sblk_cmd, timer);

	if (sblk_cmd_stop_waiting(cmd, BIT(SBLK_WAIT_TIMER)))
		sblk_cmd_end(cmd, cmd->status);
	return HRTIMER_NORESTART;
}

void sblk_cmd_init(struct sblk_cmd *cmd, void (*end)(struct sblk_cmd *cmd, blk_status_t status))
{
	cmd->end = end;
	cmd->waiting = SBLK_NOT_WAITING;
	sblk_hrtimer_setup(&cmd->timer, cmd_timer, HRTIMER_MODE_REL);
}

bool sblk_cmd_stop_waiting(struct sblk_cmd *cmd, unsigned int ways)
{
	struct sblk_queue *queue = cmd->queue;
	unsigned long irq;
	bool waited;

	spin_lock_irqsave(&queue->lock, irq);
	waited = cmd->waiting != SBLK_NOT_WAITING && ways & BIT(cmd->waiting);
	if (waited) {
		cmd->waiting = SBLK_NOT_WAITING;
		list_del(&cmd->list);
	}
	spin_unlock_irqrestore(&queue->lock, irq);
	return waited;
}

static const char *op_name(enum sblk_op op)
{
	static const struct {
		enum sblk_op op;
		const char *name;
	} names[] = { SBLK_OP_NAMES };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (names[i].op == op)
			return names[i].name;
	return "unsupported";
}

ssize_t sblk_cmd_show_waiting(struct sblk_device *dev, char *buf)
{
	static const char *const ways[] = {
		[SBLK_WAIT_HUNG] = "hung",
		[SBLK_WAIT_HELD] = "held",
		[SBLK_WAIT_TIMER] = "delayed",
		[SBLK_WAIT_POLL] = "polled",
	};
	const int line = 128; /* none is longer */
	u64 now = ktime_get_ns();
	unsigned int i;
	int len = 0;

	for (i = 0; i < dev->nr_queues; i++) {
		struct sblk_queue *queue = &dev->queues[i];
		struct sblk_cmd *cmd;

		spin_lock_irq(&queue->lock);
		list_for_each_entry(cmd, &queue->waiting, list) {
			if (len > (int)PAGE_SIZE - line)
				break;
			/* A flush has no position. */
			len += sysfs_emit_at(buf, len, "queue %u tag %d: %s %llu+%llu, %s for %llu ms\n", queue->index,
					     cmd->rq ? cmd->rq->tag : -1, op_name(cmd->io.op),
					     cmd->io.len ? cmd->io.pos >> SECTOR_SHIFT : 0,
					     cmd->io.len >> SECTOR_SHIFT, ways[cmd->waiting],
					     div_u64(max(now, cmd->start_ns) - cmd->start_ns, NSEC_PER_MSEC));
		}
		spin_unlock_irq(&queue->lock);
	}
	return len;
}

void sblk_cmd_polled(struct sblk_queue *queue, struct list_head *list)
{
	struct sblk_cmd *cmd, *next;
	unsigned long irq;
	u64 now = 0;

	spin_lock_irqsave(&queue->lock, irq);
	list_for_each_entry_safe(cmd, next, &queue->waiting, list) {
		if (cmd->waiting != SBLK_WAIT_POLL)
			continue;
		if (cmd->due_ns && !now)
			now = ktime_get_ns();
		if (cmd->due_ns > now)
			continue;
		cmd->waiting = SBLK_NOT_WAITING;
		list_move_tail(&cmd->list, list);
	}
	spin_unlock_irqrestore(&queue->lock, irq);
}

void sblk_cmd_end_polled(struct sblk_device *dev)
{
	unsigned int i;

	for (i = 0; i < dev->nr_queues; i++) {
		struct sblk_cmd *cmd, *next;
		LIST_HEAD(list);

		sblk_cmd_polled(&dev->queues[i], &list);
		list_for_each_entry_safe(cmd, next, &list, list) {
			list_del(&cmd->list);
			sblk_cmd_end(cmd, cmd->status);
		}
	}
}

/* Moves those that wait in one of the ways to `list`; whoever comes to wait later is not among them. */
static void take_waiting(struct sblk_queue *queue, unsigned int ways, u64 generation, struct list_head *list)
{
	struct sblk_cmd *cmd, *next;

	spin_lock_irq(&queue->lock);
	list_for_each_entry_safe(cmd, next, &queue->waiting, list) {
		if (!(ways & BIT(cmd->waiting)))
			continue;
		if (BIT(cmd->waiting) & (BIT(SBLK_WAIT_HUNG) | BIT(SBLK_WAIT_HELD)) &&
		    cmd->fault.generation >= generation)
			continue;
		cmd->waiting = SBLK_NOT_WAITING;
		list_move_tail(&cmd->list, list);
	}
	spin_unlock_irq(&queue->lock);
}

void sblk_cmd_release(struct sblk_device *dev, unsigned int ways, blk_status_t status, u64 generation)
{
	unsigned int i;

	for (i = 0; i < dev->nr_queues; i++) {
		struct sblk_cmd *cmd, *next;
		LIST_HEAD(list);

		take_waiting(&dev->queues[i], ways, generation, &list);
		list_for_each_entry_safe(cmd, next, &list, list) {
			list_del(&cmd->list);
			/* It may be running, and then finds nothing to do. */
			hrtimer_cancel(&cmd->timer);
			sblk_cmd_end(cmd, status ? status : cmd->status);
		}
	}
}

/*
 * False when the command must not wait: whoever ends those that do sets what is asked here first and then takes the lock,
 * so that none is overlooked.
 */
static bool cmd_wait(struct sblk_cmd *cmd, enum sblk_wait way, u64 delay_ns, enum hrtimer_mode mode)
{
	struct sblk_queue *queue = cmd->queue;
	struct sblk_device *dev = queue->dev;
	unsigned long irq;
	bool waits;

	spin_lock_irqsave(&queue->lock, irq);
	waits = !READ_ONCE(dev->closing) && sblk_cmd_has_power(cmd);
	if (way == SBLK_WAIT_HUNG || way == SBLK_WAIT_HELD)
		waits = waits && !READ_ONCE(dev->draining) &&
			cmd->fault.generation == READ_ONCE(dev->faults_generation);
	if (waits) {
		cmd->waiting = way;
		list_add_tail(&cmd->list, &queue->waiting);
		if (way == SBLK_WAIT_TIMER)
			hrtimer_start(&cmd->timer, ns_to_ktime(delay_ns), mode);
	}
	spin_unlock_irqrestore(&queue->lock, irq);
	return waits;
}

/* When the command is to be answered, in ns from now. */
static u64 cmd_delay(struct sblk_cmd *cmd)
{
	struct sblk_device *dev = cmd->queue->dev;
	struct sblk_throttle *throttle;
	struct sblk_latency *latency;
	u64 due = cmd->start_ns;
	u64 now;

	if (READ_ONCE(dev->draining))
		return 0;
	rcu_read_lock();
	throttle = rcu_dereference(dev->throttle);
	latency = cmd->io.op < SBLK_OPS ? rcu_dereference(dev->latency[cmd->io.op]) : NULL;
	if (throttle) {
		u64 bytes = cmd->io.op == SBLK_READ || cmd->io.op == SBLK_WRITE ? cmd->io.len : 0;

		/* First, in the order of arrival: behind its latency a slow command would keep its place from faster ones. */
		due = sblk_throttle_pass(throttle, due, bytes);
	}
	if (latency)
		due += sblk_latency_draw(latency);
	if (cmd->fault.action == SAMPLEBLK_FAULT_DELAY)
		due += cmd->fault.arg0;
	/* Last: nothing at all is answered in a stall. */
	if (throttle)
		due = sblk_throttle_stall(throttle, due);
	rcu_read_unlock();
	if (due == cmd->start_ns)
		return 0;
	now = ktime_get_ns();
	return due > now ? due - now : 0;
}

static bool cmd_is_polled(const struct sblk_cmd *cmd)
{
	return cmd->rq && cmd->rq->mq_hctx->type == HCTX_TYPE_POLL;
}

static void cmd_complete(struct sblk_cmd *cmd, blk_status_t status)
{
	struct sblk_device *dev = cmd->queue->dev;
	u32 completion = READ_ONCE(dev->config.completion);
	enum hrtimer_mode mode = HRTIMER_MODE_REL;
	u64 delay = cmd_delay(cmd);
	bool waits;

	cmd->status = status;
	if (cmd->fault.action == SAMPLEBLK_FAULT_HOLD && cmd_wait(cmd, SBLK_WAIT_HELD, 0, mode))
		return;
	if (delay) {
		this_cpu_inc(cmd->queue->stats->delayed);
		trace_sampleblk_delay(cmd, delay);
	}
	if (cmd_is_polled(cmd)) {
		cmd->due_ns = delay ? ktime_get_ns() + delay : 0;
		waits = cmd_wait(cmd, SBLK_WAIT_POLL, 0, mode);
	} else if (!delay && completion == SAMPLEBLK_COMPLETE_INLINE) {
		waits = false;
	} else if (!delay && completion == SAMPLEBLK_COMPLETE_SOFTIRQ && cmd->rq) {
		blk_mq_complete_request(cmd->rq);
		return;
	} else {
		/* A softirq of its own is what a bio has instead of blk_mq_complete_request(). */
		if (!delay && completion == SAMPLEBLK_COMPLETE_SOFTIRQ)
			mode = HRTIMER_MODE_REL_SOFT;
		sblk_hrtimer_setup(&cmd->timer, cmd_timer, mode);
		waits = cmd_wait(cmd, SBLK_WAIT_TIMER, delay, mode);
	}
	if (!waits)
		sblk_cmd_end(cmd, READ_ONCE(dev->closing) ? BLK_STS_IOERR : status);
}

/* --- the way of a command */

static void cmd_defer(struct sblk_cmd *cmd)
{
	struct sblk_device *dev = cmd->queue->dev;

	llist_add(&cmd->deferred, &dev->deferred);
	queue_work(sblk_wq, &dev->deferred_work);
}

/* Sets cmd->fault to what acts on it. */
static void cmd_match(struct sblk_cmd *cmd, struct sblk_faults *faults)
{
	struct sblk_fault_request request = {
		.op = cmd->io.op,
		.sector = cmd->io.pos >> SECTOR_SHIFT,
		.sectors = cmd->io.len >> SECTOR_SHIFT,
		.now_ns = cmd->start_ns,
	};

	cmd->matched = true;
	if (!sblk_fault_match(faults, &request, &cmd->fault))
		return;
	this_cpu_inc(cmd->queue->stats->faults);
	trace_sampleblk_fault(cmd, cmd->fault.action);
	cmd->ticket.no_promise = cmd->fault.action == SAMPLEBLK_FAULT_NOT_DURABLE;
}

/*
 * Lets a command in, with the rule that acts on it. False when it hangs, which it does within the grace period that the
 * removal of its rule waits for, or is to end with `status`.
 */
static bool cmd_admit(struct sblk_cmd *cmd, blk_status_t *status)
{
	struct sblk_device *dev = cmd->queue->dev;
	struct sblk_faults *faults;
	bool hangs = false;

	*status = BLK_STS_OK;
	rcu_read_lock();
	faults = test_bit(SBLK_SLOW_FAULTS, &dev->slow_path) ? rcu_dereference(dev->faults) : NULL;
	if (dev->zones && cmd->io.op == SBLK_WRITE)
		*status = sblk_zoned_admit(cmd);
	if (!*status && faults && !cmd->matched)
		cmd_match(cmd, faults);
	if (!*status && cmd->fault.action == SAMPLEBLK_FAULT_HANG) {
		hangs = cmd_wait(cmd, SBLK_WAIT_HUNG, 0, HRTIMER_MODE_REL);
		*status = hangs ? BLK_STS_OK : BLK_STS_IOERR;
	}
	rcu_read_unlock();
	return !*status && !hangs;
}

/* Executes a command that has been let in; one for which there is no memory is executed again where that is waited for. */
static void cmd_execute(struct sblk_cmd *cmd)
{
	int err;

	rcu_read_lock();
	err = cmd_do(cmd, SBLK_GFP_ATOMIC);
	rcu_read_unlock();
	if (err == -ENOMEM) {
		this_cpu_inc(cmd->queue->stats->deferred);
		cmd_defer(cmd);
		return;
	}
	cmd_complete(cmd, status_after(cmd, err));
}

static void cmd_execute_later(struct sblk_cmd *cmd)
{
	struct sblk_device *dev = cmd->queue->dev;
	int err;

	mutex_lock(&dev->worker_lock);
	err = cmd_do(cmd, SBLK_GFP_WAIT);
	mutex_unlock(&dev->worker_lock);
	cmd_complete(cmd, status_after(cmd, err));
}

/* --- what takes turns on a zoned device */

static bool changes_zones(const struct sblk_cmd *cmd)
{
	return cmd->queue->dev->zones && (cmd->io.op == SBLK_WRITE || cmd->io.op >= SBLK_OPS);
}

struct turn {
	struct sblk_cmd *cmd;
	gfp_t gfp;
	bool hangs;
	bool ended; /* nothing is to be waited for: with `status` */
	blk_status_t status;
};

/* A write is let in and executed, and its zone goes on behind it. 0, or -ENOMEM, which may be tried again. */
static int turn_write(struct turn *turn)
{
	struct sblk_cmd *cmd = turn->cmd;
	u64 pos = cmd->io.pos;
	int err;

	if (!cmd_admit(cmd, &turn->status)) {
		turn->hangs = !turn->status;
		turn->ended = turn->status;
		return 0;
	}
	err = cmd_do(cmd, turn->gfp);
	if (!err)
		sblk_zoned_advance(cmd);
	turn->status = status_after(cmd, err);
	/* An append goes where there is room then. */
	if (err == -ENOMEM)
		cmd->io.pos = pos;
	return err == -ENOMEM ? err : 0;
}

static int turn_take(void *arg)
{
	struct turn *turn = arg;
	bool has_power = sblk_cmd_has_power(turn->cmd);

	if (has_power && turn->cmd->io.op == SBLK_WRITE)
		return turn_write(turn);
	/* What is done to zones goes under no rule, and with no delay. */
	turn->ended = true;
	turn->status = has_power ? sblk_zoned_manage(turn->cmd) : BLK_STS_IOERR;
	return 0;
}

static void turn_end(const struct turn *turn)
{
	if (turn->ended)
		sblk_cmd_end(turn->cmd, turn->status);
	else if (!turn->hangs)
		cmd_complete(turn->cmd, turn->status);
}

static void cmd_take_turn(struct sblk_cmd *cmd)
{
	struct sblk_zones *zones = cmd->queue->dev->zones;
	struct turn turn = { .cmd = cmd, .gfp = SBLK_GFP_ATOMIC };
	int err;

	rcu_read_lock();
	err = sblk_zones_change(zones, turn_take, &turn);
	rcu_read_unlock();
	if (err) {
		this_cpu_inc(cmd->queue->stats->deferred);
		cmd_defer(cmd);
		return;
	}
	turn_end(&turn);
}

static void cmd_take_turn_later(struct sblk_cmd *cmd)
{
	struct sblk_device *dev = cmd->queue->dev;
	struct turn turn = { .cmd = cmd, .gfp = SBLK_GFP_WAIT };

	mutex_lock(&dev->worker_lock);
	sblk_zones_change_in_line(dev->zones, turn_take, &turn);
	mutex_unlock(&dev->worker_lock);
	turn_end(&turn);
}

/* --- the ways in */

void sblk_cmd_run(struct sblk_cmd *cmd)
{
	struct sblk_device *dev = cmd->queue->dev;
	blk_status_t status;

	cmd->start_ns = ktime_get_ns();
	cmd->done = 0;
	cmd->matched = false;
	cmd->fault.action = SAMPLEBLK_FAULTS;
	trace_sampleblk_queue(cmd, 0);
	if (!sblk_medium_submit(&dev->medium, &cmd->ticket, cmd->io.op, cmd->start_ns) || READ_ONCE(dev->closing) ||
	    test_bit(SBLK_SLOW_REFUSE, &dev->slow_path) || is_beyond_end(dev, &cmd->io) ||
	    (test_bit(SBLK_SLOW_READ_ONLY, &dev->slow_path) && cmd->io.op != SBLK_READ && cmd->io.op != SBLK_FLUSH)) {
		sblk_cmd_end(cmd, BLK_STS_IOERR);
		return;
	}
	if (changes_zones(cmd)) {
		cmd_take_turn(cmd);
	} else if (cmd->io.op >= SBLK_OPS) {
		sblk_cmd_end(cmd, BLK_STS_NOTSUPP);
	} else if (!cmd_admit(cmd, &status)) {
		/* Or it hangs. */
		if (status)
			sblk_cmd_end(cmd, status);
	} else if (sblk_has_integrity(dev)) {
		/* The worker takes one after another, so that no reader gets a block with what was said of another. */
		cmd_defer(cmd);
	} else {
		cmd_execute(cmd);
	}
}

void sblk_cmd_run_later(struct sblk_cmd *cmd)
{
	cmd->start_ns = 0;
	cmd_defer(cmd);
}

void sblk_cmd_worker(struct work_struct *work)
{
	struct sblk_device *dev = container_of(work, struct sblk_device, deferred_work);
	struct llist_node *list = llist_reverse_order(llist_del_all(&dev->deferred));
	struct sblk_cmd *cmd, *next;

	llist_for_each_entry_safe(cmd, next, list, deferred) {
		if (!cmd->start_ns)
			sblk_cmd_run(cmd);
		else if (changes_zones(cmd))
			cmd_take_turn_later(cmd);
		else
			cmd_execute_later(cmd);
	}
}

void sblk_slow_path_on(struct sblk_device *dev, enum sblk_slow reason)
{
	if (!test_and_set_bit(reason, &dev->slow_path))
		synchronize_rcu_expedited();
}

void sblk_slow_path_off(struct sblk_device *dev, enum sblk_slow reason)
{
	clear_bit(reason, &dev->slow_path);
}
