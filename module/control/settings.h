/* SPDX-License-Identifier: GPL-2.0-only */
/* What changes how a device answers, while I/O runs; with dev->control held. */
#ifndef SBLK_SETTINGS_H
#define SBLK_SETTINGS_H

#include "block/device.h"

int sblk_resize(struct sblk_device *dev, u64 capacity_bytes);
int sblk_tune(struct sblk_device *dev, struct sampleblk_tune *tune);
int sblk_histogram(struct sblk_device *dev, struct sampleblk_histogram *histogram);
int sblk_counters(struct sblk_device *dev, struct sampleblk_counters *counters);
int sblk_reset(struct sblk_device *dev);
int sblk_set_timing(struct sblk_device *dev, const struct sampleblk_timing *timing);
int sblk_get_timing(struct sblk_device *dev, struct sampleblk_timing *timing);
struct sampleblk_limits sblk_get_limits(struct sblk_device *dev);
int sblk_set_limits(struct sblk_device *dev, const struct sampleblk_limits *limits);
int sblk_set_faults(struct sblk_device *dev, const struct sampleblk_faults *faults);
int sblk_get_faults(struct sblk_device *dev, struct sampleblk_faults *faults);

/* Frees what these have made; nothing is on its way any more. */
void sblk_settings_destroy(struct sblk_device *dev);

#endif
