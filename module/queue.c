// SPDX-License-Identifier: GPL-2.0-only
/* The multi-queue face: requests come in here and go out completed. */
#include "compat.h"
#include "sampleblk.h"
#include "trace.h"

static void request_end(struct request *rq, blk_status_t status)
{
	struct sblk_cmd *cmd = blk_mq_rq_to_pdu(rq);
	struct sblk_queue *queue = cmd->queue;
	enum sblk_op op = sblk_request_op(rq);

	if (likely(op < SBLK_OPS))
		sblk_stats_count(queue->stats, op, blk_rq_bytes(rq), rq->cmd_flags & REQ_FUA);
	if (unlikely(status))
		this_cpu_inc(queue->stats->errors);
	if (trace_sampleblk_complete_enabled())
		trace_sampleblk_complete(queue, rq, blk_status_to_errno(status),
					 cmd->start_ns ? ktime_get_ns() - cmd->start_ns : 0);
	blk_mq_end_request(rq, status);
}

/* Memory may be had by waiting, which only a worker may do. */
void sblk_queue_deferred(struct work_struct *work)
{
	struct sblk_device *dev = container_of(work, struct sblk_device, deferred_work);
	struct llist_node *list = llist_reverse_order(llist_del_all(&dev->deferred));
	struct sblk_cmd *cmd, *next;

	llist_for_each_entry_safe(cmd, next, list, deferred) {
		struct request *rq = blk_mq_rq_from_pdu(cmd);

		/* NORETRY would give up too early, no flag at all would wait for ever: GFP_NOIO gets no OOM killer. */
		request_end(rq, sblk_request_execute(dev, rq, GFP_NOIO | __GFP_RETRY_MAYFAIL | __GFP_NOWARN));
	}
}

static blk_status_t sampleblk_queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *bd)
{
	struct sblk_queue *queue = hctx->driver_data;
	struct sblk_device *dev = queue->dev;
	struct request *rq = bd->rq;
	struct sblk_cmd *cmd = blk_mq_rq_to_pdu(rq);
	blk_status_t status;

	cmd->queue = queue;
	cmd->start_ns = trace_sampleblk_complete_enabled() ? ktime_get_ns() : 0;
	blk_mq_start_request(rq);
	trace_sampleblk_queue(queue, rq);

	status = sblk_request_execute(dev, rq, GFP_NOWAIT | __GFP_NOWARN);
	if (unlikely(status == BLK_STS_RESOURCE)) {
		this_cpu_inc(queue->stats->deferred);
		llist_add(&cmd->deferred, &dev->deferred);
		queue_work(system_unbound_wq, &dev->deferred_work);
		return BLK_STS_OK;
	}
	request_end(rq, status);
	return BLK_STS_OK;
}

static int sampleblk_init_hctx(struct blk_mq_hw_ctx *hctx, void *data, unsigned int index)
{
	struct sblk_device *dev = data;

	if (index >= dev->nr_queues)
		return -EINVAL;
	hctx->driver_data = &dev->queues[index];
	return 0;
}

const struct blk_mq_ops sblk_mq_ops = {
	.queue_rq = sampleblk_queue_rq,
	.init_hctx = sampleblk_init_hctx,
};
