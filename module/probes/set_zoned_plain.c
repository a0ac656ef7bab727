// SPDX-License-Identifier: GPL-2.0-only
// 6.8: there is one model of zoned devices.
#include <linux/blkdev.h>

void probe(struct gendisk *disk)
{
	disk_set_zoned(disk);
}
