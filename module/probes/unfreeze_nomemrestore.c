// SPDX-License-Identifier: GPL-2.0-only
// 6.14: unfreezing a queue is apart from ending the NOIO scope.
#include <linux/blk-mq.h>

void probe(struct request_queue *queue)
{
	blk_mq_unfreeze_queue_nomemrestore(queue);
}
