// SPDX-License-Identifier: GPL-2.0-only
// 6.13: hrtimer_setup() takes the function.
#include <linux/hrtimer.h>

void probe(struct hrtimer *timer)
{
	hrtimer_setup(timer, NULL, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
}
