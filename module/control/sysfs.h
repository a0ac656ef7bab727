/* SPDX-License-Identifier: GPL-2.0-only */
/* /sys/block/sampleblkN/sampleblk/ */
#ifndef SBLK_SYSFS_H
#define SBLK_SYSFS_H

struct attribute_group;

/* Of each disk. */
extern const struct attribute_group *sblk_disk_groups[];

#endif
