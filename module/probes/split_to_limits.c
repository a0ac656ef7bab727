// SPDX-License-Identifier: GPL-2.0-only
// 6.0: bio_split_to_limits(), before that blk_queue_split().
#include <linux/blkdev.h>

struct bio *probe(struct bio *bio)
{
	return bio_split_to_limits(bio);
}
