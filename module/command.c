// SPDX-License-Identifier: GPL-2.0-only
/* The life of a command: fault, execution, delay, completion. */
#include "compat.h"
#include "sampleblk.h"
#include "trace.h"

DEFINE_STATIC_KEY_FALSE(sblk_extras_key);

blk_status_t sblk_cmd_account(struct sblk_cmd *cmd, blk_status_t status)
{
	struct sblk_queue *queue = cmd->queue;
	struct sblk_device *dev = queue->dev;
	enum sblk_op op = cmd->io.op;
	u64 now = 0;

	/* Nobody is told of a success that the power cut has undone. */
	if (unlikely(cmd->power_epoch != READ_ONCE(dev->power_epoch)))
		status = BLK_STS_IOERR;
	if (likely(op < SBLK_OPS))
		sblk_stats_count(queue->stats, op, cmd->io.len, cmd->io.fua);
	if (unlikely(status))
		this_cpu_inc(queue->stats->errors);
	if (cmd->start_ns) {
		struct sblk_histograms __percpu *histograms = READ_ONCE(queue->histograms);

		now = ktime_get_ns();
		if (histograms && op < SBLK_OPS && READ_ONCE(dev->extras) & SBLK_EXTRA_HISTOGRAMS)
			sblk_histograms_count(histograms, op, now - cmd->start_ns);
		sblk_media_complete(&dev->media, cmd->entry, now, status);
		cmd->entry = 0;
	}
	if (trace_sampleblk_complete_enabled())
		trace_sampleblk_complete(cmd, blk_status_to_errno(status), cmd->start_ns ? now - cmd->start_ns : 0);
	return status;
}

void sblk_cmd_end(struct sblk_cmd *cmd, blk_status_t status)
{
	status = sblk_cmd_account(cmd, status);
	if (cmd->rq)
		blk_mq_end_request(cmd->rq, status);
	else
		sblk_bio_end(cmd, status);
}

static enum hrtimer_restart cmd_timer(struct hrtimer *timer)
{
	struct sblk_cmd *cmd = container_of(timer, struct sblk_cmd, timer);

	sblk_cmd_end(cmd, cmd->status);
	return HRTIMER_NORESTART;
}

void sblk_cmd_init(struct sblk_cmd *cmd)
{
	sblk_hrtimer_setup(&cmd->timer, cmd_timer, HRTIMER_MODE_REL);
}

void sblk_cmd_softirq(struct sblk_cmd *cmd)
{
	sblk_hrtimer_setup(&cmd->timer, cmd_timer, HRTIMER_MODE_REL_SOFT);
	hrtimer_start(&cmd->timer, 0, HRTIMER_MODE_REL_SOFT);
}

static void cmd_hang(struct sblk_cmd *cmd)
{
	struct sblk_device *dev = cmd->queue->dev;
	unsigned long flags;

	spin_lock_irqsave(&dev->hung_lock, flags);
	cmd->is_hung = true;
	list_add_tail(&cmd->list, &dev->hung);
	spin_unlock_irqrestore(&dev->hung_lock, flags);
	/* It waits for whoever fails it, so nobody must wait for it. */
	if (!cmd->rq && atomic_dec_and_test(&dev->bios))
		wake_up(&dev->bios_wait);
}

/* True for whoever is the first to take it off the list. */
bool sblk_cmd_unhang(struct sblk_cmd *cmd)
{
	struct sblk_device *dev = cmd->queue->dev;
	unsigned long flags;
	bool hung;

	spin_lock_irqsave(&dev->hung_lock, flags);
	hung = cmd->is_hung;
	if (hung) {
		cmd->is_hung = false;
		list_del(&cmd->list);
	}
	spin_unlock_irqrestore(&dev->hung_lock, flags);
	if (hung && !cmd->rq)
		atomic_inc(&dev->bios);
	return hung;
}

void sblk_cmd_release_hung(struct sblk_device *dev, blk_status_t status)
{
	for (;;) {
		struct sblk_cmd *cmd;

		spin_lock_irq(&dev->hung_lock);
		cmd = list_first_entry_or_null(&dev->hung, struct sblk_cmd, list);
		if (cmd) {
			cmd->is_hung = false;
			list_del(&cmd->list);
		}
		spin_unlock_irq(&dev->hung_lock);
		if (!cmd)
			return;
		if (!cmd->rq)
			atomic_inc(&dev->bios);
		sblk_cmd_end(cmd, status);
	}
}

/* When the command is to be completed, in ns from now. */
static u64 cmd_delay(struct sblk_cmd *cmd)
{
	struct sblk_device *dev = cmd->queue->dev;
	struct sblk_throttle *throttle;
	struct sblk_latency *latency;
	u64 due = cmd->start_ns;
	u64 now;

	rcu_read_lock();
	throttle = rcu_dereference(dev->throttle);
	latency = cmd->io.op < SBLK_OPS ? rcu_dereference(dev->latency[cmd->io.op]) : NULL;
	if (latency)
		due += sblk_latency_draw(latency);
	if (throttle) {
		u64 bytes = cmd->io.op == SBLK_READ || cmd->io.op == SBLK_WRITE ? cmd->io.len : 0;

		/* Latency is the way there; the line is stood in on arrival. */
		due = sblk_throttle_pass(throttle, due, bytes);
	}
	rcu_read_unlock();
	if (cmd->action == SAMPLEBLK_FAULT_DELAY)
		due += cmd->arg0;
	if (due == cmd->start_ns)
		return 0;
	now = ktime_get_ns();
	return due > now ? due - now : 0;
}

