/* SPDX-License-Identifier: GPL-2.0-only */
/* A zoned device's commands, and what it tells of its zones. */
#ifndef SBLK_ZONED_H
#define SBLK_ZONED_H

#include "block/command.h"
#include "compat.h"

/*
 * Decides, in one go, whether a write may go where it is to go, what rule of `faults` (or NULL) acts on it, and how far the
 * zone's write pointer moves for that. Under rcu_read_lock().
 */
blk_status_t sblk_zoned_admit(struct sblk_cmd *cmd, struct sblk_faults *faults);

/* Executes what is done to zones themselves. */
blk_status_t sblk_zoned_manage(struct sblk_cmd *cmd);

#ifdef SBLK_ZONED
int sblk_report_zones(struct gendisk *disk, sector_t sector, unsigned int nr, sblk_report_args args);
#endif

#endif
