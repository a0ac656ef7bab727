// SPDX-License-Identifier: GPL-2.0-only
// 6.14: the driver's limit of zone appends is apart from that in force.
#include <linux/blkdev.h>

void probe(struct queue_limits *lim)
{
	lim->max_hw_zone_append_sectors = 0;
}
