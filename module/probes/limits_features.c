// SPDX-License-Identifier: GPL-2.0-only
// 6.11: the limits carry the write cache, FUA, rotational and the like.
#include <linux/blkdev.h>

void probe(struct queue_limits *limits)
{
	limits->features = BLK_FEAT_WRITE_CACHE | BLK_FEAT_FUA | BLK_FEAT_ROTATIONAL;
}
