// SPDX-License-Identifier: GPL-2.0-only
// 5.14: opening has a mutex in the disk, before that in the block device.
#include <linux/blkdev.h>

struct mutex *probe(struct gendisk *disk)
{
	return &disk->open_mutex;
}
