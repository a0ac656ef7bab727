/* SPDX-License-Identifier: GPL-2.0-only */
/* The table of fault rules: which request does one act on. */
#ifndef SBLK_FAULT_H
#define SBLK_FAULT_H

#include <linux/sampleblk.h>

#include "platform.h"

struct sblk_fault_rule {
	struct sampleblk_rule rule;
	atomic64_t matched;
	atomic64_t hits;
};

struct sblk_faults {
	struct rcu_head rcu;
	u64 seed;
	u32 nr_rules;
	struct sblk_fault_rule rules[];
};

/* Room for `nr_rules`, of which the caller fills in `rule`; NULL without memory. */
struct sblk_faults *sblk_faults_create(u32 nr_rules, u64 seed);
void sblk_faults_destroy(struct sblk_faults *faults);

/* 0, or -EINVAL for a rule that says nothing that can be done. */
int sblk_fault_check(const struct sampleblk_rule *rule, u64 capacity_sectors);

/*
 * The rule that acts on a request, or NULL. `random` is then a number for whatever the action leaves to chance: by the
 * seed, the rule and how often it has fired.
 */
const struct sampleblk_rule *sblk_fault_match(struct sblk_faults *faults, u32 op, u64 sector, u64 sectors, u64 *random);

#endif
