// SPDX-License-Identifier: GPL-2.0-only
// 5.11: before, set_capacity_revalidate_and_notify().
#include <linux/blkdev.h>

bool probe(struct gendisk *disk, sector_t sectors)
{
	return set_capacity_and_notify(disk, sectors);
}
