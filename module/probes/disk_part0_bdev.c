// SPDX-License-Identifier: GPL-2.0-only
// 5.11: the whole disk is a block device like its partitions.
#include <linux/blkdev.h>
#include <linux/fs.h>

struct address_space *probe(struct gendisk *disk)
{
	return disk->part0->bd_inode->i_mapping;
}
