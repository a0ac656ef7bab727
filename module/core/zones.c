// SPDX-License-Identifier: GPL-2.0-only
#include "core/zones.h"

#define SBLK_MIN_ZONE_BYTES (64ULL << 10)
#define SBLK_MAX_ZONE_BYTES (1ULL << 40)
#define SECTOR_SHIFT_OF_ABI 9

int sblk_zones_configure(struct sampleblk_config *config)
{
	u64 zone = config->zone_bytes;
	u64 nr;

	if (!zone)
		return config->zone_capacity_bytes || config->conventional_zones || config->max_open_zones ||
			       config->max_active_zones ? -EINVAL : 0;
	/*
	 * What a zone keeps is decided by its write pointer: a volatile cache may lose the middle of it, a discard forgets
	 * it, and the block layer splits neither that nor write-zeroes at zones. Bios would come in any order before Linux 6.10.
	 */
	if (config->flags & (SAMPLEBLK_F_CACHE | SAMPLEBLK_F_SECTOR_ATOMIC | SAMPLEBLK_F_DISCARD |
			     SAMPLEBLK_F_WRITE_ZEROES) ||
	    config->mode != SAMPLEBLK_MODE_MQ || config->atomic_write_unit_max_bytes)
		return -EINVAL;
	if (zone & (zone - 1) || zone < SBLK_MIN_ZONE_BYTES || zone > SBLK_MAX_ZONE_BYTES ||
	    config->capacity_bytes & (zone - 1))
		return -EINVAL;
	nr = config->capacity_bytes >> ilog2(zone);
	if (nr > SBLK_MAX_ZONES || config->conventional_zones >= nr)
		return -EINVAL;
	if (!config->zone_capacity_bytes)
		config->zone_capacity_bytes = zone;
	if (config->zone_capacity_bytes > zone || config->zone_capacity_bytes & (config->logical_block_bytes - 1))
		return -EINVAL;
	if (config->max_active_zones && config->max_open_zones > config->max_active_zones)
		return -EINVAL;
	return 0;
}

struct sblk_zones *sblk_zones_create(const struct sampleblk_config *config)
{
	u32 nr = config->capacity_bytes >> ilog2(config->zone_bytes);
	struct sblk_zones *zones = kvzalloc(struct_size(zones, zones, nr), GFP_KERNEL);
	u32 i;

	if (!zones)
		return NULL;
	zones->zone_bytes = config->zone_bytes;
	zones->usable_bytes = config->zone_capacity_bytes;
	zones->nr = nr;
	zones->conventional = config->conventional_zones;
	zones->max_open = config->max_open_zones;
	zones->max_active = config->max_active_zones;
	spin_lock_init(&zones->turn);
	spin_lock_init(&zones->lock);
	for (i = 0; i < nr; i++)
		zones->zones[i].cond = i < zones->conventional ? BLK_ZONE_COND_NOT_WP : BLK_ZONE_COND_EMPTY;
	return zones;
}

void sblk_zones_destroy(struct sblk_zones *zones)
{
	kvfree(zones);
}

int sblk_zones_change(struct sblk_zones *zones, int (*change)(void *arg), void *arg)
{
	int err = -ENOMEM;

	spin_lock(&zones->turn);
	if (likely(!zones->in_line))
		err = change(arg);
	zones->in_line += err == -ENOMEM;
	spin_unlock(&zones->turn);
	return err;
}

int sblk_zones_change_in_line(struct sblk_zones *zones, int (*change)(void *arg), void *arg)
{
	/* Whoever had a turn when it got in line is through, and nobody gets one before it has left. */
	int err = change(arg);

	spin_lock(&zones->turn);
	zones->in_line--;
	spin_unlock(&zones->turn);
	return err;
}

static u32 number_of(const struct sblk_zones *zones, u64 pos)
{
	return pos >> ilog2(zones->zone_bytes);
}

/* The zones of a condition that is counted; NULL for the others. */
static u32 *count_of(struct sblk_zones *zones, u8 cond)
{
	switch (cond) {
	case BLK_ZONE_COND_IMP_OPEN:
		return &zones->implicitly_open;
	case BLK_ZONE_COND_EXP_OPEN:
		return &zones->explicitly_open;
	case BLK_ZONE_COND_CLOSED:
		return &zones->closed;
	default:
		return NULL;
	}
}

