/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM sampleblk

#if !defined(SBLK_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define SBLK_TRACE_H

#include <linux/blk-mq.h>
#include <linux/tracepoint.h>

#include "block/command.h"

#define SBLK_TRACE_SEEK 100 /* beside SAMPLEBLK_SNAPSHOT_* */
#define SBLK_TRACE_STATE 101

/* Without these the format files have the names of the enum, which no reader of a trace knows. */
TRACE_DEFINE_ENUM(SBLK_READ);
TRACE_DEFINE_ENUM(SBLK_WRITE);
TRACE_DEFINE_ENUM(SBLK_DISCARD);
TRACE_DEFINE_ENUM(SBLK_WRITE_ZEROES);
TRACE_DEFINE_ENUM(SBLK_FLUSH);
TRACE_DEFINE_ENUM(SBLK_ZONE_OPEN);
TRACE_DEFINE_ENUM(SBLK_ZONE_CLOSE);
TRACE_DEFINE_ENUM(SBLK_ZONE_FINISH);
TRACE_DEFINE_ENUM(SBLK_ZONE_RESET);
TRACE_DEFINE_ENUM(SBLK_ZONE_RESET_ALL);

#define sblk_show_op(op) __print_symbolic(op, SBLK_OP_NAMES)

#define sblk_show_action(action) \
	__print_symbolic(action, { SAMPLEBLK_FAULT_ERROR, "error" }, { SAMPLEBLK_FAULT_DELAY, "delay" }, \
			 { SAMPLEBLK_FAULT_HANG, "hang" }, { SAMPLEBLK_FAULT_LOST_WRITE, "lost_write" }, \
			 { SAMPLEBLK_FAULT_TORN_WRITE, "torn_write" }, \
			 { SAMPLEBLK_FAULT_MISDIRECTED_WRITE, "misdirected_write" }, \
			 { SAMPLEBLK_FAULT_CORRUPT, "corrupt" }, { SAMPLEBLK_FAULT_HOLD, "hold" }, \
			 { SAMPLEBLK_FAULT_NOT_DURABLE, "not_durable" }, { SAMPLEBLK_FAULT_SET_BYTE, "set_byte" }, \
			 { SAMPLEBLK_FAULT_BAD_SECTOR, "bad_sector" }, { SAMPLEBLK_FAULT_CORRUPT_TAG, "corrupt_tag" })

/* dev, sector, hardware queue and tag are those of the block:* events of the same request; a bio has tag -1. */
DECLARE_EVENT_CLASS(sampleblk_cmd,

	TP_PROTO(struct sblk_cmd *cmd, u64 value),

	TP_ARGS(cmd, value),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u32, hctx)
		__field(s32, tag)
		__field(u32, op)
		__field(u64, sector)
		__field(u32, bytes)
		__field(u32, fua)
		__field(u64, value)
	),

	TP_fast_assign(
		__entry->dev = disk_devt(cmd->queue->dev->disk);
		__entry->hctx = cmd->queue->index;
		__entry->tag = cmd->rq ? cmd->rq->tag : -1;
		__entry->op = cmd->io.op;
		__entry->sector = cmd->io.pos >> SECTOR_SHIFT;
		__entry->bytes = cmd->io.len;
		__entry->fua = cmd->io.fua;
		__entry->value = value;
	),

	TP_printk("%d,%d hctx %u tag %d %s sector %llu bytes %u%s",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->hctx, __entry->tag, sblk_show_op(__entry->op),
		  __entry->sector, __entry->bytes, __entry->fua ? " fua" : "")
);

/* It came to the driver. */
DEFINE_EVENT(sampleblk_cmd, sampleblk_queue,
	TP_PROTO(struct sblk_cmd *cmd, u64 value),
	TP_ARGS(cmd, value)
);

/* It is being executed: at once, or by the worker, after `value` ns, where it had to wait for memory. */
DEFINE_EVENT_PRINT(sampleblk_cmd, sampleblk_start,
	TP_PROTO(struct sblk_cmd *cmd, u64 value),
	TP_ARGS(cmd, value),
	TP_printk("%d,%d hctx %u tag %d %s sector %llu bytes %u%s waited_ns %llu",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->hctx, __entry->tag, sblk_show_op(__entry->op),
		  __entry->sector, __entry->bytes, __entry->fua ? " fua" : "", __entry->value)
);

/* A timer will complete it: value ns from now. */
DEFINE_EVENT_PRINT(sampleblk_cmd, sampleblk_delay,
	TP_PROTO(struct sblk_cmd *cmd, u64 value),
	TP_ARGS(cmd, value),
	TP_printk("%d,%d hctx %u tag %d %s sector %llu bytes %u%s delay_ns %llu",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->hctx, __entry->tag, sblk_show_op(__entry->op),
		  __entry->sector, __entry->bytes, __entry->fua ? " fua" : "", __entry->value)
);

