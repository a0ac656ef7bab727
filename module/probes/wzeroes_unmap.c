// SPDX-License-Identifier: GPL-2.0-only
// 6.17: write-zeroes that give memory back have a limit of their own.
#include <linux/blkdev.h>

void probe(struct queue_limits *lim)
{
	lim->max_hw_wzeroes_unmap_sectors = 0;
}
