// SPDX-License-Identifier: GPL-2.0-only
// Until 5.18: discard is a queue flag too.
#include <linux/blkdev.h>

void probe(struct request_queue *queue)
{
	blk_queue_flag_set(QUEUE_FLAG_DISCARD, queue);
}
