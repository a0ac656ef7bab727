/* SPDX-License-Identifier: MIT */
/* What makes a restored machine this run's: its time, its entropy, its name, the host's files. */
#ifndef SAMPLEBLK_VM_GUEST_BEGIN_H
#define SAMPLEBLK_VM_GUEST_BEGIN_H

#include <stdbool.h>
#include <stdint.h>

/* mkdir -p; what is done in them says what failed. */
void make_directories(const char *path);

/* Mounts what needs none of the host's files, for BEGIN to move. */
void mount_beforehand(void);

/* The BEGIN frame; answers it with that rate. From then on the root is the host's, under a tmpfs. */
void begin(const char *payload, uint32_t length, uint32_t tsc_khz);

/* Undoes BEGIN, for another one in a clone of the machine. False, and FAILED, when something there is in use. */
bool leave_root(void);

/* Writes the run directory, if there is one, back to the host. */
void sync_run_dir(void);

#endif
