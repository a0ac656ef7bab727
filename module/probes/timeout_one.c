// SPDX-License-Identifier: GPL-2.0-only
// 6.0: ->timeout() takes the request only.
#include <linux/blk-mq.h>

static enum blk_eh_timer_return probe_timeout(struct request *rq)
{
	return BLK_EH_DONE;
}

const struct blk_mq_ops probe = {
	.timeout = probe_timeout,
};
