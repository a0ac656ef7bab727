/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the driver's data structures need of their surroundings. In the kernel that is the kernel; under the unit tests
 * and their sanitizers it is tests/user.h, which offers the same names. store.c, fault.c, timing.c, log.c, cache.c and
 * journal.c include this and nothing else of the kernel.
 */
#ifndef SBLK_PLATFORM_H
#define SBLK_PLATFORM_H

#ifdef __KERNEL__

#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/kernel.h>
#include <linux/kref.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/types.h>

#else
#include "tests/user.h"
#endif

#endif
