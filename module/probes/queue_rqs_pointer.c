// SPDX-License-Identifier: GPL-2.0-only
// 5.17 to 6.12: ->queue_rqs() gets a list by its first request.
#include <linux/blk-mq.h>

static void probe_queue_rqs(struct request **list)
{
}

const struct blk_mq_ops probe = {
	.queue_rqs = probe_queue_rqs,
};
