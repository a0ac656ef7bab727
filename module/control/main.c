// SPDX-License-Identifier: GPL-2.0-only
/* Loading and unloading. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ctype.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/overflow.h>
#include <linux/string.h>

#include "control/control.h"
#include "control/registry.h"

static unsigned int devices = 1;
module_param(devices, uint, 0444);
MODULE_PARM_DESC(devices, "devices to make at load, /dev/sampleblk1 and up (default 1)");

static char *capacity = "64M";
module_param(capacity, charp, 0444);
MODULE_PARM_DESC(capacity, "bytes of each of them, with K, M, G, T or P (default 64M)");

static unsigned int queues = 1;
module_param(queues, uint, 0444);
MODULE_PARM_DESC(queues, "hardware queues of each of them (default 1)");

static char *mode = "mq";
module_param(mode, charp, 0444);
MODULE_PARM_DESC(mode, "mq or bio (default mq)");

static unsigned int memory_percent = 80;
module_param(memory_percent, uint, 0444);
MODULE_PARM_DESC(memory_percent, "share of the machine's memory that all devices together may fill (default 80)");

/* As memparse(), which wraps for what is too large. */
static bool __init parse_size(const char *text, u64 *bytes)
{
	static const char units[] = "KMGTP";
	size_t len = strlen(text);
	const char *unit = len ? strchr(units, toupper(text[len - 1])) : NULL;
	char number[32];

	if (strscpy(number, text, sizeof(number)) < 0)
		return false;
	if (unit)
		number[len - 1] = '\0';
	return !kstrtou64(number, 0, bytes) && !check_shl_overflow(*bytes, unit ? 10 * (unit - units + 1) : 0, bytes);
}

static int __init add_devices(void)
{
	unsigned int i;
	u64 bytes;

	if (!parse_size(capacity, &bytes)) {
		pr_err("capacity=%s is not a size such as 64M\n", capacity);
		return -EINVAL;
	}
	if (strcmp(mode, "mq") && strcmp(mode, "bio")) {
		pr_err("mode=%s is neither mq nor bio\n", mode);
		return -EINVAL;
	}
	for (i = 1; i <= devices; i++) {
		struct sampleblk_config config = {
			.index = i,
			.flags = SAMPLEBLK_F_DEFAULT,
			.capacity_bytes = bytes,
			.queues = queues,
			.mode = strcmp(mode, "bio") ? SAMPLEBLK_MODE_MQ : SAMPLEBLK_MODE_BIO,
		};
		int err = sblk_device_add(&config, NULL);

		if (err) {
			pr_err("cannot make sampleblk%u of %s with %u queues: %d\n", i, capacity, queues, err);
			return err;
		}
	}
	return 0;
}

static int __init sampleblk_init(void)
{
	int err;

	if (devices > SAMPLEBLK_MAX_DEVICES || memory_percent > 100) {
		pr_err("devices must be at most %u and memory_percent at most 100\n", SAMPLEBLK_MAX_DEVICES);
		return -EINVAL;
	}
	sblk_pages_set_limit(div_u64((u64)totalram_pages() * memory_percent, 100));
	err = sblk_registry_init();
	if (err)
		return err;
	err = add_devices();
	if (err)
		goto remove;
	err = sblk_control_init();
	if (err)
		goto remove;
	return 0;
remove:
	sblk_registry_exit();
	rcu_barrier();
	return err;
}

static void __exit sampleblk_exit(void)
{
	sblk_control_exit();
	sblk_registry_exit();
	/* Discarded pages and closed devices may still wait for readers. */
	rcu_barrier();
}

module_init(sampleblk_init);
module_exit(sampleblk_exit);

MODULE_DESCRIPTION("RAM block device for storage experiments");
MODULE_AUTHOR("sampleblk-lab maintainers");
MODULE_LICENSE("GPL");
