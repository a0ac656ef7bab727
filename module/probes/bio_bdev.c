// SPDX-License-Identifier: GPL-2.0-only
// 5.12: a bio knows its block device.
#include <linux/blkdev.h>

struct gendisk *probe(struct bio *bio)
{
	return bio->bi_bdev->bd_disk;
}
