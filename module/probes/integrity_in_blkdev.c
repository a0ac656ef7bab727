// SPDX-License-Identifier: GPL-2.0-only
// Until 5.15: protection information has no header of its own.
#include <linux/blkdev.h>

unsigned int probe(struct blk_integrity_iter *iter)
{
	return iter->interval;
}
