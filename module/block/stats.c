// SPDX-License-Identifier: GPL-2.0-only
#include "block/stats.h"

#include <linux/cpumask.h>
#include <linux/string.h>

void sblk_stats_sum(const struct sblk_stats __percpu *stats, struct sampleblk_counters *counters)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		const struct sblk_stats *s = per_cpu_ptr(stats, cpu);

		counters->reads += READ_ONCE(s->requests[SBLK_READ]);
		counters->writes += READ_ONCE(s->requests[SBLK_WRITE]);
		counters->discards += READ_ONCE(s->requests[SBLK_DISCARD]);
		counters->write_zeroes += READ_ONCE(s->requests[SBLK_WRITE_ZEROES]);
		counters->flushes += READ_ONCE(s->requests[SBLK_FLUSH]);
		counters->fua_writes += READ_ONCE(s->fua);
		counters->read_bytes += READ_ONCE(s->bytes[SBLK_READ]);
		counters->write_bytes += READ_ONCE(s->bytes[SBLK_WRITE]);
		counters->discard_bytes += READ_ONCE(s->bytes[SBLK_DISCARD]);
		counters->write_zeroes_bytes += READ_ONCE(s->bytes[SBLK_WRITE_ZEROES]);
		counters->errors += READ_ONCE(s->errors);
		counters->deferred += READ_ONCE(s->deferred);
		counters->delayed += READ_ONCE(s->delayed);
		counters->faults += READ_ONCE(s->faults);
		counters->batched += READ_ONCE(s->batched);
		counters->polled += READ_ONCE(s->polled);
	}
}

void sblk_histograms_sum(const struct sblk_histograms __percpu *histograms, struct sampleblk_histogram *histogram)
{
	unsigned int cpu, i;

	for_each_possible_cpu(cpu) {
		const struct sblk_histograms *h = per_cpu_ptr(histograms, cpu);

		histogram->total_ns += READ_ONCE(h->total_ns[histogram->op]);
		for (i = 0; i < SAMPLEBLK_BUCKETS; i++)
			histogram->buckets[i] += READ_ONCE(h->buckets[histogram->op][i]);
	}
}

void sblk_stats_reset(struct sblk_stats __percpu *stats)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		memset(per_cpu_ptr(stats, cpu), 0, sizeof(*stats));
}

void sblk_histograms_reset(struct sblk_histograms __percpu *histograms)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		memset(per_cpu_ptr(histograms, cpu), 0, sizeof(*histograms));
}
