/* SPDX-License-Identifier: GPL-2.0-only */
/* The operations of a device, as the ABI numbers them. */
#ifndef SBLK_OP_H
#define SBLK_OP_H

#include <linux/sampleblk.h>

enum sblk_op {
	SBLK_READ = SAMPLEBLK_OP_READ,
	SBLK_WRITE = SAMPLEBLK_OP_WRITE,
	SBLK_DISCARD = SAMPLEBLK_OP_DISCARD,
	SBLK_WRITE_ZEROES = SAMPLEBLK_OP_WRITE_ZEROES,
	SBLK_FLUSH = SAMPLEBLK_OP_FLUSH,
	SBLK_OPS = SAMPLEBLK_OPS, /* none of them */
	/* Of zones: not counted, and without rules or models. */
	SBLK_ZONE_OPEN,
	SBLK_ZONE_CLOSE,
	SBLK_ZONE_FINISH,
	SBLK_ZONE_RESET,
	SBLK_ZONE_RESET_ALL,
};

#define SBLK_OP_NAMES \
	{ SBLK_READ, "read" }, { SBLK_WRITE, "write" }, { SBLK_DISCARD, "discard" }, \
	{ SBLK_WRITE_ZEROES, "write_zeroes" }, { SBLK_FLUSH, "flush" }, { SBLK_ZONE_OPEN, "zone_open" }, \
	{ SBLK_ZONE_CLOSE, "zone_close" }, { SBLK_ZONE_FINISH, "zone_finish" }, { SBLK_ZONE_RESET, "zone_reset" }, \
	{ SBLK_ZONE_RESET_ALL, "zone_reset_all" }

#endif
