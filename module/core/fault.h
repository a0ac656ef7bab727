/* SPDX-License-Identifier: GPL-2.0-only */
/* The table of fault rules: which request does one act on. */
#ifndef SBLK_FAULT_H
#define SBLK_FAULT_H

#include <linux/sampleblk.h>

#include "platform.h"

/* The most sectors that one rule of bad sectors covers: it has a bit for each. */
#define SBLK_MAX_BAD_SECTORS (1U << 24)

struct sblk_fault_rule {
	struct sampleblk_rule rule;
	u64 seed;
	u64 since_ns; /* from when its windows are counted */
	atomic64_t matched;
	atomic64_t hits;
	/* SAMPLEBLK_FAULT_BAD_SECTOR only: the sectors that are good again, a bit for each from first_sector on. */
	unsigned long *repaired;
	u64 nr_bad; /* of the device, bad at the beginning */
	atomic64_t nr_repaired;
};

struct sblk_faults {
	u64 seed;
	u64 since_ns; /* from when the windows of rules that are set now are counted */
	u64 generation; /* the table's, counted by the device */
	u32 nr_rules;
	u32 nr_lent; /* the first of them, which another table frees */
	struct sblk_fault_rule *rules[];
};

/* What a request is to the rules. */
struct sblk_fault_request {
	u32 op; /* SAMPLEBLK_OP_* */
	u64 sector;
	u64 sectors; /* 0 of a flush */
	u64 now_ns;
};

/* What acts on it. */
struct sblk_fault {
	u32 action; /* SAMPLEBLK_FAULT_*, or SAMPLEBLK_FAULTS for none */
	u64 arg0;
	u64 arg1;
	u64 random; /* for what the action leaves to chance: by the seed, the rule and how often it matched */
	u64 generation; /* of the table */
	u64 first_sector; /* the rule's */
	u64 last_sector;
};

/* Room for `nr_rules`, of which the caller hands over each with sblk_fault_set(); NULL without memory. */
struct sblk_faults *sblk_faults_create(u32 nr_rules, u64 seed, u64 now_ns);
/*
 * Makes the rules of `old` the first of `faults`, which has room for them. They stay the old table's, which may be in use,
 * until sblk_faults_replace().
 */
void sblk_faults_borrow(struct sblk_faults *faults, const struct sblk_faults *old);
void sblk_faults_replace(struct sblk_faults *faults, struct sblk_faults *old);
/* NULL is fine. */
void sblk_faults_destroy(struct sblk_faults *faults);

/* 0, -ENOMEM, or -EINVAL for a rule that says nothing that can be done. May sleep. */
int sblk_fault_set(struct sblk_faults *faults, u32 index, const struct sampleblk_rule *rule, u64 capacity_sectors);

/*
 * The device is about to grow: bad sectors go on as far as their rules say. With nobody looking for a match. 0, -ENOMEM, or
 * -EINVAL when that would be too many for one rule. May sleep.
 */
int sblk_faults_grow(struct sblk_faults *faults, u64 capacity_sectors);

/* The rule with its counts. */
struct sampleblk_rule sblk_fault_get(const struct sblk_faults *faults, u32 index);

/* What acts on a request; false for nothing. Also repairs the bad sectors that a write is going to overwrite. */
bool sblk_fault_match(struct sblk_faults *faults, const struct sblk_fault_request *request, struct sblk_fault *fault);

#endif
