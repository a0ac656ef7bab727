// SPDX-License-Identifier: GPL-2.0-only
// 6.15: logical blocks larger than a page.
#include <linux/blkdev.h>

int probe(void)
{
	return BLK_MAX_BLOCK_SIZE;
}
