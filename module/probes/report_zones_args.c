// SPDX-License-Identifier: GPL-2.0-only
// 6.19: ->report_zones() takes its callback in a structure.
#include <linux/blkdev.h>

int probe(struct gendisk *disk, struct blk_zone *zone, struct blk_report_zones_args *args)
{
	return disk_report_zone(disk, zone, 0, args);
}
