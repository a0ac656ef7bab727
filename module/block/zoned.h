/* SPDX-License-Identifier: GPL-2.0-only */
/* A zoned device's commands, and what it tells of its zones. */
#ifndef SBLK_ZONED_H
#define SBLK_ZONED_H

#include "block/command.h"
#include "compat.h"

/* --- in its turn (core/zones.h) */

/* Whether a write may go where it is to go; an append is told where that is. */
blk_status_t sblk_zoned_admit(struct sblk_cmd *cmd);

/* It has been executed under the rule that acts on it: moves the write pointer by that. */
void sblk_zoned_advance(struct sblk_cmd *cmd);

/* Executes what is done to zones themselves. */
blk_status_t sblk_zoned_manage(struct sblk_cmd *cmd);

#ifdef SBLK_ZONED
int sblk_report_zones(struct gendisk *disk, sector_t sector, unsigned int nr, sblk_report_args args);
#endif

#endif
