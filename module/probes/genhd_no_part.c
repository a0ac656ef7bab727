// SPDX-License-Identifier: GPL-2.0-only
// 5.17: GENHD_FL_NO_PART, before that GENHD_FL_NO_PART_SCAN.
#include <linux/blkdev.h>

int probe(void)
{
	return GENHD_FL_NO_PART;
}