/* A fault rule acts on it: value is the action. */
DEFINE_EVENT_PRINT(sampleblk_cmd, sampleblk_fault,
	TP_PROTO(struct sblk_cmd *cmd, u64 value),
	TP_ARGS(cmd, value),
	TP_printk("%d,%d hctx %u tag %d %s sector %llu bytes %u%s action %s",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->hctx, __entry->tag, sblk_show_op(__entry->op),
		  __entry->sector, __entry->bytes, __entry->fua ? " fua" : "", sblk_show_action(__entry->value))
);

TRACE_EVENT(sampleblk_complete,

	TP_PROTO(struct sblk_cmd *cmd, int error, u64 latency_ns),

	TP_ARGS(cmd, error, latency_ns),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u32, hctx)
		__field(s32, tag)
		__field(u32, op)
		__field(u64, sector)
		__field(u32, bytes)
		__field(s32, error)
		__field(u64, latency_ns)
	),

	TP_fast_assign(
		__entry->dev = disk_devt(cmd->queue->dev->disk);
		__entry->hctx = cmd->queue->index;
		__entry->tag = cmd->rq ? cmd->rq->tag : -1;
		__entry->op = cmd->io.op;
		__entry->sector = cmd->io.pos >> SECTOR_SHIFT;
		__entry->bytes = cmd->io.len;
		__entry->error = error;
		__entry->latency_ns = latency_ns;
	),

	TP_printk("%d,%d hctx %u tag %d %s sector %llu bytes %u error %d latency_ns %llu",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->hctx, __entry->tag, sblk_show_op(__entry->op),
		  __entry->sector, __entry->bytes, __entry->error, __entry->latency_ns)
);

/* A flush that succeeded made `writes` writes durable; with a journal, `epoch` is the one that it closed. */
TRACE_EVENT(sampleblk_flush,

	TP_PROTO(struct sblk_device *device, u64 writes, u64 epoch),

	TP_ARGS(device, writes, epoch),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u64, writes)
		__field(u64, epoch)
	),

	TP_fast_assign(
		__entry->dev = disk_devt(device->disk);
		__entry->writes = writes;
		__entry->epoch = epoch;
	),

	TP_printk("%d,%d writes %llu epoch %llu", MAJOR(__entry->dev), MINOR(__entry->dev), __entry->writes,
		  __entry->epoch)
);

TRACE_EVENT(sampleblk_power,

	TP_PROTO(struct sblk_device *device, bool on, u64 dropped, u64 survived, u64 torn),

	TP_ARGS(device, on, dropped, survived, torn),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u32, on)
		__field(u64, dropped)
		__field(u64, survived)
		__field(u64, torn)
	),

	TP_fast_assign(
		__entry->dev = disk_devt(device->disk);
		__entry->on = on;
		__entry->dropped = dropped;
		__entry->survived = survived;
		__entry->torn = torn;
	),

	TP_printk("%d,%d power %s dropped %llu survived %llu torn %llu", MAJOR(__entry->dev), MINOR(__entry->dev),
		  __entry->on ? "on" : "cut", __entry->dropped, __entry->survived, __entry->torn)
);

/* Actions are those of the ABI, SAMPLEBLK_SNAPSHOT_*; a seek has action 100. */
TRACE_EVENT(sampleblk_snapshot,

	TP_PROTO(struct sblk_device *device, u32 action, u64 id),

	TP_ARGS(device, action, id),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u32, action)
		__field(u64, id)
	),

	TP_fast_assign(
		__entry->dev = disk_devt(device->disk);
		__entry->action = action;
		__entry->id = id;
	),

	TP_printk("%d,%d %s %llu", MAJOR(__entry->dev), MINOR(__entry->dev),
		  __print_symbolic(__entry->action, { SAMPLEBLK_SNAPSHOT_TAKE, "take" },
				   { SAMPLEBLK_SNAPSHOT_RESTORE, "restore" }, { SAMPLEBLK_SNAPSHOT_DELETE, "delete" },
				   { SAMPLEBLK_SNAPSHOT_CLONE, "clone" }, { SBLK_TRACE_SEEK, "seek" },
				   { SBLK_TRACE_STATE, "state" }),
		  __entry->id)
);

/* The journal had no room for the operation of this sequence. */
TRACE_EVENT(sampleblk_journal_overflow,

	TP_PROTO(struct sblk_device *device, u64 sequence),

	TP_ARGS(device, sequence),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u64, sequence)
	),

	TP_fast_assign(
		__entry->dev = disk_devt(device->disk);
		__entry->sequence = sequence;
	),

	TP_printk("%d,%d sequence %llu", MAJOR(__entry->dev), MINOR(__entry->dev), __entry->sequence)
);

/* Somebody looks at the life of every request. */
#define sblk_traced() \
	(trace_sampleblk_queue_enabled() || trace_sampleblk_start_enabled() || trace_sampleblk_complete_enabled())

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH block
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
