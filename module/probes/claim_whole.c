// SPDX-License-Identifier: GPL-2.0-only
// Until 5.11: claiming takes the whole disk beside the device.
#include <linux/blkdev.h>
#include <linux/fs.h>

int (*probe)(struct block_device *bdev, struct block_device *whole, void *holder) = bd_prepare_to_claim;
