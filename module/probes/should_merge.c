// SPDX-License-Identifier: GPL-2.0-only
// Until 6.13: merging has to be asked for.
#include <linux/blk-mq.h>

int probe(void)
{
	return BLK_MQ_F_SHOULD_MERGE;
}
