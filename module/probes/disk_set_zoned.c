// SPDX-License-Identifier: GPL-2.0-only
// 6.1: zones belong to the disk, no longer to its queue.
#include <linux/blkdev.h>

void probe(struct gendisk *disk)
{
	disk_set_max_open_zones(disk, 0);
}
