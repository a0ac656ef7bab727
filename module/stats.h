/* SPDX-License-Identifier: GPL-2.0-only */
/* Counters of what a hardware queue has completed, per CPU: counting shares no cache line. */
#ifndef SBLK_STATS_H
#define SBLK_STATS_H

#include <linux/percpu.h>
#include <linux/types.h>

struct sampleblk_counters;

enum sblk_op { SBLK_READ, SBLK_WRITE, SBLK_DISCARD, SBLK_WRITE_ZEROES, SBLK_FLUSH, SBLK_OPS };

struct sblk_stats {
	u64 requests[SBLK_OPS];
	u64 bytes[SBLK_OPS];
	u64 fua;
	u64 errors;
	u64 deferred;
};

static inline void sblk_stats_count(struct sblk_stats __percpu *stats, enum sblk_op op, unsigned int bytes, bool fua)
{
	this_cpu_inc(stats->requests[op]);
	this_cpu_add(stats->bytes[op], bytes);
	if (fua)
		this_cpu_inc(stats->fua);
}

/* Adds what `stats` has counted to `counters`. */
void sblk_stats_sum(const struct sblk_stats __percpu *stats, struct sampleblk_counters *counters);

#endif
