// SPDX-License-Identifier: GPL-2.0-only
// Until 5.19: blk_cleanup_queue().
#include <linux/blkdev.h>

void probe(struct request_queue *queue)
{
	blk_cleanup_queue(queue);
}
