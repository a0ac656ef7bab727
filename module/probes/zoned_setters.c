// SPDX-License-Identifier: GPL-2.0-only
// Until 6.9: a queue is made zoned by calls, and a scheduler keeps the order.
#include <linux/blk-mq.h>

int probe(struct gendisk *disk)
{
	blk_queue_chunk_sectors(disk->queue, 8);
	blk_queue_max_zone_append_sectors(disk->queue, 8);
	blk_queue_required_elevator_features(disk->queue, ELEVATOR_F_ZBD_SEQ_WRITE);
	return blk_revalidate_disk_zones(disk, NULL);
}
