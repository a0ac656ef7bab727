// SPDX-License-Identifier: GPL-2.0-only
#include "stats.h"

#include <linux/cpumask.h>
#include <linux/sampleblk.h>

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
	}
}