static void set_cond(struct sblk_zones *zones, struct sblk_zone *zone, u8 cond)
{
	u32 *before = count_of(zones, zone->cond), *after = count_of(zones, cond);

	if (before)
		--*before;
	if (after)
		++*after;
	zone->cond = cond;
}

/* From open, to what it is when no room is kept for it. */
static void close_zone(struct sblk_zones *zones, struct sblk_zone *zone)
{
	set_cond(zones, zone, zone->written ? BLK_ZONE_COND_CLOSED : BLK_ZONE_COND_EMPTY);
}

/* Whether one more may be open. One that is open only since it was written to makes way. */
static int may_open(const struct sblk_zones *zones, const struct sblk_zone *zone)
{
	u32 open = zones->explicitly_open + zones->implicitly_open;

	if (zone->cond == BLK_ZONE_COND_EMPTY && zones->max_active && open + zones->closed >= zones->max_active)
		return -ENFILE;
	if (zones->max_open && open >= zones->max_open && !zones->implicitly_open)
		return -EMFILE;
	return 0;
}

/* After may_open(): makes room for one more. */
static void make_way(struct sblk_zones *zones)
{
	if (!zones->max_open || zones->explicitly_open + zones->implicitly_open < zones->max_open)
		return;
	for (;;) {
		struct sblk_zone *zone = &zones->zones[zones->next_to_close];

		zones->next_to_close = (zones->next_to_close + 1) % zones->nr;
		if (zone->cond == BLK_ZONE_COND_IMP_OPEN) {
			close_zone(zones, zone);
			return;
		}
	}
}

static bool is_open(const struct sblk_zone *zone)
{
	return zone->cond == BLK_ZONE_COND_IMP_OPEN || zone->cond == BLK_ZONE_COND_EXP_OPEN;
}

/* Makes room among the open zones for one that is not. */
static int take_room(struct sblk_zones *zones, const struct sblk_zone *zone)
{
	int err = may_open(zones, zone);

	if (!err)
		make_way(zones);
	return err;
}

static int admit(const struct sblk_zones *zones, u64 *pos, u64 len, bool append)
{
	u32 number = number_of(zones, *pos);
	const struct sblk_zone *zone = &zones->zones[number];
	u64 start = number * zones->zone_bytes;

	if (*pos + len > start + zones->zone_bytes)
		return -EIO;
	if (zone->cond == BLK_ZONE_COND_NOT_WP)
		return append ? -EIO : 0;
	if (append && *pos != start)
		return -EIO;
	if (!append && *pos != start + zone->written)
		return -EIO;
	if (zone->cond == BLK_ZONE_COND_FULL || zone->written + len > zones->usable_bytes)
		return -EIO;
	if (append)
		*pos = start + zone->written;
	return is_open(zone) ? 0 : may_open(zones, zone);
}

int sblk_zones_admit(struct sblk_zones *zones, u64 *pos, u64 len, bool append)
{
	unsigned long irq;
	int err;

	spin_lock_irqsave(&zones->lock, irq);
	err = admit(zones, pos, len, append);
	spin_unlock_irqrestore(&zones->lock, irq);
	return err;
}

void sblk_zones_advance(struct sblk_zones *zones, u64 pos, u64 len)
{
	struct sblk_zone *zone = &zones->zones[number_of(zones, pos)];
	unsigned long irq;

	if (!len || zone->cond == BLK_ZONE_COND_NOT_WP)
		return;
	spin_lock_irqsave(&zones->lock, irq);
	if (!is_open(zone)) {
		make_way(zones);
		set_cond(zones, zone, BLK_ZONE_COND_IMP_OPEN);
	}
	/* One who reads up to there reads what was written. */
	smp_store_release(&zone->written, zone->written + len);
	if (zone->written == zones->usable_bytes)
		set_cond(zones, zone, BLK_ZONE_COND_FULL);
	spin_unlock_irqrestore(&zones->lock, irq);
}

