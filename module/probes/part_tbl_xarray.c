// SPDX-License-Identifier: GPL-2.0-only
// 5.12: partitions are block devices in an xarray.
#include <linux/blkdev.h>
#include <linux/xarray.h>

struct block_device *probe(struct gendisk *disk)
{
	return xa_load(&disk->part_tbl, 0) ? disk->part0 : NULL;
}
