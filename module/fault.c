// SPDX-License-Identifier: GPL-2.0-only
#include "fault.h"

#include "cache.h"

struct sblk_faults *sblk_faults_create(u32 nr_rules, u64 seed)
{
	struct sblk_faults *faults = kvzalloc(struct_size(faults, rules, nr_rules), GFP_KERNEL);

	if (!faults)
		return NULL;
	faults->seed = seed;
	faults->nr_rules = nr_rules;
	return faults;
}

void sblk_faults_destroy(struct sblk_faults *faults)
{
	kvfree(faults);
}

int sblk_fault_check(const struct sampleblk_rule *rule, u64 capacity_sectors)
{
	const u32 write = 1U << SAMPLEBLK_OP_WRITE;
	const u32 read = 1U << SAMPLEBLK_OP_READ;

	if (!rule->ops || rule->ops >= 1U << SAMPLEBLK_OPS || rule->action >= SAMPLEBLK_FAULTS)
		return -EINVAL;
	if (rule->first_sector > rule->last_sector || rule->probability > SAMPLEBLK_PROBABILITY_ONE)
		return -EINVAL;
	if (rule->matched || rule->hits || rule->reserved[0] || rule->reserved[1])
		return -EINVAL;
	switch (rule->action) {
	case SAMPLEBLK_FAULT_ERROR:
		return rule->arg0 && rule->arg0 < 4096 && !rule->arg1 ? 0 : -EINVAL;
	case SAMPLEBLK_FAULT_DELAY:
		return rule->arg0 <= SAMPLEBLK_MAX_LATENCY_NS && !rule->arg1 ? 0 : -EINVAL;
	case SAMPLEBLK_FAULT_HANG:
		return !rule->arg0 && !rule->arg1 ? 0 : -EINVAL;
	case SAMPLEBLK_FAULT_LOST_WRITE:
		return !(rule->ops & (read | 1U << SAMPLEBLK_OP_FLUSH)) && !rule->arg0 && !rule->arg1 ? 0 : -EINVAL;
	case SAMPLEBLK_FAULT_TORN_WRITE:
		return rule->ops == write && rule->arg1 < 4096 ? 0 : -EINVAL;
	case SAMPLEBLK_FAULT_MISDIRECTED_WRITE:
		return rule->ops == write && rule->arg0 < capacity_sectors && !rule->arg1 ? 0 : -EINVAL;
	case SAMPLEBLK_FAULT_CORRUPT:
		return !(rule->ops & ~(read | write)) && rule->arg0 <= 64 && !rule->arg1 ? 0 : -EINVAL;
	}
	return -EINVAL;
}

/* Whether a matching rule acts this time; counts. */
static bool fires(struct sblk_faults *faults, u32 index, u64 *random)
{
	struct sblk_fault_rule *slot = &faults->rules[index];
	const struct sampleblk_rule *rule = &slot->rule;
	u64 match = atomic64_inc_return(&slot->matched) - 1;
	u64 hit;

	if (match < rule->skip)
		return false;
	if (rule->every > 1 && (match - rule->skip) % rule->every != rule->every - 1)
		return false;
	/* The chance of a match is its own, so that racing requests change who draws it and not what is drawn. */
	*random = sblk_random(faults->seed + index, match);
	if (rule->probability && (*random >> 11) % SAMPLEBLK_PROBABILITY_ONE >= rule->probability)
		return false;
	*random = sblk_random(~faults->seed + index, match);
	hit = atomic64_inc_return(&slot->hits);
	if (rule->count && hit > rule->count) {
		atomic64_dec(&slot->hits);
		return false;
	}
	return true;
}

const struct sampleblk_rule *sblk_fault_match(struct sblk_faults *faults, u32 op, u64 sector, u64 sectors, u64 *random)
{
	u32 i;

	for (i = 0; i < faults->nr_rules; i++) {
		const struct sampleblk_rule *rule = &faults->rules[i].rule;

		if (!(rule->ops & 1U << op))
			continue;
		if (sectors && (sector > rule->last_sector || sector + sectors - 1 < rule->first_sector))
			continue;
		if (fires(faults, i, random))
			return rule;
	}
	return NULL;
}
