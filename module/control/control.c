// SPDX-License-Identifier: GPL-2.0-only
/* Checks what user space says and hands it on. */
#include "control/control.h"

#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/uaccess.h>

#include "block/trace.h"
#include "compat.h"
#include "control/journal_ctl.h"
#include "control/power.h"
#include "control/registry.h"
#include "control/settings.h"
#include "control/snapshot.h"
#include "control/state.h"

/* Room for the largest structure that an ioctl here takes; each begins with the device's index. */
union sblk_arg {
	u32 index;
	struct sampleblk_config config;
	struct sampleblk_remove remove;
	struct sampleblk_list list;
	struct sampleblk_info info;
	struct sampleblk_counters counters;
	struct sampleblk_histogram histogram;
	struct sampleblk_reset reset;
	struct sampleblk_tune tune;
	struct sampleblk_timing timing;
	struct sampleblk_limits limits;
	struct sampleblk_faults faults;
	struct sampleblk_power power;
	struct sampleblk_volatile_list volatile_list;
	struct sampleblk_journal journal;
	struct sampleblk_mark mark;
	struct sampleblk_seek seek;
	struct sampleblk_snapshot snapshot;
	struct sampleblk_resize resize;
	struct sampleblk_state state;
};

#define RESERVED_ZERO(arg) (!memchr_inv((arg)->reserved, 0, sizeof((arg)->reserved)))

static int control_add(union sblk_arg *arg)
{
	if (!RESERVED_ZERO(&arg->config))
		return -EINVAL;
	return sblk_device_add(&arg->config, NULL);
}

static int control_remove(union sblk_arg *arg)
{
	if (arg->remove.flags & ~SAMPLEBLK_REMOVE_FORCE || !RESERVED_ZERO(&arg->remove))
		return -EINVAL;
	return sblk_device_remove(arg->remove.index, arg->remove.flags & SAMPLEBLK_REMOVE_FORCE);
}

static int control_list(union sblk_arg *arg)
{
	memset(&arg->list, 0, sizeof(arg->list));
	sblk_device_map(&arg->list);
	return 0;
}

static int control_info(struct sblk_device *dev, union sblk_arg *arg)
{
	if (!RESERVED_ZERO(&arg->info) || !RESERVED_ZERO(&arg->info.config))
		return -EINVAL;
	memset(&arg->info, 0, sizeof(arg->info));
	sblk_device_info(dev, &arg->info);
	return 0;
}

static int control_counters(struct sblk_device *dev, union sblk_arg *arg)
{
	if (!RESERVED_ZERO(&arg->counters))
		return -EINVAL;
	/* What came in beside the question must not be added to. */
	arg->counters = (struct sampleblk_counters){ .index = arg->counters.index, .queue = arg->counters.queue };
	return sblk_counters(dev, &arg->counters);
}

static int control_histogram(struct sblk_device *dev, union sblk_arg *arg)
{
	struct sampleblk_histogram *histogram = &arg->histogram;

	if (!RESERVED_ZERO(histogram) || histogram->reserved0)
		return -EINVAL;
	*histogram = (struct sampleblk_histogram){ .index = histogram->index,
						   .queue = histogram->queue,
						   .op = histogram->op };
	return sblk_histogram(dev, histogram);
}

static int control_reset(struct sblk_device *dev, union sblk_arg *arg)
{
	if (arg->reset.flags || !RESERVED_ZERO(&arg->reset))
		return -EINVAL;
	return sblk_reset(dev);
}

static int control_tune(struct sblk_device *dev, union sblk_arg *arg)
{
	return RESERVED_ZERO(&arg->tune) && !arg->tune.reserved0 ? sblk_tune(dev, &arg->tune) : -EINVAL;
}

static int control_resize(struct sblk_device *dev, union sblk_arg *arg)
{
	if (!RESERVED_ZERO(&arg->resize) || arg->resize.reserved0)
		return -EINVAL;
	return sblk_resize(dev, arg->resize.capacity_bytes);
}

static int control_timing(struct sblk_device *dev, union sblk_arg *arg)
{
	return RESERVED_ZERO(&arg->timing) ? sblk_set_timing(dev, &arg->timing) : -EINVAL;
}

static int control_limits(struct sblk_device *dev, union sblk_arg *arg)
{
	return RESERVED_ZERO(&arg->limits) && !arg->limits.reserved0 ? sblk_set_limits(dev, &arg->limits) : -EINVAL;
}

static int control_get_timing(struct sblk_device *dev, union sblk_arg *arg)
{
	return RESERVED_ZERO(&arg->timing) ? sblk_get_timing(dev, &arg->timing) : -EINVAL;
}

