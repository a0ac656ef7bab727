// SPDX-License-Identifier: GPL-2.0-only
/* The bio face: no tags, no queues, no merging; what can end at once ends in the submitting call. */
#include <linux/interrupt.h>
#include <linux/mempool.h>

#include "compat.h"
#include "sampleblk.h"
#include "trace.h"

/* Some for when there is no memory: a bio must get through, or memory could never be written out. */
#define SBLK_BIO_RESERVE 64

static struct kmem_cache *cmd_cache;
static mempool_t *cmd_pool;

int sblk_bio_init(void)
{
	cmd_cache = KMEM_CACHE(sblk_cmd, 0);
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

void sblk_bio_end(struct sblk_cmd *cmd, blk_status_t status)
{
	struct sblk_device *dev = cmd->queue->dev;
	struct bio *bio = cmd->io.bio;

	mempool_free(cmd, cmd_pool);
	bio->bi_status = status;
	bio_endio(bio);
	if (atomic_dec_and_test(&dev->bios))
		wake_up(&dev->bios_wait);
	sblk_device_put(dev);
}

static bool io_of(struct bio *bio, struct sblk_io *io)
{
	io->op = sblk_op_of(bio_op(bio));
	/* A flush is an empty write here. With data the block layer sends the flush alone first. */
	if (io->op == SBLK_WRITE && !bio->bi_iter.bi_size)
		io->op = SBLK_FLUSH;
	io->fua = bio->bi_opf & REQ_FUA;
	io->pos = (u64)bio->bi_iter.bi_sector << SECTOR_SHIFT;
	io->len = bio->bi_iter.bi_size;
	io->bio = bio;
	return io->op < SBLK_OPS;
}

static void submit_full(struct sblk_queue *queue, struct bio *bio, const struct sblk_io *io)
{
	bool nowait = bio->bi_opf & REQ_NOWAIT;
	struct sblk_cmd *cmd = mempool_alloc(cmd_pool, nowait ? SBLK_GFP_ATOMIC : GFP_NOIO);

	if (!cmd) {
		bio_wouldblock_error(bio);
		return;
	}
	memset(cmd, 0, sizeof(*cmd));
	sblk_cmd_init(cmd);
	cmd->queue = queue;
	cmd->io = *io;
	/* The disk may go before its last bio has ended. */
	kref_get(&queue->dev->kref);
	atomic_inc(&queue->dev->bios);
	sblk_cmd_run(cmd);
}

static void bio_submit(struct bio *bio)
{
	struct sblk_device *dev = sblk_bio_disk(bio)->private_data;
	struct sblk_queue *queue = &dev->queues[0];
	bool nowait = bio->bi_opf & REQ_NOWAIT;
	blk_status_t status;
	struct sblk_io io;

	if (bio->bi_opf & REQ_PREFLUSH && bio->bi_iter.bi_size && dev->config.flags & SAMPLEBLK_F_CACHE) {
		/* Both in one: what was written before must be durable before this is. */
		if (sblk_io_preflush(dev)) {
			bio_io_error(bio);
			return;
		}
		sblk_stats_count(queue->stats, SBLK_FLUSH, 0, false);
	}
	if (!io_of(bio, &io)) {
		bio->bi_status = BLK_STS_NOTSUPP;
		bio_endio(bio);
		return;
	}
	if ((static_branch_unlikely(&sblk_extras_key) && READ_ONCE(dev->extras)) || sblk_traced()) {
		submit_full(queue, bio, &io);
		return;
	}
	status = sblk_io_plain(dev, &io, nowait ? SBLK_GFP_ATOMIC : SBLK_GFP_WAIT);
	if (unlikely(status == BLK_STS_RESOURCE)) {
		bio_wouldblock_error(bio);
		return;
	}
	sblk_stats_count(queue->stats, io.op, io.len, io.fua);
	if (unlikely(status)) {
		this_cpu_inc(queue->stats->errors);
		bio->bi_status = status;
	}
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
