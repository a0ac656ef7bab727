/* SPDX-License-Identifier: GPL-2.0-only */
/* Counters of what a hardware queue has completed, per CPU: counting shares no cache line. */
#ifndef SBLK_STATS_H
#define SBLK_STATS_H

#include <linux/log2.h>
#include <linux/percpu.h>
#include <linux/types.h>

#include "core/op.h"

struct sblk_stats {
	u64 requests[SBLK_OPS];
	u64 bytes[SBLK_OPS];
	u64 fua;
	u64 errors;
	u64 deferred;
	u64 delayed;
	u64 faults;
	u64 batched;
	u64 polled;
};

struct sblk_histograms {
	u64 total_ns[SBLK_OPS];
	u64 buckets[SBLK_OPS][SAMPLEBLK_BUCKETS];
};

static inline void sblk_stats_count(struct sblk_stats __percpu *stats, enum sblk_op op, unsigned int bytes, bool fua)
{
	this_cpu_inc(stats->requests[op]);
	this_cpu_add(stats->bytes[op], bytes);
	if (fua)
		this_cpu_inc(stats->fua);
}

static inline void sblk_histograms_count(struct sblk_histograms __percpu *histograms, enum sblk_op op, u64 ns)
{
	this_cpu_add(histograms->total_ns[op], ns);
	this_cpu_inc(histograms->buckets[op][ns ? ilog2(ns) : 0]);
}

/* Adds what `stats` has counted to `counters`. */
void sblk_stats_sum(const struct sblk_stats __percpu *stats, struct sampleblk_counters *counters);
void sblk_histograms_sum(const struct sblk_histograms __percpu *histograms, struct sampleblk_histogram *histogram);

/* Nobody may be counting. */
void sblk_stats_reset(struct sblk_stats __percpu *stats);
void sblk_histograms_reset(struct sblk_histograms __percpu *histograms);

#endif
