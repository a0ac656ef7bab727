// SPDX-License-Identifier: GPL-2.0-only
// 5.15: add_disk() can fail.
#include <linux/blkdev.h>

int probe(struct gendisk *disk)
{
	return add_disk(disk);
}
