/* SPDX-License-Identifier: GPL-2.0-only */
/* All chance in the driver. */
#ifndef SBLK_RANDOM_H
#define SBLK_RANDOM_H

#include "platform.h"

/* A well mixed number for each (seed, n): splitmix64. The ABI promises it, so that a model can draw the same. */
static inline u64 sblk_random(u64 seed, u64 n)
{
	u64 z = seed + n * 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

#endif
