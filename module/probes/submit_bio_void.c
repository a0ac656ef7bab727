// SPDX-License-Identifier: GPL-2.0-only
// 5.16: ->submit_bio() returns nothing.
#include <linux/blkdev.h>

static void probe_submit_bio(struct bio *bio)
{
}

const struct block_device_operations probe = {
	.submit_bio = probe_submit_bio,
};
