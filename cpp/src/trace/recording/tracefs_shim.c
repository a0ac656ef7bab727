/* SPDX-License-Identifier: MIT */
#include "recording/tracefs_shim.h"

#include <errno.h>
#include <tracefs.h>

const char* sblk_tracefs_dir(void)
{
    const char* dir = tracefs_tracing_dir();
    if (!dir && !errno) {
        errno = ENOENT;
    }
    return dir;
}

struct tracefs_cpu* sblk_cpu_open(int fd, int subbuf_size)
{
    return tracefs_cpu_alloc_fd(fd, subbuf_size, true);
}

void sblk_cpu_close(struct tracefs_cpu* cpu)
{
    tracefs_cpu_free_fd(cpu);
}

int sblk_cpu_splice(struct tracefs_cpu* cpu, int out)
{
    int moved = tracefs_cpu_write(cpu, out, true);
    if (moved < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    return moved;
}

int sblk_cpu_read(struct tracefs_cpu* cpu, void* buffer)
{
    int got = tracefs_cpu_read(cpu, buffer, true);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    return got;
}
