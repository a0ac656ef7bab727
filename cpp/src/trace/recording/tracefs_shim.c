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
