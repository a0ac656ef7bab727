/* SPDX-License-Identifier: GPL-2.0-only */
/* /dev/sampleblk-control */
#ifndef SBLK_CONTROL_H
#define SBLK_CONTROL_H

int sblk_control_init(void);
void sblk_control_exit(void);

#endif
