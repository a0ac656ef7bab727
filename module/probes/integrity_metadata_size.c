// SPDX-License-Identifier: GPL-2.0-only
// 6.17: metadata may be larger than the tuple in it.
#include <linux/blkdev.h>

void probe(struct queue_limits *lim)
{
	lim->integrity.metadata_size = lim->integrity.pi_tuple_size;
}
