/* SPDX-License-Identifier: GPL-2.0-only */
/* The life of a command, be it a request or a bio: fault, execution, delay, answer. */
#ifndef SBLK_COMMAND_H
#define SBLK_COMMAND_H

#include <linux/hrtimer.h>

#include "block/device.h"

/* What is to be done; of a request or of a bio, to which a request's bios are chained. */
struct sblk_io {
	enum sblk_op op;
	bool fua;
	bool atomic; /* a power cut keeps all or nothing of it */
	bool nounmap; /* write-zeroes that keep what is allocated */
	bool append; /* a write that goes where its zone goes on */
	u64 pos;
	u64 len;
	struct bio *bio;
};

enum sblk_wait {
	SBLK_NOT_WAITING,
	SBLK_WAIT_HUNG, /* until somebody fails it */
	SBLK_WAIT_HELD, /* executed, until its rule is gone */
	SBLK_WAIT_TIMER,
	SBLK_WAIT_POLL, /* until it is polled for, not before due_ns */
};

/* Something on its way that is more than a copy: it lies behind each struct request, and is made for a bio. */
struct sblk_cmd {
	struct sblk_queue *queue;
	struct request *rq; /* or NULL: then a bio's */
	void (*end)(struct sblk_cmd *cmd, blk_status_t status); /* gives it back to the block layer */
	struct sblk_io io;
	struct sblk_ticket ticket;
	u64 start_ns; /* 0 until it runs */
	u64 due_ns;
	u64 done; /* bytes of it that are executed */
	struct sblk_fault fault;
	bool matched; /* against the rules, once */
	blk_status_t status; /* to be answered */
	enum sblk_wait waiting; /* under queue->lock */
	struct list_head list; /* queue->waiting */
	struct hrtimer timer;
	struct llist_node deferred; /* or in queue->done */
};

/* The kernel's operation as ours, whatever type this kernel gives it. */
#define sblk_op_of(op) \
	((op) == REQ_OP_READ	     ? SBLK_READ : \
	 (op) == REQ_OP_WRITE	     ? SBLK_WRITE : \
	 (op) == REQ_OP_DISCARD	     ? SBLK_DISCARD : \
	 (op) == REQ_OP_WRITE_ZEROES ? SBLK_WRITE_ZEROES : \
	 (op) == REQ_OP_FLUSH	     ? SBLK_FLUSH : \
				       sblk_zone_op_of(op))

/* Those of which all is seldom. */
#define sblk_zone_op_of(op) \
	((op) == REQ_OP_ZONE_APPEND    ? SBLK_WRITE : \
	 (op) == REQ_OP_ZONE_OPEN      ? SBLK_ZONE_OPEN : \
	 (op) == REQ_OP_ZONE_CLOSE     ? SBLK_ZONE_CLOSE : \
	 (op) == REQ_OP_ZONE_FINISH    ? SBLK_ZONE_FINISH : \
	 (op) == REQ_OP_ZONE_RESET     ? SBLK_ZONE_RESET : \
	 (op) == REQ_OP_ZONE_RESET_ALL ? SBLK_ZONE_RESET_ALL : \
					 SBLK_OPS)

/* Waits for memory as long as that makes sense: GFP_NOIO alone would wait for ever, as it gets no OOM killer. */
#define SBLK_GFP_WAIT (GFP_NOIO | __GFP_RETRY_MAYFAIL | __GFP_NOWARN)
#define SBLK_GFP_ATOMIC (GFP_NOWAIT | __GFP_NOWARN)

/* Once, before it is used. */
void sblk_cmd_init(struct sblk_cmd *cmd, void (*end)(struct sblk_cmd *cmd, blk_status_t status));

/*
 * The plain path: no log, fault or delay. Under rcu_read_lock(), which covers the look at dev->slow_path too.
 * BLK_STS_RESOURCE: it must go the slow path, which can wait for memory.
 */
blk_status_t sblk_io_plain(struct sblk_device *dev, const struct sblk_io *io);

/* The slow path; cmd->queue, rq and io are set. */
void sblk_cmd_run(struct sblk_cmd *cmd);

/* The same from the driver's worker; in any context. */
void sblk_cmd_run_later(struct sblk_cmd *cmd);
void sblk_cmd_worker(struct work_struct *work);

/* Counts it and tells of it; returns what it is to be ended with. */
blk_status_t sblk_cmd_account(struct sblk_cmd *cmd, blk_status_t status);

/* The same, and gives it back. In any context. */
void sblk_cmd_end(struct sblk_cmd *cmd, blk_status_t status);

/* Whether there has been power without interruption since it came. */
bool sblk_cmd_has_power(const struct sblk_cmd *cmd);

/* True for the first that takes a command off the waiting ones, if it waits in one of the ways (bits of enum sblk_wait). */
bool sblk_cmd_stop_waiting(struct sblk_cmd *cmd, unsigned int ways);

/* What waits, a line each in the page `buf`, as many as it has room for; returns their length. */
ssize_t sblk_cmd_show_waiting(struct sblk_device *dev, char *buf);

/* Takes those off a queue's that polling may complete now, to `list`. */
void sblk_cmd_polled(struct sblk_queue *queue, struct list_head *list);

/* Ends those of all queues. */
void sblk_cmd_end_polled(struct sblk_device *dev);

/*
 * Ends all commands that wait in one of the ways, with what they would have ended with, or with `status` if that is not
 * BLK_STS_OK; of the hung and held only those of rules older than `generation`. May sleep.
 */
void sblk_cmd_release(struct sblk_device *dev, unsigned int ways, blk_status_t status, u64 generation);

#define SBLK_EVERY_WAY (BIT(SBLK_WAIT_HUNG) | BIT(SBLK_WAIT_HELD) | BIT(SBLK_WAIT_TIMER) | BIT(SBLK_WAIT_POLL))
#define SBLK_EVERY_RULE U64_MAX

/*
 * Requests leave the plain path for a reason, or return to it. After it was switched on none is in the plain path any
 * more, and whatever ran then has ended or sees what was stored before: a grace period of RCU is over, an expedited one, as
 * everywhere here: whoever calls waits, often in a loop, and an interrupt of each CPU is nothing beside that. May sleep.
 */
void sblk_slow_path_on(struct sblk_device *dev, enum sblk_slow reason);
void sblk_slow_path_off(struct sblk_device *dev, enum sblk_slow reason);

static inline void sblk_slow_path_set(struct sblk_device *dev, enum sblk_slow reason, bool on)
{
	if (on)
		sblk_slow_path_on(dev, reason);
	else
		sblk_slow_path_off(dev, reason);
}

#endif
