/* SPDX-License-Identifier: GPL-2.0-only */
/* How long a request takes: a latency model for each operation, throughput limits and stalls. */
#ifndef SBLK_TIMING_H
#define SBLK_TIMING_H

#include <linux/sampleblk.h>

#include "platform.h"

/* One operation's model, as uploaded. */
struct sblk_latency {
	u32 model;
	u32 nr_bins;
	u64 a;
	u64 b;
	u64 seed;
	u64 total; /* of all bins */
	atomic64_t drawn;
	struct sampleblk_bin bins[]; /* once checked, each count is of the bin and all before it */
};

/* Room for `nr_bins`; NULL without memory. */
struct sblk_latency *sblk_latency_create(u32 nr_bins);
void sblk_latency_destroy(struct sblk_latency *latency);

/* Once, after everything is filled in: 0, or -EINVAL for what is no model. */
int sblk_latency_check(struct sblk_latency *latency);

/* The next latency, in ns. */
u64 sblk_latency_draw(struct sblk_latency *latency);

struct sblk_throttle {
	u64 bytes_per_second;
	u64 iops;
	u64 stall_period_ns;
	u64 stall_ns;
	u64 stall_offset_ns;
	atomic64_t bytes_free_ns; /* when the next byte may pass */
	atomic64_t io_free_ns; /* when the next request may */
};

int sblk_throttle_check(const struct sblk_throttle *throttle);

/* When a request that came at `now_ns` has stood in line for the throughput that there is. */
u64 sblk_throttle_pass(struct sblk_throttle *throttle, u64 now_ns, u64 bytes);

/* When a request is answered that would be at `when_ns`: what falls into a stall waits for its end. */
u64 sblk_throttle_stall(const struct sblk_throttle *throttle, u64 when_ns);

#endif