static bool cmd_is_polled(const struct sblk_cmd *cmd)
{
	return cmd->rq && cmd->rq->mq_hctx->type == HCTX_TYPE_POLL;
}

static void cmd_complete(struct sblk_cmd *cmd, blk_status_t status)
{
	struct sblk_device *dev = cmd->queue->dev;
	u64 delay = cmd_delay(cmd);
	u32 completion = READ_ONCE(dev->config.completion);

	cmd->status = status;
	if (delay) {
		this_cpu_inc(cmd->queue->stats->delayed);
		trace_sampleblk_delay(cmd, delay);
	}
	if (cmd_is_polled(cmd)) {
		cmd->due_ns = delay ? ktime_get_ns() + delay : 0;
		spin_lock(&cmd->queue->poll_lock);
		list_add_tail(&cmd->list, &cmd->queue->poll_list);
		spin_unlock(&cmd->queue->poll_lock);
	} else if (delay || completion == SAMPLEBLK_COMPLETE_TIMER) {
		hrtimer_start(&cmd->timer, ns_to_ktime(delay), HRTIMER_MODE_REL);
	} else if (completion == SAMPLEBLK_COMPLETE_SOFTIRQ && cmd->rq) {
		blk_mq_complete_request(cmd->rq);
	} else if (completion == SAMPLEBLK_COMPLETE_SOFTIRQ) {
		sblk_cmd_softirq(cmd);
	} else {
		sblk_cmd_end(cmd, status);
	}
}

/* Does what the command says, and sends it to its completion. */
static void cmd_execute(struct sblk_cmd *cmd, gfp_t gfp)
{
	blk_status_t status;

	if (trace_sampleblk_start_enabled())
		trace_sampleblk_start(cmd, gfpflags_allow_blocking(gfp) && cmd->start_ns ?
						   ktime_get_ns() - cmd->start_ns : 0);
	if (cmd->action == SAMPLEBLK_FAULT_ERROR) {
		status = errno_to_blk_status(-(int)cmd->arg0);
	} else {
		status = sblk_io_full(cmd, gfp);
		if (status == BLK_STS_RESOURCE) {
			sblk_cmd_defer(cmd);
			return;
		}
	}
	cmd_complete(cmd, status);
}

void sblk_cmd_run(struct sblk_cmd *cmd)
{
	struct sblk_device *dev = cmd->queue->dev;

	cmd->start_ns = ktime_get_ns();
	cmd->power_epoch = READ_ONCE(dev->power_epoch);
	cmd->entry = 0;
	cmd->is_hung = false;
	cmd->action = SAMPLEBLK_FAULTS;
	trace_sampleblk_queue(cmd, 0);
	if (READ_ONCE(dev->extras) & SBLK_EXTRA_FAULTS && cmd->io.op < SBLK_OPS) {
		const struct sampleblk_rule *rule = NULL;
		struct sblk_faults *faults;

		rcu_read_lock();
		faults = rcu_dereference(dev->faults);
		if (faults)
			rule = sblk_fault_match(faults, cmd->io.op, cmd->io.pos >> SECTOR_SHIFT,
						cmd->io.len >> SECTOR_SHIFT, &cmd->random);
		if (rule) {
			cmd->action = rule->action;
			cmd->arg0 = rule->arg0;
			cmd->arg1 = rule->arg1;
		}
		rcu_read_unlock();
		if (rule) {
			this_cpu_inc(cmd->queue->stats->faults);
			trace_sampleblk_fault(cmd, cmd->action);
		}
	}
	if (cmd->action == SAMPLEBLK_FAULT_HANG) {
		cmd_hang(cmd);
		return;
	}
	cmd_execute(cmd, SBLK_GFP_ATOMIC);
}

void sblk_cmd_defer(struct sblk_cmd *cmd)
{
	struct sblk_device *dev = cmd->queue->dev;

	this_cpu_inc(cmd->queue->stats->deferred);
	llist_add(&cmd->deferred, &dev->deferred);
	queue_work(sblk_wq, &dev->deferred_work);
}

void sblk_cmd_worker(struct work_struct *work)
{
	struct sblk_device *dev = container_of(work, struct sblk_device, deferred_work);
	struct llist_node *list = llist_reverse_order(llist_del_all(&dev->deferred));
	struct sblk_cmd *cmd, *next;

	llist_for_each_entry_safe(cmd, next, list, deferred)
		cmd_execute(cmd, SBLK_GFP_WAIT);
}
