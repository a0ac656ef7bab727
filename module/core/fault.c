// SPDX-License-Identifier: GPL-2.0-only
#include "core/fault.h"

#include "core/random.h"

#define READS (1U << SAMPLEBLK_OP_READ)
#define WRITES (1U << SAMPLEBLK_OP_WRITE)
#define ZEROINGS (1U << SAMPLEBLK_OP_WRITE_ZEROES)
#define FLUSHES (1U << SAMPLEBLK_OP_FLUSH)

struct sblk_faults *sblk_faults_create(u32 nr_rules, u64 seed, u64 now_ns)
{
	struct sblk_faults *faults = kvzalloc(struct_size(faults, rules, nr_rules), GFP_KERNEL);

	if (!faults)
		return NULL;
	faults->seed = seed;
	faults->since_ns = now_ns;
	faults->nr_rules = nr_rules;
	return faults;
}

void sblk_faults_destroy(struct sblk_faults *faults)
{
	u32 i;

	if (!faults)
		return;
	for (i = faults->nr_lent; i < faults->nr_rules; i++) {
		if (faults->rules[i])
			kvfree(faults->rules[i]->repaired);
		kfree(faults->rules[i]);
	}
	kvfree(faults);
}

void sblk_faults_borrow(struct sblk_faults *faults, const struct sblk_faults *old)
{
	memcpy(faults->rules, old->rules, old->nr_rules * sizeof(old->rules[0]));
	faults->nr_lent = old->nr_rules;
	faults->generation = old->generation;
}

void sblk_faults_replace(struct sblk_faults *faults, struct sblk_faults *old)
{
	faults->nr_lent = 0;
	faults->seed = old->seed;
	old->nr_lent = old->nr_rules;
}

/* Whether the action makes sense of the rule's operations and arguments. */
static bool action_is_valid(const struct sampleblk_rule *rule, u64 capacity_sectors)
{
	switch (rule->action) {
	case SAMPLEBLK_FAULT_ERROR:
		return rule->arg0 && rule->arg0 < 4096 && !rule->arg1;
	case SAMPLEBLK_FAULT_DELAY:
		return rule->arg0 <= SAMPLEBLK_MAX_LATENCY_NS && !rule->arg1;
	case SAMPLEBLK_FAULT_HANG:
	case SAMPLEBLK_FAULT_HOLD:
		return !rule->arg0 && !rule->arg1;
	case SAMPLEBLK_FAULT_LOST_WRITE:
		return !(rule->ops & (READS | FLUSHES)) && !rule->arg0 && !rule->arg1;
	case SAMPLEBLK_FAULT_TORN_WRITE:
		return rule->ops == WRITES && rule->arg1 < 4096;
	case SAMPLEBLK_FAULT_MISDIRECTED_WRITE:
		return rule->ops == WRITES && rule->arg0 < capacity_sectors && !rule->arg1;
	case SAMPLEBLK_FAULT_CORRUPT:
		return !(rule->ops & ~(READS | WRITES)) && rule->arg0 <= 64 && !rule->arg1;
	case SAMPLEBLK_FAULT_NOT_DURABLE:
		return !(rule->ops & ~(WRITES | FLUSHES)) && !rule->arg0 && !rule->arg1;
	case SAMPLEBLK_FAULT_SET_BYTE:
		return !(rule->ops & ~(READS | WRITES)) && rule->arg1 <= 0xff;
	case SAMPLEBLK_FAULT_CORRUPT_TAG:
		return !(rule->ops & ~(READS | WRITES)) && rule->arg0 <= SAMPLEBLK_TAG_REF && rule->arg1 &&
		       rule->arg1 <= (rule->arg0 == SAMPLEBLK_TAG_REF ? U32_MAX : U16_MAX);
	case SAMPLEBLK_FAULT_BAD_SECTOR:
		return rule->ops & READS && !(rule->ops & ~(READS | WRITES | ZEROINGS)) &&
		       !(rule->arg0 & ~(u64)SAMPLEBLK_BAD_ALL) && !rule->arg1;
	}
	return false;
}

static int rule_check(const struct sampleblk_rule *rule, u64 capacity_sectors)
{
	u64 period;

	if (!rule->ops || rule->ops >= 1U << SAMPLEBLK_OPS)
		return -EINVAL;
	if (rule->first_sector > rule->last_sector || rule->probability > SAMPLEBLK_PROBABILITY_ONE)
		return -EINVAL;
	if (rule->matched || rule->hits)
		return -EINVAL;
	if ((rule->up_ns && !rule->down_ns) || check_add_overflow(rule->up_ns, rule->down_ns, &period))
		return -EINVAL;
	return action_is_valid(rule, capacity_sectors) ? 0 : -EINVAL;
}