static int manage(struct sblk_zones *zones, struct sblk_zone *zone, enum sblk_op op)
{
	int err = 0;

	if (zone->cond == BLK_ZONE_COND_NOT_WP)
		return -EIO;
	switch (op) {
	case SBLK_ZONE_OPEN:
		if (zone->cond == BLK_ZONE_COND_FULL)
			return -EIO;
		if (!is_open(zone))
			err = take_room(zones, zone);
		if (!err)
			set_cond(zones, zone, BLK_ZONE_COND_EXP_OPEN);
		return err;
	case SBLK_ZONE_CLOSE:
		if (zone->cond == BLK_ZONE_COND_CLOSED)
			return 0;
		if (!is_open(zone))
			return -EIO;
		close_zone(zones, zone);
		return 0;
	case SBLK_ZONE_FINISH:
		/* It is open for a moment. */
		if (zone->cond == BLK_ZONE_COND_EMPTY || zone->cond == BLK_ZONE_COND_CLOSED)
			err = take_room(zones, zone);
		if (!err)
			set_cond(zones, zone, BLK_ZONE_COND_FULL);
		return err;
	default:
		return -EIO;
	}
}

int sblk_zones_manage(struct sblk_zones *zones, u64 pos, enum sblk_op op)
{
	unsigned long irq;
	int err;

	spin_lock_irqsave(&zones->lock, irq);
	err = manage(zones, &zones->zones[number_of(zones, pos)], op);
	spin_unlock_irqrestore(&zones->lock, irq);
	return err;
}

int sblk_zones_reset(struct sblk_zones *zones, u64 pos)
{
	struct sblk_zone *zone = &zones->zones[number_of(zones, pos)];
	unsigned long irq;

	if (number_of(zones, pos) < zones->conventional)
		return -EIO;
	spin_lock_irqsave(&zones->lock, irq);
	set_cond(zones, zone, BLK_ZONE_COND_EMPTY);
	WRITE_ONCE(zone->written, 0);
	spin_unlock_irqrestore(&zones->lock, irq);
	return 0;
}

u64 sblk_zones_readable(struct sblk_zones *zones, u64 pos, u64 len)
{
	u32 number = number_of(zones, pos);
	u64 end;

	if (number < zones->conventional)
		return len;
	end = number * zones->zone_bytes + smp_load_acquire(&zones->zones[number].written);
	return pos < end ? min_t(u64, len, end - pos) : 0;
}

void sblk_zones_power_cut(struct sblk_zones *zones)
{
	unsigned long irq;
	u32 i;

	for (i = zones->conventional; i < zones->nr; i++) {
		struct sblk_zone *zone = &zones->zones[i];

		spin_lock_irqsave(&zones->lock, irq);
		if (is_open(zone))
			close_zone(zones, zone);
		spin_unlock_irqrestore(&zones->lock, irq);
	}
}

struct blk_zone sblk_zones_report(struct sblk_zones *zones, u32 number)
{
	u64 start = number * zones->zone_bytes;
	struct blk_zone report = {
		.start = start >> SECTOR_SHIFT_OF_ABI,
		.len = zones->zone_bytes >> SECTOR_SHIFT_OF_ABI,
		.type = BLK_ZONE_TYPE_CONVENTIONAL,
		.cond = BLK_ZONE_COND_NOT_WP,
		.capacity = zones->zone_bytes >> SECTOR_SHIFT_OF_ABI,
	};
	unsigned long irq;

	if (number < zones->conventional) {
		report.wp = report.start + report.len;
		return report;
	}
	report.type = BLK_ZONE_TYPE_SEQWRITE_REQ;
	report.capacity = zones->usable_bytes >> SECTOR_SHIFT_OF_ABI;
	spin_lock_irqsave(&zones->lock, irq);
	report.cond = zones->zones[number].cond;
	report.wp = report.start + (zones->zones[number].written >> SECTOR_SHIFT_OF_ABI);
	spin_unlock_irqrestore(&zones->lock, irq);
	/* Nowhere, and this is how that is said. */
	if (report.cond == BLK_ZONE_COND_FULL)
		report.wp = report.start + report.len;
	return report;
}
