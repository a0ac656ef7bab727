// SPDX-License-Identifier: GPL-2.0-only
// 6.11: atomic writes.
#include <linux/blkdev.h>

void probe(struct queue_limits *lim)
{
	lim->atomic_write_hw_max = lim->atomic_write_hw_unit_max = lim->atomic_write_hw_unit_min;
	lim->atomic_write_hw_boundary = REQ_ATOMIC ? 1 : 0;
}
