// SPDX-License-Identifier: GPL-2.0-only
// 6.1: ->map_queues() cannot fail.
#include <linux/blk-mq.h>

static void probe_map_queues(struct blk_mq_tag_set *set)
{
}

const struct blk_mq_ops probe = {
	.map_queues = probe_map_queues,
};
