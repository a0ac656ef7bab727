// SPDX-License-Identifier: GPL-2.0-only
/*
 * The bio face. What the block layer's flush machinery does for requests is done here: a bio that carries PREFLUSH is a
 * flush and then its data, one with FUA on a device that cannot do that is its data and then a flush. Each of these steps
 * is a command of its own to everything behind this file.
 */
#include "block/bio.h"

#include <linux/mempool.h>

#include "block/command.h"
#include "block/open.h"
#include "block/trace.h"
#include "compat.h"

/* Some for when there is no memory: a bio must get through, or memory could never be written out. */
#define SBLK_BIO_RESERVE 64

#define STEP_PREFLUSH BIT(0)
#define STEP_DATA BIT(1)
#define STEP_POSTFLUSH BIT(2)

struct sblk_bio_cmd {
	struct sblk_cmd cmd;
	struct bio *bio;
	unsigned long start; /* of bio_start_io_acct() */
	bool accounted;
	unsigned int steps; /* that are still to come */
};

static struct kmem_cache *cmd_cache;
static mempool_t *cmd_pool;

int sblk_bio_init(void)
{
	cmd_cache = KMEM_CACHE(sblk_bio_cmd, 0);
	if (!cmd_cache)
		return -ENOMEM;
	cmd_pool = mempool_create_slab_pool(SBLK_BIO_RESERVE, cmd_cache);
	if (!cmd_pool) {
		kmem_cache_destroy(cmd_cache);
		return -ENOMEM;
	}
	return 0;
}

void sblk_bio_exit(void)
{
	mempool_destroy(cmd_pool);
	kmem_cache_destroy(cmd_cache);
}

static void io_of_bio(struct bio *bio, struct sblk_io *io)
{
	io->op = sblk_op_of(bio_op(bio));
	io->fua = bio->bi_opf & REQ_FUA;
	io->atomic = bio->bi_opf & SBLK_REQ_ATOMIC;
	io->nounmap = bio->bi_opf & REQ_NOUNMAP;
	io->pos = (u64)bio->bi_iter.bi_sector << SECTOR_SHIFT;
	io->len = bio->bi_iter.bi_size;
	io->bio = bio;
}

/* Gets the command ready for its next step. */
static void next_step(struct sblk_bio_cmd *bio_cmd)
{
	struct sblk_cmd *cmd = &bio_cmd->cmd;

	io_of_bio(bio_cmd->bio, &cmd->io);
	if (bio_cmd->steps & STEP_PREFLUSH) {
		bio_cmd->steps &= ~STEP_PREFLUSH;
	} else if (bio_cmd->steps & STEP_DATA) {
		bio_cmd->steps &= ~STEP_DATA;
		/* What a later step takes care of. */
		if (bio_cmd->steps & STEP_POSTFLUSH)
			cmd->io.fua = false;
		return;
	} else {
		bio_cmd->steps &= ~STEP_POSTFLUSH;
	}
	cmd->io = (struct sblk_io){ .op = SBLK_FLUSH };
}

static void bio_cmd_end(struct sblk_cmd *cmd, blk_status_t status)
{
	struct sblk_bio_cmd *bio_cmd = container_of(cmd, struct sblk_bio_cmd, cmd);
	struct sblk_device *dev = cmd->queue->dev;
	struct bio *bio = bio_cmd->bio;

	if (!status && bio_cmd->steps) {
		next_step(bio_cmd);
		sblk_cmd_run_later(cmd);
		return;
	}
	if (bio_cmd->accounted)
		bio_end_io_acct(bio, bio_cmd->start);
	mempool_free(bio_cmd, cmd_pool);
	/* One who waits for the last bio frees the device a grace period after it. */
	rcu_read_lock();
	bio->bi_status = status;
	bio_endio(bio);
	if (atomic_dec_and_test(&dev->bios))
		wake_up(&dev->bios_wait);
	rcu_read_unlock();
}

static unsigned int steps_of(const struct sblk_device *dev, const struct bio *bio)
{
	unsigned int steps = 0;

	if (bio->bi_opf & REQ_PREFLUSH)
		steps |= STEP_PREFLUSH;
	if (bio->bi_iter.bi_size)
		steps |= STEP_DATA;
	if (bio->bi_iter.bi_size && bio->bi_opf & REQ_FUA && dev->config.flags & SAMPLEBLK_F_CACHE &&
	    !(dev->config.flags & SAMPLEBLK_F_FUA))
		steps |= STEP_POSTFLUSH;
	return steps;
}

static void submit_slow(struct sblk_queue *queue, struct bio *bio, bool accounted, unsigned long start)
{
	bool nowait = bio->bi_opf & REQ_NOWAIT;
	struct sblk_bio_cmd *bio_cmd = mempool_alloc(cmd_pool, nowait ? SBLK_GFP_ATOMIC : GFP_NOIO);

	if (!bio_cmd) {
		if (accounted)
			bio_end_io_acct(bio, start);
		bio_wouldblock_error(bio);
		return;
	}
	memset(bio_cmd, 0, sizeof(*bio_cmd));
	sblk_cmd_init(&bio_cmd->cmd, bio_cmd_end);
	bio_cmd->cmd.queue = queue;
	bio_cmd->bio = bio;
	bio_cmd->start = start;
	bio_cmd->accounted = accounted;
	bio_cmd->steps = steps_of(queue->dev, bio);
	atomic_inc(&queue->dev->bios);
	next_step(bio_cmd);
	sblk_cmd_run(&bio_cmd->cmd);
}

/* BLK_STS_RESOURCE: not on the plain path. */
static blk_status_t submit_plain(struct sblk_queue *queue, struct bio *bio)
{
	blk_status_t status = BLK_STS_RESOURCE;
	struct sblk_io io;

	if (bio->bi_opf & REQ_PREFLUSH || sblk_traced())
		return status;
	io_of_bio(bio, &io);
	rcu_read_lock();
	if (likely(!READ_ONCE(queue->dev->slow_path)))
		status = sblk_io_plain(queue->dev, &io);
	rcu_read_unlock();
	if (unlikely(status == BLK_STS_RESOURCE))
		return status;
	if (likely(io.op < SBLK_OPS))
		sblk_stats_count(queue->stats, io.op, io.len, io.fua);
	if (unlikely(status))
		this_cpu_inc(queue->stats->errors);
	return status;
}

static void bio_submit(struct bio *bio)
{
	struct gendisk *disk = sblk_bio_disk(bio);
	struct sblk_device *dev = disk->private_data;
	struct sblk_queue *queue = &dev->queues[0];
	unsigned long start = 0;
	blk_status_t status;
	bool accounted;

	bio = sblk_split_bio(bio);
	if (!bio)
		return;
	accounted = blk_queue_io_stat(disk->queue);
	if (accounted)
		start = bio_start_io_acct(bio);
	status = submit_plain(queue, bio);
	if (unlikely(status == BLK_STS_RESOURCE)) {
		submit_slow(queue, bio, accounted, start);
		return;
	}
	if (accounted)
		bio_end_io_acct(bio, start);
	bio->bi_status = status;
	bio_endio(bio);
}

SBLK_DEFINE_SUBMIT_BIO(sampleblk_submit_bio, bio_submit);
SBLK_DEFINE_OPEN(sampleblk_bio_open, sblk_open);
SBLK_DEFINE_RELEASE(sampleblk_bio_release, sblk_release);

const struct block_device_operations sblk_bio_fops = {
	.owner = THIS_MODULE,
	.submit_bio = sampleblk_submit_bio,
	.open = sampleblk_bio_open,
	.release = sampleblk_bio_release,
};
