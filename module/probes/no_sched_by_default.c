// SPDX-License-Identifier: GPL-2.0-only
// 5.14: a queue can ask for no scheduler unless the user sets one.
#include <linux/blk-mq.h>

int probe(void)
{
	return BLK_MQ_F_NO_SCHED_BY_DEFAULT;
}
