/* SPDX-License-Identifier: GPL-2.0-only */
/* The journal of a device; with dev->control held. */
#ifndef SBLK_JOURNAL_CTL_H
#define SBLK_JOURNAL_CTL_H

#include "block/device.h"

struct vm_area_struct;

int sblk_journal_control(struct sblk_device *dev, struct sampleblk_journal *journal);
int sblk_journal_do_mark(struct sblk_device *dev, struct sampleblk_mark *mark);
int sblk_journal_do_seek(struct sblk_device *dev, struct sampleblk_seek *seek);

/* Maps the journal from `page` on, read-only; without dev->control. */
int sblk_journal_mmap(struct sblk_device *dev, struct vm_area_struct *vma, unsigned long page);

#endif
