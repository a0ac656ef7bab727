// SPDX-License-Identifier: GPL-2.0-only
// 5.19: disk_openers().
#include <linux/blkdev.h>

unsigned int probe(struct gendisk *disk)
{
	return disk_openers(disk);
}