/* How many sectors of a device are bad by a rule that begins within it. */
static u64 bad_sectors(const struct sampleblk_rule *rule, u64 capacity_sectors)
{
	return min_t(u64, rule->last_sector, capacity_sectors - 1) - rule->first_sector + 1;
}

int sblk_fault_set(struct sblk_faults *faults, u32 index, const struct sampleblk_rule *rule, u64 capacity_sectors)
{
	struct sblk_fault_rule *slot;
	int err = rule_check(rule, capacity_sectors);

	if (err)
		return err;
	slot = kzalloc(sizeof(*slot), GFP_KERNEL);
	if (!slot)
		return -ENOMEM;
	faults->rules[index] = slot;
	slot->rule = *rule;
	slot->seed = faults->seed;
	slot->since_ns = faults->since_ns;
	if (rule->action != SAMPLEBLK_FAULT_BAD_SECTOR)
		return 0;
	if (rule->first_sector >= capacity_sectors)
		return -EINVAL;
	slot->nr_bad = bad_sectors(rule, capacity_sectors);
	if (slot->nr_bad > SBLK_MAX_BAD_SECTORS)
		return -EINVAL;
	slot->repaired = kvcalloc(BITS_TO_LONGS(slot->nr_bad), sizeof(long), GFP_KERNEL);
	return slot->repaired ? 0 : -ENOMEM;
}

int sblk_faults_grow(struct sblk_faults *faults, u64 capacity_sectors)
{
	u32 i;

	for (i = 0; i < faults->nr_rules; i++) {
		struct sblk_fault_rule *slot = faults->rules[i];
		unsigned long *repaired;
		u64 nr_bad;

		if (!slot->repaired || slot->rule.first_sector >= capacity_sectors)
			continue;
		nr_bad = bad_sectors(&slot->rule, capacity_sectors);
		if (nr_bad > SBLK_MAX_BAD_SECTORS)
			return -EINVAL;
		if (nr_bad <= slot->nr_bad)
			continue;
		repaired = kvcalloc(BITS_TO_LONGS(nr_bad), sizeof(long), GFP_KERNEL);
		if (!repaired)
			return -ENOMEM;
		memcpy(repaired, slot->repaired, BITS_TO_LONGS(slot->nr_bad) * sizeof(long));
		kvfree(slot->repaired);
		slot->repaired = repaired;
		slot->nr_bad = nr_bad;
	}
	return 0;
}

struct sampleblk_rule sblk_fault_get(const struct sblk_faults *faults, u32 index)
{
	const struct sblk_fault_rule *slot = faults->rules[index];
	struct sampleblk_rule rule = slot->rule;

	rule.matched = atomic64_read(&slot->matched);
	rule.hits = atomic64_read(&slot->hits);
	if (rule.action == SAMPLEBLK_FAULT_BAD_SECTOR)
		rule.arg1 = atomic64_read(&slot->nr_repaired);
	return rule;
}

/* Whether a matching rule acts this time; counts. */
static bool fires(struct sblk_faults *faults, u32 index, u64 *random)
{
	struct sblk_fault_rule *slot = faults->rules[index];
	const struct sampleblk_rule *rule = &slot->rule;
	u64 match = atomic64_inc_return(&slot->matched) - 1;
	u64 hit;

	if (match < rule->skip)
		return false;
	if (rule->every > 1) {
		u64 nth;

		div64_u64_rem(match - rule->skip, rule->every, &nth);
		if (nth != rule->every - 1)
			return false;
	}
	/* The chance of a match is its own, so that racing requests change who draws it and not what is drawn. */
	*random = sblk_random(slot->seed + index, match + 1); /* the number 0 of seed 0 is 0 */
	if (rule->probability) {
		u64 drawn;

		div64_u64_rem(*random >> 11, SAMPLEBLK_PROBABILITY_ONE, &drawn);
		if (drawn >= rule->probability)
			return false;
	}
	*random = sblk_random(~slot->seed + index, match + 1);
	hit = atomic64_inc_return(&slot->hits);
	if (rule->count && hit > rule->count) {
		atomic64_dec(&slot->hits);
		return false;
	}
	return true;
}

/* Of each up_ns + down_ns the rule is awake in the last down_ns. */
static bool is_awake(const struct sblk_fault_rule *slot, u64 now_ns)
{
	const struct sampleblk_rule *rule = &slot->rule;
	u64 phase;

	if (!rule->down_ns)
		return true;
	/* One that came just before the rule was set comes with it. */
	div64_u64_rem(max_t(u64, now_ns, slot->since_ns) - slot->since_ns, rule->up_ns + rule->down_ns, &phase);
	return phase >= rule->up_ns;
}

