/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM sampleblk

#if !defined(SBLK_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define SBLK_TRACE_H

#include <linux/blk-mq.h>
#include <linux/tracepoint.h>

#include "sampleblk.h"

#define sblk_show_op(op) \
	__print_symbolic(op, { SBLK_READ, "read" }, { SBLK_WRITE, "write" }, { SBLK_DISCARD, "discard" }, \
			 { SBLK_WRITE_ZEROES, "write_zeroes" }, { SBLK_FLUSH, "flush" })

/* dev, sector and hardware queue and tag are those of the block:* events of the same request. */
TRACE_EVENT(sampleblk_queue,

	TP_PROTO(struct sblk_queue *queue, struct request *rq),

	TP_ARGS(queue, rq),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u32, hctx)
		__field(u32, tag)
		__field(u32, op)
		__field(u64, sector)
		__field(u32, bytes)
		__field(u32, fua)
	),

	TP_fast_assign(
		__entry->dev = disk_devt(queue->dev->disk);
		__entry->hctx = queue->index;
		__entry->tag = rq->tag;
		__entry->op = sblk_request_op(rq);
		__entry->sector = blk_rq_pos(rq);
		__entry->bytes = blk_rq_bytes(rq);
		__entry->fua = !!(rq->cmd_flags & REQ_FUA);
	),

	TP_printk("%d,%d hctx %u tag %u %s sector %llu bytes %u%s",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->hctx, __entry->tag, sblk_show_op(__entry->op),
		  __entry->sector, __entry->bytes, __entry->fua ? " fua" : "")
);

TRACE_EVENT(sampleblk_complete,

	TP_PROTO(struct sblk_queue *queue, struct request *rq, int error, u64 latency_ns),

	TP_ARGS(queue, rq, error, latency_ns),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u32, hctx)
		__field(u32, tag)
		__field(u32, op)
		__field(u64, sector)
		__field(u32, bytes)
		__field(s32, error)
		__field(u64, latency_ns)
	),

	TP_fast_assign(
		__entry->dev = disk_devt(queue->dev->disk);
		__entry->hctx = queue->index;
		__entry->tag = rq->tag;
		__entry->op = sblk_request_op(rq);
		__entry->sector = blk_rq_pos(rq);
		__entry->bytes = blk_rq_bytes(rq);
		__entry->error = error;
		__entry->latency_ns = latency_ns;
	),

	/* A latency of 0: the request was queued before the event was switched on. */
	TP_printk("%d,%d hctx %u tag %u %s sector %llu bytes %u error %d latency_ns %llu",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->hctx, __entry->tag, sblk_show_op(__entry->op),
		  __entry->sector, __entry->bytes, __entry->error, __entry->latency_ns)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
