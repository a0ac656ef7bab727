// SPDX-License-Identifier: GPL-2.0-only
// 6.15: a feature says that atomic writes are meant, besides their limits.
#include <linux/blkdev.h>

void probe(struct queue_limits *lim)
{
	lim->features |= BLK_FEAT_ATOMIC_WRITES;
}
