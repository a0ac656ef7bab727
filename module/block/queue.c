// SPDX-License-Identifier: GPL-2.0-only
/* The multi-queue face: requests come in here and go out completed. */
#include "block/queue.h"

#include <linux/seq_file.h>

#include "block/command.h"
#include "block/open.h"
#include "block/trace.h"
#include "block/zoned.h"
#include "compat.h"

static inline void io_of_request(struct request *rq, struct sblk_io *io)
{
	io->op = sblk_op_of(req_op(rq));
	io->fua = rq->cmd_flags & REQ_FUA;
	io->atomic = rq->cmd_flags & SBLK_REQ_ATOMIC;
	io->nounmap = rq->cmd_flags & REQ_NOUNMAP;
	io->append = req_op(rq) == REQ_OP_ZONE_APPEND;
	io->pos = (u64)blk_rq_pos(rq) << SECTOR_SHIFT;
	io->len = blk_rq_bytes(rq);
	io->bio = rq->bio;
}

/* Nobody looks at the steps of a request. blk-mq calls all that leads here under rcu_read_lock(). */
static bool is_plain(struct sblk_device *dev, struct blk_mq_hw_ctx *hctx)
{
	return likely(!READ_ONCE(dev->slow_path)) && !sblk_traced() && likely(hctx->type != HCTX_TYPE_POLL);
}

static void run_slow(struct request *rq)
{
	struct sblk_cmd *cmd = blk_mq_rq_to_pdu(rq);

	io_of_request(rq, &cmd->io);
	if (cmd->io.op == SBLK_FLUSH) {
		/* It has no position: blk_rq_pos() is -1. */
		cmd->io.pos = 0;
		cmd->io.len = 0;
	}
	sblk_cmd_run(cmd);
}

/* True when the request has been executed, with `status`; else it is on its way by itself. */
static bool run_plain(struct sblk_queue *queue, struct request *rq, blk_status_t *status)
{
	struct sblk_io io;

	io_of_request(rq, &io);
	*status = sblk_io_plain(queue->dev, &io);
	if (unlikely(*status == BLK_STS_RESOURCE)) {
		run_slow(rq);
		return false;
	}
	if (likely(io.op < SBLK_OPS))
		sblk_stats_count(queue->stats, io.op, io.len, io.fua);
	if (unlikely(*status))
		this_cpu_inc(queue->stats->errors);
	return true;
}

/* Ends what was executed while more was to come, all together. */
static void end_done(struct sblk_queue *queue)
{
	DEFINE_IO_COMP_BATCH(batch);
	struct llist_node *list = llist_del_all(&queue->done);
	struct sblk_cmd *cmd, *next;

	llist_for_each_entry_safe(cmd, next, list, deferred)
		if (!sblk_add_to_batch(cmd->rq, &batch))
			blk_mq_end_request(cmd->rq, BLK_STS_OK);
	sblk_end_batch(&batch);
}

static blk_status_t sampleblk_queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *bd)
{
	struct sblk_queue *queue = hctx->driver_data;
	struct request *rq = bd->rq;
	blk_status_t status;

	blk_mq_start_request(rq);
	if (unlikely(!is_plain(queue->dev, hctx))) {
		run_slow(rq);
	} else if (run_plain(queue, rq, &status)) {
		if (!bd->last && !status) {
			struct sblk_cmd *cmd = blk_mq_rq_to_pdu(rq);

			llist_add(&cmd->deferred, &queue->done);
			return BLK_STS_OK;
		}
		blk_mq_end_request(rq, status);
	}
	if (bd->last && !llist_empty(&queue->done))
		end_done(queue);
	return BLK_STS_OK;
}

static void sampleblk_commit_rqs(struct blk_mq_hw_ctx *hctx)
{
	end_done(hctx->driver_data);
}

#ifdef SBLK_HAVE_QUEUE_RQS
static void sampleblk_queue_rqs(sblk_rq_list *list)
{
	DEFINE_IO_COMP_BATCH(batch);
	struct request *rq;

	while ((rq = rq_list_pop(list))) {
		struct blk_mq_hw_ctx *hctx = rq->mq_hctx;
		struct sblk_queue *queue = hctx->driver_data;
		blk_status_t status;

		sblk_start_batched(rq);
		this_cpu_inc(queue->stats->batched);
		if (unlikely(!is_plain(queue->dev, hctx)))
			run_slow(rq);
		else if (run_plain(queue, rq, &status) && (status || !sblk_add_to_batch(rq, &batch)))
			blk_mq_end_request(rq, status);
	}
	sblk_end_batch(&batch);
}
#endif

static void request_end(struct sblk_cmd *cmd, blk_status_t status)
{
	blk_mq_end_request(cmd->rq, status);
}

static void sampleblk_complete(struct request *rq)
{
	struct sblk_cmd *cmd = blk_mq_rq_to_pdu(rq);

	sblk_cmd_end(cmd, cmd->status);
}

SBLK_DEFINE_POLL(sampleblk_poll, batch)
{
	struct sblk_queue *queue = hctx->driver_data;
	struct sblk_cmd *cmd, *next;
	LIST_HEAD(due);
	int found = 0;

	sblk_cmd_polled(queue, &due);
	list_for_each_entry_safe(cmd, next, &due, list) {
		blk_status_t status;

		list_del(&cmd->list);
		this_cpu_inc(queue->stats->polled);
		status = sblk_cmd_account(cmd, cmd->status);
		if (status || !sblk_add_to_batch(cmd->rq, batch))
			blk_mq_end_request(cmd->rq, status);
		found++;
	}
	return found;
}

