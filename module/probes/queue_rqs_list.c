// SPDX-License-Identifier: GPL-2.0-only
// 6.13: ->queue_rqs() gets a struct rq_list.
#include <linux/blk-mq.h>

static void probe_queue_rqs(struct rq_list *list)
{
}

const struct blk_mq_ops probe = {
	.queue_rqs = probe_queue_rqs,
};