static int control_get_limits(struct sblk_device *dev, union sblk_arg *arg)
{
	u32 index = arg->index;

	if (!RESERVED_ZERO(&arg->limits) || arg->limits.reserved0)
		return -EINVAL;
	arg->limits = sblk_get_limits(dev);
	arg->limits.index = index;
	return 0;
}

static int control_set_faults(struct sblk_device *dev, union sblk_arg *arg)
{
	return RESERVED_ZERO(&arg->faults) ? sblk_set_faults(dev, &arg->faults) : -EINVAL;
}

static int control_get_faults(struct sblk_device *dev, union sblk_arg *arg)
{
	return RESERVED_ZERO(&arg->faults) && !arg->faults.flags ? sblk_get_faults(dev, &arg->faults) : -EINVAL;
}

static int control_power(struct sblk_device *dev, union sblk_arg *arg)
{
	return RESERVED_ZERO(&arg->power) && !arg->power.reserved0 ? sblk_power(dev, &arg->power) : -EINVAL;
}

static int control_volatile(struct sblk_device *dev, union sblk_arg *arg)
{
	if (!RESERVED_ZERO(&arg->volatile_list) || arg->volatile_list.reserved0)
		return -EINVAL;
	return sblk_volatile_list(dev, &arg->volatile_list);
}

static int control_journal(struct sblk_device *dev, union sblk_arg *arg)
{
	/* One call both asks and changes, so the right is asked for here. */
	if (arg->journal.action != SAMPLEBLK_JOURNAL_INFO && !capable(CAP_SYS_ADMIN))
		return -EPERM;
	return RESERVED_ZERO(&arg->journal) ? sblk_journal_control(dev, &arg->journal) : -EINVAL;
}

static int control_mark(struct sblk_device *dev, union sblk_arg *arg)
{
	return sblk_journal_do_mark(dev, &arg->mark);
}

static int control_seek(struct sblk_device *dev, union sblk_arg *arg)
{
	return RESERVED_ZERO(&arg->seek) ? sblk_journal_do_seek(dev, &arg->seek) : -EINVAL;
}

static int snapshot_clone(struct sampleblk_snapshot *arg)
{
	struct sblk_device *dev = sblk_device_lock(arg->index);
	struct sampleblk_config config;
	struct sblk_store *store;
	int err;

	if (IS_ERR(dev))
		return PTR_ERR(dev);
	store = sblk_snapshot_store(dev, arg->id);
	config = dev->config;
	/* It takes its memory as it is written to, as it has that of the snapshot in common. */
	config.flags &= ~SAMPLEBLK_F_EAGER;
	if (store)
		trace_sampleblk_snapshot(dev, arg->action, arg->id);
	sblk_device_unlock(dev);
	if (!store)
		return -ENOENT;
	config.index = arg->clone;
	err = sblk_device_add(&config, store);
	sblk_store_put(store);
	arg->clone = config.index;
	return err;
}

