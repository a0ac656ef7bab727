// SPDX-License-Identifier: GPL-2.0-only
#include "block/freeze.h"

#include <linux/percpu-refcount.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "block/command.h"
#include "compat.h"

#define SBLK_FREEZE_STEP (HZ / 50 + 1)
/* The longest latency, and that of a line of others before it. */
#define SBLK_FREEZE_DEADLINE (2 * (SAMPLEBLK_MAX_LATENCY_NS / NSEC_PER_SEC) * HZ)

/* Ends what would not end by itself: what hangs or is held, and what nobody polls for any more. */
static void release_stuck(struct sblk_device *dev)
{
	sblk_cmd_release(dev, BIT(SBLK_WAIT_HUNG), BLK_STS_IOERR, SBLK_EVERY_RULE);
	sblk_cmd_release(dev, BIT(SBLK_WAIT_HELD), BLK_STS_OK, SBLK_EVERY_RULE);
	sblk_cmd_end_polled(dev);
}

static bool wait_a_step(struct sblk_device *dev)
{
	if (!blk_mq_freeze_queue_wait_timeout(dev->disk->queue, SBLK_FREEZE_STEP))
		return false;
	return wait_event_timeout(dev->bios_wait, !atomic_read(&dev->bios), SBLK_FREEZE_STEP);
}

int sblk_freeze(struct sblk_device *dev, struct sblk_freeze *freeze)
{
	unsigned long deadline = jiffies + SBLK_FREEZE_DEADLINE;
	int err = 0;

	blk_freeze_queue_start(dev->disk->queue);
	freeze->noio = memalloc_noio_save();
	do {
		release_stuck(dev);
		if (wait_a_step(dev))
			return 0;
		if (signal_pending(current))
			err = -EINTR;
		else if (time_after(jiffies, deadline))
			err = -EBUSY;
	} while (!err);
	sblk_unfreeze(dev, freeze);
	return err;
}

void sblk_freeze_often(struct sblk_device *dev)
{
	/* As blk_pre_runtime_suspend() does: a percpu counter is killed through a grace period of RCU, an atomic one at once. */
	percpu_ref_switch_to_atomic_sync(&dev->disk->queue->q_usage_counter);
}

void sblk_unfreeze(struct sblk_device *dev, struct sblk_freeze *freeze)
{
	memalloc_noio_restore(freeze->noio);
	sblk_unfreeze_queue(dev->disk->queue);
}

void sblk_drain_begin(struct sblk_device *dev)
{
	WRITE_ONCE(dev->draining, true);
	release_stuck(dev);
}

void sblk_drain_end(struct sblk_device *dev)
{
	WRITE_ONCE(dev->draining, false);
}

void sblk_close(struct sblk_device *dev)
{
	WRITE_ONCE(dev->closing, true);
	/* From here on every command sees it before it could wait, and none is in the plain path any more. */
	set_bit(SBLK_SLOW_CLOSING, &dev->slow_path);
	synchronize_rcu_expedited();
	sblk_cmd_release(dev, SBLK_EVERY_WAY, BLK_STS_IOERR, SBLK_EVERY_RULE);
}
