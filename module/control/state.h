/* SPDX-License-Identifier: GPL-2.0-only */
/* What a crash may have left of a device, built out of its journal. */
#ifndef SBLK_STATE_H
#define SBLK_STATE_H

struct sampleblk_state;

/* With no lock held: one device has the recording, another takes the state. */
int sblk_state(struct sampleblk_state *state);

#endif
