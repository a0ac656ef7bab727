/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * T10 protection information of type 1 (SBC-3, 4.22): eight bytes for each logical block, which say what its bytes are and
 * where it belongs. They lie in the store, behind the data, so that snapshots and clones have them; inverted, so that
 * those of a block that was never written are all ones, which says that there is nothing to check.
 */
#ifndef SBLK_INTEGRITY_H
#define SBLK_INTEGRITY_H

#include "core/store.h"

/* Big-endian, as they are handed over. */
struct sblk_tuple {
	u8 guard[2]; /* CRC of the block */
	u8 app[2]; /* all ones: nothing of it is checked */
	u8 ref[4]; /* the block's number, its lower half */
};

/* Of a device; all 0 where it has none. */
struct sblk_integrity {
	unsigned int block_shift; /* bytes of a logical block, as a power of two */
	u64 start; /* of the tuples in the store */
};

/* Says how it lies in a store of `capacity` bytes and tuples behind them; returns how large that is. */
u64 sblk_integrity_lay_out(struct sblk_integrity *integrity, u64 capacity, u32 block_bytes);

/* The CRC of more bytes; 0 at first. */
u16 sblk_integrity_guard(u16 guard, const void *data, size_t len);

/* What there is of the block of that number whose bytes have that CRC. */
struct sblk_tuple sblk_integrity_tuple(u16 guard, u64 block);

/* Whether it is that, or says that nothing is to be checked. */
bool sblk_integrity_is_right(const struct sblk_tuple *tuple, u16 guard, u64 block);

/* That of a block. The second: 0 or -ENOMEM, as sblk_store_write(). */
struct sblk_tuple sblk_integrity_read(const struct sblk_integrity *integrity, struct sblk_store *store, u64 block);
int sblk_integrity_write(const struct sblk_integrity *integrity, struct sblk_store *store, u64 block,
			 const struct sblk_tuple *tuple, gfp_t gfp);

/* As sblk_store_reserve(), for a write of those of the range. */
int sblk_integrity_reserve(const struct sblk_integrity *integrity, struct sblk_store *store, u64 pos, u64 len, gfp_t gfp);

/* The blocks of the range are zeroed: nothing is to be checked of them. 0 or -ENOMEM. */
int sblk_integrity_forget(const struct sblk_integrity *integrity, struct sblk_store *store, u64 pos, u64 len, gfp_t gfp);

#endif
