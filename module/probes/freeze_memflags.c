// SPDX-License-Identifier: GPL-2.0-only
// 6.14: freezing a queue returns flags that unfreezing takes.
#include <linux/blk-mq.h>

void probe(struct request_queue *queue)
{
	unsigned int flags = blk_mq_freeze_queue(queue);

	blk_mq_unfreeze_queue(queue, flags);
}