static bool touches(const struct sampleblk_rule *rule, const struct sblk_fault_request *request)
{
	return !request->sectors ||
	       (request->sector <= rule->last_sector && request->sector + request->sectors - 1 >= rule->first_sector);
}

/* The bad sectors' bits that a request touches: from `*bit`, their number. */
static u64 bad_range(const struct sblk_fault_rule *slot, const struct sblk_fault_request *request, u64 *bit)
{
	u64 first = slot->rule.first_sector;
	u64 from = max_t(u64, request->sector, first);
	u64 to = min_t(u64, request->sector + request->sectors, first + slot->nr_bad);

	*bit = from - first;
	return from < to ? to - from : 0;
}

static void repair(struct sblk_fault_rule *slot, const struct sblk_fault_request *request)
{
	u64 bit, count = bad_range(slot, request, &bit);

	for (; count; bit++, count--)
		if (!test_and_set_bit(bit, slot->repaired))
			atomic64_inc(&slot->nr_repaired);
}

/* How many sectors of a request lie before the first bad one; all when there is none. */
static u64 good_sectors(const struct sblk_fault_rule *slot, const struct sblk_fault_request *request)
{
	u64 bit, count = bad_range(slot, request, &bit);

	for (; count; bit++, count--)
		if (!test_bit(bit, slot->repaired))
			return slot->rule.first_sector + bit - request->sector;
	return request->sectors;
}

/* Whether a rule is about the request at all, before anything is counted. */
static bool concerns(const struct sblk_fault_rule *slot, const struct sblk_fault_request *request)
{
	const struct sampleblk_rule *rule = &slot->rule;

	if (!(rule->ops & 1U << request->op) || !touches(rule, request) || !is_awake(slot, request->now_ns))
		return false;
	if (rule->action == SAMPLEBLK_FAULT_SET_BYTE)
		return rule->arg0 < request->sectors << 9;
	if (rule->action != SAMPLEBLK_FAULT_BAD_SECTOR)
		return true;
	if (request->op != SAMPLEBLK_OP_READ && !(rule->arg0 & SAMPLEBLK_BAD_WRITES))
		return false;
	return good_sectors(slot, request) < request->sectors;
}

/* A write that is going to reach the medium gives bad sectors new places. */
static void repair_by_write(struct sblk_faults *faults, const struct sblk_fault_request *request)
{
	u32 i;

	for (i = 0; i < faults->nr_rules; i++) {
		struct sblk_fault_rule *slot = faults->rules[i];

		if (slot->repaired && slot->rule.ops & 1U << request->op && !(slot->rule.arg0 & SAMPLEBLK_BAD_WRITES))
			repair(slot, request);
	}
}

static bool reaches_the_medium(const struct sblk_fault *fault)
{
	switch (fault->action) {
	case SAMPLEBLK_FAULT_DELAY:
	case SAMPLEBLK_FAULT_HOLD:
	case SAMPLEBLK_FAULT_CORRUPT:
	case SAMPLEBLK_FAULT_SET_BYTE:
	case SAMPLEBLK_FAULT_CORRUPT_TAG:
	case SAMPLEBLK_FAULT_NOT_DURABLE:
	case SAMPLEBLK_FAULTS:
		return true;
	}
	return false;
}

bool sblk_fault_match(struct sblk_faults *faults, const struct sblk_fault_request *request, struct sblk_fault *fault)
{
	u32 i;

	*fault = (struct sblk_fault){ .action = SAMPLEBLK_FAULTS, .generation = faults->generation };
	for (i = 0; i < faults->nr_rules; i++) {
		struct sblk_fault_rule *slot = faults->rules[i];
		const struct sampleblk_rule *rule = &slot->rule;

		if (!concerns(slot, request) || !fires(faults, i, &fault->random))
			continue;
		fault->action = rule->action;
		fault->arg0 = rule->arg0;
		fault->arg1 = rule->arg1;
		fault->first_sector = rule->first_sector;
		fault->last_sector = rule->last_sector;
		if (rule->action == SAMPLEBLK_FAULT_BAD_SECTOR) {
			fault->arg0 = good_sectors(slot, request);
			if (rule->arg0 & SAMPLEBLK_BAD_ONCE)
				repair(slot, request);
		}
		break;
	}
	if ((request->op == SAMPLEBLK_OP_WRITE || request->op == SAMPLEBLK_OP_WRITE_ZEROES) && reaches_the_medium(fault))
		repair_by_write(faults, request);
	return fault->action != SAMPLEBLK_FAULTS;
}
