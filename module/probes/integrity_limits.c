// SPDX-License-Identifier: GPL-2.0-only
// 6.11: the limits carry the protection information, too.
#include <linux/blkdev.h>

void probe(struct queue_limits *lim)
{
	lim->integrity.csum_type = BLK_INTEGRITY_CSUM_CRC;
}
