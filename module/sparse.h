/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a sparse that is older than a kernel's headers is told of them (`make check`), so that what it then says is of the
 * driver: 0.6.4 has neither of these.
 */
#define __typeof_unqual__ __typeof__
#define __builtin_strlen(literal) (sizeof(literal) - 1)
