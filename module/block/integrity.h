/* SPDX-License-Identifier: GPL-2.0-only */
/* The protection information that comes and goes with the bios of a command. */
#ifndef SBLK_BLOCK_INTEGRITY_H
#define SBLK_BLOCK_INTEGRITY_H

#include "block/command.h"
#include "compat.h"

static inline bool sblk_has_integrity(const struct sblk_device *dev)
{
	return dev->integrity.block_shift;
}

/*
 * Whether what the host says of a write's blocks is so; what it says nothing of is. False: the write must fail, with
 * BLK_STS_PROTECTION.
 */
bool sblk_integrity_admits(const struct sblk_device *dev, const struct sblk_io *io);

/*
 * Writes the first `len` bytes at `pos`, and what the host says of them, or what there is to say where it says nothing; with
 * what a fault does to it. A block of which a part is written keeps what was said. A host may change its buffer meanwhile:
 * what is stored of a block was compared. 0, -ENOMEM, or -EILSEQ where a block is not as it was admitted; those before it
 * are written.
 */
int sblk_integrity_store(struct sblk_device *dev, const struct sblk_io *io, u64 pos, u64 len, const struct sblk_fault *fault,
			 gfp_t gfp);

/* Hands what is stored of the blocks of a read to a host that asks for it; with what a fault does to it. */
void sblk_integrity_return(struct sblk_device *dev, const struct sblk_io *io, const struct sblk_fault *fault);

/* Copies a bio's next tuple to its host or from there. False when the host has given room for fewer. */
bool sblk_integrity_next(const struct bio_integrity_payload *payload, struct bvec_iter *iter, struct sblk_tuple *tuple,
			 bool to_host);

#ifdef SBLK_INTEGRITY_PROFILE
/* The kernel's part of it, for a disk that is to be added. */
void sblk_integrity_register(struct gendisk *disk, unsigned int block_bytes);
#endif

#endif
