// SPDX-License-Identifier: GPL-2.0-only
#include "block/zoned.h"

/* How much of a write its zone takes account of under the fault that acts on it: what the host is told was written. */
static u64 accounted(const struct sblk_cmd *cmd)
{
	u64 block = cmd->queue->dev->config.logical_block_bytes;

	switch (cmd->fault.action) {
	case SAMPLEBLK_FAULT_ERROR:
		return 0;
	case SAMPLEBLK_FAULT_TORN_WRITE:
		if (!cmd->fault.arg1)
			return cmd->io.len;
		fallthrough;
	case SAMPLEBLK_FAULT_BAD_SECTOR:
		return round_down(min_t(u64, cmd->io.len, min_t(u64, cmd->fault.arg0, U32_MAX) << SECTOR_SHIFT), block);
	default:
		return cmd->io.len;
	}
}

static blk_status_t status_of(int err)
{
	switch (err) {
	case 0:
		return BLK_STS_OK;
	case -EMFILE:
		return BLK_STS_ZONE_OPEN_RESOURCE;
	case -ENFILE:
		return BLK_STS_ZONE_ACTIVE_RESOURCE;
	default:
		return BLK_STS_IOERR;
	}
}

blk_status_t sblk_zoned_admit(struct sblk_cmd *cmd)
{
	return status_of(sblk_zones_admit(cmd->queue->dev->zones, &cmd->io.pos, cmd->io.len, cmd->io.append));
}

void sblk_zoned_advance(struct sblk_cmd *cmd)
{
	sblk_zones_advance(cmd->queue->dev->zones, cmd->io.pos, accounted(cmd));
	/* The host learns from the request where it went. */
	if (cmd->io.append)
		cmd->rq->__sector = cmd->io.pos >> SECTOR_SHIFT;
}

static int reset_zone(struct sblk_device *dev, u64 pos)
{
	int err;

	if (pos >> ilog2(dev->zones->zone_bytes) < dev->zones->conventional)
		return -EIO;
	/* Before it is empty: what is written then stays. */
	err = sblk_store_discard(dev->medium.store, pos, dev->zones->zone_bytes, SBLK_GFP_ATOMIC);
	return err ? err : sblk_zones_reset(dev->zones, pos);
}

static int reset_all(struct sblk_device *dev)
{
	const struct sblk_zones *zones = dev->zones;
	u32 i;

	for (i = zones->conventional; i < zones->nr; i++) {
		int err = reset_zone(dev, i * zones->zone_bytes);

		if (err)
			return err;
	}
	return 0;
}

blk_status_t sblk_zoned_manage(struct sblk_cmd *cmd)
{
	struct sblk_device *dev = cmd->queue->dev;
	u64 pos = cmd->io.pos;

	switch (cmd->io.op) {
	case SBLK_ZONE_RESET:
		return status_of(reset_zone(dev, round_down(pos, dev->zones->zone_bytes)));
	case SBLK_ZONE_RESET_ALL:
		return status_of(reset_all(dev));
	case SBLK_ZONE_OPEN:
	case SBLK_ZONE_CLOSE:
	case SBLK_ZONE_FINISH:
		return status_of(sblk_zones_manage(dev->zones, pos, cmd->io.op));
	default:
		return BLK_STS_NOTSUPP;
	}
}

#ifdef SBLK_ZONED
int sblk_report_zones(struct gendisk *disk, sector_t sector, unsigned int nr, sblk_report_args args)
{
	struct sblk_device *dev = disk->private_data;
	u64 first = ((u64)sector << SECTOR_SHIFT) >> ilog2(dev->zones->zone_bytes);
	unsigned int i;

	if (first >= dev->zones->nr)
		return 0;
	nr = min_t(u64, nr, dev->zones->nr - first);
	for (i = 0; i < nr; i++) {
		/* A copy: what it is told to may sleep. */
		struct blk_zone zone = sblk_zones_report(dev->zones, first + i);
		int err = sblk_report_zone(disk, &zone, i, args);

		if (err)
			return err;
	}
	return nr;
}
#endif
