// SPDX-License-Identifier: GPL-2.0-only
// 5.14: blk_mq_alloc_disk() makes the queue and the disk in one call.
#include <linux/blk-mq.h>

struct gendisk *probe(struct blk_mq_tag_set *set)
{
	return blk_mq_alloc_disk(set, NULL);
}
