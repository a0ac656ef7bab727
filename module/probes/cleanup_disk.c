// SPDX-License-Identifier: GPL-2.0-only
// 5.14 to 5.19: blk_cleanup_disk().
#include <linux/blkdev.h>

void probe(struct gendisk *disk)
{
	blk_cleanup_disk(disk);
}
