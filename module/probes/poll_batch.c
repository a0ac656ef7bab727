// SPDX-License-Identifier: GPL-2.0-only
// 5.16: ->poll() gets a batch to put completions in.
#include <linux/blk-mq.h>

static int probe_poll(struct blk_mq_hw_ctx *hctx, struct io_comp_batch *batch)
{
	return 0;
}

const struct blk_mq_ops probe = {
	.poll = probe_poll,
};