SBLK_DEFINE_TIMEOUT(sampleblk_timeout)
{
	struct sblk_cmd *cmd = blk_mq_rq_to_pdu(rq);

	if (sblk_cmd_stop_waiting(cmd, BIT(SBLK_WAIT_HUNG))) {
		sblk_cmd_end(cmd, BLK_STS_TIMEOUT);
		return BLK_EH_DONE;
	}
	/* A polled one whose poller went away. */
	if (READ_ONCE(cmd->due_ns) <= ktime_get_ns() && sblk_cmd_stop_waiting(cmd, BIT(SBLK_WAIT_POLL))) {
		sblk_cmd_end(cmd, cmd->status);
		return BLK_EH_DONE;
	}
	/* It is only slow: a timer or the worker ends it. */
	return BLK_EH_RESET_TIMER;
}

static int sampleblk_init_hctx(struct blk_mq_hw_ctx *hctx, void *data, unsigned int index)
{
	struct sblk_device *dev = data;

	if (index >= dev->nr_queues)
		return -EINVAL;
	hctx->driver_data = &dev->queues[index];
	return 0;
}

static int sampleblk_init_request(struct blk_mq_tag_set *set, struct request *rq, unsigned int index,
				  sblk_node_t node)
{
	struct sblk_device *dev = set->driver_data;
	struct sblk_cmd *cmd = blk_mq_rq_to_pdu(rq);

	sblk_cmd_init(cmd, request_end);
	cmd->rq = rq;
	cmd->queue = &dev->queues[index];
	return 0;
}

SBLK_DEFINE_MAP_QUEUES(sampleblk_map_queues)
{
	struct sblk_device *dev = set->driver_data;
	unsigned int poll = dev->config.poll_queues;
	unsigned int i, offset = 0;

	for (i = 0; i < set->nr_maps; i++) {
		struct blk_mq_queue_map *map = &set->map[i];

		map->nr_queues = i == HCTX_TYPE_DEFAULT ? set->nr_hw_queues - poll : i == HCTX_TYPE_POLL ? poll : 0;
		map->queue_offset = i == HCTX_TYPE_READ ? 0 : offset;
		offset += map->nr_queues;
		if (map->nr_queues)
			blk_mq_map_queues(map);
	}
	SBLK_MAP_QUEUES_RETURN;
}

#ifdef CONFIG_BLK_DEBUG_FS
/* What the block layer's own line of a request lacks. */
static void sampleblk_show_rq(struct seq_file *seq, struct request *rq)
{
	if (blk_rq_bytes(rq))
		seq_printf(seq, ", .sector=%llu, .bytes=%u", (u64)blk_rq_pos(rq), blk_rq_bytes(rq));
}
#endif

static const struct blk_mq_ops mq_ops = {
	.queue_rq = sampleblk_queue_rq,
	.commit_rqs = sampleblk_commit_rqs,
#ifdef SBLK_HAVE_QUEUE_RQS
	.queue_rqs = sampleblk_queue_rqs,
#endif
	.complete = sampleblk_complete,
	.timeout = sampleblk_timeout,
	.poll = sampleblk_poll,
	.map_queues = sampleblk_map_queues,
	.init_hctx = sampleblk_init_hctx,
	.init_request = sampleblk_init_request,
#ifdef CONFIG_BLK_DEBUG_FS
	.show_rq = sampleblk_show_rq,
#endif
};

SBLK_DEFINE_OPEN(sampleblk_open, sblk_open);
SBLK_DEFINE_RELEASE(sampleblk_release, sblk_release);
#ifdef SBLK_ZONED
SBLK_DEFINE_REPORT_ZONES(sampleblk_report_zones, sblk_report_zones);
#endif

const struct block_device_operations sblk_mq_fops = {
	.owner = THIS_MODULE,
	.open = sampleblk_open,
	.release = sampleblk_release,
#ifdef SBLK_ZONED
	.report_zones = sampleblk_report_zones,
#endif
};

int sblk_tag_set_init(struct sblk_device *dev)
{
	struct blk_mq_tag_set *set = &dev->tag_set;
	int err;

	set->ops = &mq_ops;
	set->nr_hw_queues = dev->config.queues + dev->config.poll_queues;
	set->nr_maps = dev->config.poll_queues ? HCTX_MAX_TYPES : 1;
	set->queue_depth = dev->config.depth;
	set->numa_node = dev->config.numa_node ? dev->config.numa_node - 1 : NUMA_NO_NODE;
	set->cmd_size = sizeof(struct sblk_cmd);
	set->flags = SBLK_F_SHOULD_MERGE | SBLK_F_NO_SCHED;
	set->driver_data = dev;
	err = blk_mq_alloc_tag_set(set);
	/* Under memory pressure, or with few CPUs, blk-mq settles for less; in a crash kernel for one queue of one kind. */
	if (set->nr_maps == 1)
		dev->config.poll_queues = 0;
	dev->config.queues = set->nr_hw_queues - dev->config.poll_queues;
	dev->config.depth = set->queue_depth;
	return err;
}
