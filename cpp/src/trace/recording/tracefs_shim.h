/* SPDX-License-Identifier: MIT */
/* What we use of libtracefs, for C++: the header of 1.6.4 has no extern "C" and an inline that is no C++. */
#ifndef SAMPLEBLK_TRACEFS_SHIM_H
#define SAMPLEBLK_TRACEFS_SHIM_H

#ifdef __cplusplus
extern "C" {
#endif

/* The mounted tracefs, mounting it where it is not; NULL with errno when neither works. */
const char* sblk_tracefs_dir(void);

#ifdef __cplusplus
}
#endif

#endif
