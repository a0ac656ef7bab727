/* SPDX-License-Identifier: MIT */
/* What we use of libtracefs, for C++: the header of 1.6.4 has no extern "C" and an inline that is no C++. */
#ifndef SAMPLEBLK_TRACEFS_SHIM_H
#define SAMPLEBLK_TRACEFS_SHIM_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The mounted tracefs, mounting it where it is not; NULL with errno when neither works. */
const char* sblk_tracefs_dir(void);

struct tracefs_cpu;

/* A reader of one CPU's trace_pipe_raw, open as `fd`, which stays the caller's. */
struct tracefs_cpu* sblk_cpu_open(int fd, int subbuf_size);
void sblk_cpu_close(struct tracefs_cpu* cpu);
/* Splices whole sub-buffers to `out` without waiting: bytes moved, 0 where there are none, -1 with errno. */
int sblk_cpu_splice(struct tracefs_cpu* cpu, int out);
/* Reads one sub-buffer, partly filled or not, without waiting: its bytes, 0 where there is none, -1 with errno. */
int sblk_cpu_read(struct tracefs_cpu* cpu, void* buffer);

#ifdef __cplusplus
}
#endif

#endif
