// SPDX-License-Identifier: GPL-2.0-only
/* /dev/sampleblk-control: checks what user space says and hands it on. */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/uaccess.h>

#include "sampleblk.h"

/* Room for the largest structure that an ioctl here takes. */
union sblk_arg {
	struct sampleblk_config config;
	struct sampleblk_remove remove;
	struct sampleblk_list list;
	struct sampleblk_info info;
	struct sampleblk_counters counters;
};

static bool all_zero(const void *data, size_t size)
{
	return !memchr_inv(data, 0, size);
}

static long control_add(union sblk_arg *arg)
{
	if (!all_zero(arg->config.reserved, sizeof(arg->config.reserved)))
		return -EINVAL;
	return sblk_device_add(&arg->config);
}

static long control_remove(union sblk_arg *arg)
{
	if (arg->remove.flags & ~SAMPLEBLK_REMOVE_FORCE)
		return -EINVAL;
	if (!all_zero(arg->remove.reserved, sizeof(arg->remove.reserved)))
		return -EINVAL;
	return sblk_device_remove(arg->remove.index, arg->remove.flags & SAMPLEBLK_REMOVE_FORCE);
}

static long control_list(union sblk_arg *arg)
{
	memset(&arg->list, 0, sizeof(arg->list));
	sblk_device_map(&arg->list);
	return 0;
}

static long control_info(union sblk_arg *arg)
{
	struct sblk_device *dev = sblk_device_get(arg->info.config.index);

	if (!dev)
		return -ENODEV;
	memset(&arg->info, 0, sizeof(arg->info));
	sblk_device_info(dev, &arg->info);
	sblk_device_put(dev);
	return 0;
}

static long control_counters(union sblk_arg *arg)
{
	struct sampleblk_counters *counters = &arg->counters;
	struct sblk_device *dev = sblk_device_get(counters->index);
	long err;

	if (!dev)
		return -ENODEV;
	/* What came in beside the question must not be added to. */
	*counters = (struct sampleblk_counters){ .index = counters->index, .queue = counters->queue };
	err = sblk_device_counters(dev, counters);
	sblk_device_put(dev);
	return err;
}

struct sblk_ioctl {
	unsigned int cmd;
	bool mutates; /* needs CAP_SYS_ADMIN */
	long (*handle)(union sblk_arg *arg);
};

static const struct sblk_ioctl ioctls[] = {
	{ SAMPLEBLK_IOC_ADD, true, control_add },
	{ SAMPLEBLK_IOC_REMOVE, true, control_remove },
	{ SAMPLEBLK_IOC_LIST, false, control_list },
	{ SAMPLEBLK_IOC_INFO, false, control_info },
	{ SAMPLEBLK_IOC_COUNTERS, false, control_counters },
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

static long control_ioctl(struct file *file, unsigned int cmd, unsigned long user)
{
	const struct sblk_ioctl *ioctl = ioctl_find(cmd);
	void __user *user_arg = (void __user *)user;
	union sblk_arg arg;
	size_t known;
	long ret;

	if (!ioctl)
		return -ENOTTY;
	if (ioctl->mutates && !capable(CAP_SYS_ADMIN))
		return -EPERM;
	known = _IOC_SIZE(ioctl->cmd);
	memset(&arg, 0, sizeof(arg));
	if (_IOC_DIR(cmd) & _IOC_WRITE) {
		ret = copy_struct_from_user(&arg, known, user_arg, _IOC_SIZE(cmd));
		if (ret)
			return ret;
	}
	ret = ioctl->handle(&arg);
	if (ret < 0 || !(_IOC_DIR(cmd) & _IOC_READ))
		return ret;
	if (copy_to_user(user_arg, &arg, min_t(size_t, known, _IOC_SIZE(cmd))))
		return -EFAULT;
	return ret;
}

static const struct file_operations control_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = control_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
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
