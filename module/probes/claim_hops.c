// SPDX-License-Identifier: GPL-2.0-only
// 6.5: claiming takes the operations of the holder.
#include <linux/blkdev.h>

int (*probe)(struct block_device *bdev, void *holder, const struct blk_holder_ops *hops) = bd_prepare_to_claim;