static int control_snapshot(union sblk_arg *arg)
{
	struct sblk_device *dev;
	int err;

	if (arg->snapshot.action != SAMPLEBLK_SNAPSHOT_LIST && !capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (!RESERVED_ZERO(&arg->snapshot))
		return -EINVAL;
	if (arg->snapshot.action == SAMPLEBLK_SNAPSHOT_CLONE)
		return arg->snapshot.flags ? -EINVAL : snapshot_clone(&arg->snapshot);
	dev = sblk_device_lock(arg->index);
	if (IS_ERR(dev))
		return PTR_ERR(dev);
	err = sblk_snapshot(dev, &arg->snapshot);
	sblk_device_unlock(dev);
	return err;
}

static int control_state(union sblk_arg *arg)
{
	return RESERVED_ZERO(&arg->state) && !arg->state.reserved0 ? sblk_state(&arg->state) : -EINVAL;
}

struct sblk_ioctl {
	unsigned int cmd;
	bool mutates; /* needs CAP_SYS_ADMIN */
	/* One of them: for the driver, or for a device whose control lock is held. */
	int (*handle)(union sblk_arg *arg);
	int (*handle_device)(struct sblk_device *dev, union sblk_arg *arg);
};

static const struct sblk_ioctl ioctls[] = {
	{ SAMPLEBLK_IOC_ADD, true, control_add },
	{ SAMPLEBLK_IOC_REMOVE, true, control_remove },
	{ SAMPLEBLK_IOC_LIST, false, control_list },
	{ SAMPLEBLK_IOC_INFO, false, NULL, control_info },
	{ SAMPLEBLK_IOC_COUNTERS, false, NULL, control_counters },
	{ SAMPLEBLK_IOC_HISTOGRAM, false, NULL, control_histogram },
	{ SAMPLEBLK_IOC_RESET, true, NULL, control_reset },
	{ SAMPLEBLK_IOC_TUNE, true, NULL, control_tune },
	{ SAMPLEBLK_IOC_TIMING, true, NULL, control_timing },
	{ SAMPLEBLK_IOC_LIMITS, true, NULL, control_limits },
	{ SAMPLEBLK_IOC_SET_FAULTS, true, NULL, control_set_faults },
	{ SAMPLEBLK_IOC_GET_FAULTS, false, NULL, control_get_faults },
	{ SAMPLEBLK_IOC_POWER, true, NULL, control_power },
	{ SAMPLEBLK_IOC_VOLATILE, false, NULL, control_volatile },
	{ SAMPLEBLK_IOC_JOURNAL, false, NULL, control_journal },
	{ SAMPLEBLK_IOC_MARK, true, NULL, control_mark },
	{ SAMPLEBLK_IOC_SEEK, true, NULL, control_seek },
	{ SAMPLEBLK_IOC_SNAPSHOT, false, control_snapshot },
	{ SAMPLEBLK_IOC_GET_TIMING, false, NULL, control_get_timing },
	{ SAMPLEBLK_IOC_GET_LIMITS, false, NULL, control_get_limits },
	{ SAMPLEBLK_IOC_RESIZE, true, NULL, control_resize },
	{ SAMPLEBLK_IOC_STATE, true, control_state },
};

/* The number and direction pick the call; the size is the caller's version of the structure. */
static const struct sblk_ioctl *ioctl_find(unsigned int cmd)
{
	const unsigned int same = ~(_IOC_SIZEMASK << _IOC_SIZESHIFT);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ioctls); i++)
		if ((ioctls[i].cmd & same) == (cmd & same))
			return &ioctls[i];
	return NULL;
}

static int ioctl_run(const struct sblk_ioctl *ioctl, union sblk_arg *arg)
{
	struct sblk_device *dev;
	int err;

	if (ioctl->handle)
		return ioctl->handle(arg);
	dev = sblk_device_lock(arg->index);
	if (IS_ERR(dev))
		return PTR_ERR(dev);
	err = ioctl->handle_device(dev, arg);
	sblk_device_unlock(dev);
	return err;
}

static long control_ioctl(struct file *file, unsigned int cmd, unsigned long user)
{
	const struct sblk_ioctl *ioctl = ioctl_find(cmd);
	void __user *user_arg = (void __user *)user;
	bool answers = _IOC_DIR(cmd) & _IOC_READ;
	union sblk_arg *arg;
	size_t known;
	int err = 0;

	if (!ioctl)
		return -ENOTTY;
	if (ioctl->mutates && !capable(CAP_SYS_ADMIN))
		return -EPERM;
	arg = kzalloc(sizeof(*arg), GFP_KERNEL);
	if (!arg)
		return -ENOMEM;
	known = _IOC_SIZE(ioctl->cmd);
	if (_IOC_DIR(cmd) & _IOC_WRITE)
		err = copy_struct_from_user(arg, known, user_arg, _IOC_SIZE(cmd));
	/* Found out before anything is changed: of a device that was made, the caller would not know the number. */
	if (!err && answers && copy_to_user(user_arg, arg, min_t(size_t, known, _IOC_SIZE(cmd))))
		err = -EFAULT;
	if (!err)
		err = ioctl_run(ioctl, arg);
	if (!err && answers && copy_to_user(user_arg, arg, min_t(size_t, known, _IOC_SIZE(cmd))))
		err = -EFAULT;
	kfree(arg);
	return err;
}

/* A device's journal, to be read. */
static int control_mmap(struct file *file, struct vm_area_struct *vma)
{
	u64 offset = (u64)vma->vm_pgoff << PAGE_SHIFT;
	struct sblk_device *dev = sblk_device_find(offset / SAMPLEBLK_JOURNAL_OFFSET(1));
	int err;

	if (!dev)
		return -ENODEV;
	err = sblk_journal_mmap(dev, vma, (offset % SAMPLEBLK_JOURNAL_OFFSET(1)) >> PAGE_SHIFT);
	sblk_device_put(dev);
	return err;
}

static const struct file_operations control_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = control_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = control_mmap,
	.llseek = noop_llseek,
};

static struct miscdevice control = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "sampleblk-control",
	.fops = &control_fops,
	.mode = 0600,
};

int sblk_control_init(void)
{
	return misc_register(&control);
}

void sblk_control_exit(void)
{
	misc_deregister(&control);
}
