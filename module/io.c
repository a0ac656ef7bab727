// SPDX-License-Identifier: GPL-2.0-only
/* What an operation means for the medium. */
#include "compat.h"
#include "sampleblk.h"
#include "trace.h"

/* Copies go through the kernel's own mapping of a segment's pages. */
#ifdef CONFIG_HIGHMEM
#error "sampleblk needs a kernel without highmem"
#endif

static void io_read(struct sblk_store *store, const struct sblk_io *io)
{
	u64 pos = io->pos;
	struct bio *bio;

	for (bio = io->bio; bio; bio = bio->bi_next) {
		struct bvec_iter iter;
		struct bio_vec bvec;

		bio_for_each_bvec(bvec, bio, iter) {
			sblk_store_read(store, pos, page_address(bvec.bv_page) + bvec.bv_offset, bvec.bv_len);
			pos += bvec.bv_len;
		}
	}
}

/* Writes the first `len` bytes at `pos`, which a fault may have made others than the request's. */
static int io_write(struct sblk_store *store, const struct sblk_io *io, u64 pos, u64 len, gfp_t gfp)
{
	struct sblk_writer writer;
	struct bio *bio;
	int err = 0;

	sblk_writer_begin(&writer, store, pos, len, gfp);
	for (bio = io->bio; bio && !err; bio = bio->bi_next) {
		struct bvec_iter iter;
		struct bio_vec bvec;

		bio_for_each_bvec(bvec, bio, iter) {
			err = sblk_writer_write(&writer, page_address(bvec.bv_page) + bvec.bv_offset,
						min_t(u64, bvec.bv_len, writer.left));
			if (err)
				break;
		}
	}
	sblk_writer_end(&writer);
	return err;
}

static int io_clear(struct sblk_device *dev, u64 pos, u64 len, gfp_t gfp)
{
	/* What was all allocated at the beginning stays so. */
	if (dev->config.flags & SAMPLEBLK_F_EAGER)
		return sblk_store_zero(dev->media.store, pos, len, gfp);
	return sblk_store_discard(dev->media.store, pos, len, gfp);
}

static blk_status_t no_memory(gfp_t gfp)
{
	return gfpflags_allow_blocking(gfp) ? BLK_STS_NOSPC : BLK_STS_RESOURCE;
}

blk_status_t sblk_io_plain(struct sblk_device *dev, const struct sblk_io *io, gfp_t gfp)
{
	switch (io->op) {
	case SBLK_READ:
		io_read(dev->media.store, io);
		return BLK_STS_OK;
	case SBLK_WRITE:
		return io_write(dev->media.store, io, io->pos, io->len, gfp) ? no_memory(gfp) : BLK_STS_OK;
	case SBLK_DISCARD:
	case SBLK_WRITE_ZEROES:
		return io_clear(dev, io->pos, io->len, gfp) ? no_memory(gfp) : BLK_STS_OK;
	case SBLK_FLUSH:
		return BLK_STS_OK;
	default:
		return BLK_STS_NOTSUPP;
	}
}

static void flip(void *data, u64 bit)
{
	((u8 *)data)[bit / 8] ^= 1U << (bit % 8);
}

/* Flips bits of what the bios hold. */
static void corrupt_bios(const struct sblk_io *io, u64 bits, u64 random)
{
	while (bits--) {
		u64 byte = mul_u64_u64_shr(sblk_random(random, bits), io->len, 64);
		struct bio *bio;

		for (bio = io->bio; bio; bio = bio->bi_next) {
			struct bvec_iter iter;
			struct bio_vec bvec;

			bio_for_each_bvec(bvec, bio, iter) {
				if (byte < bvec.bv_len)
					flip(page_address(bvec.bv_page) + bvec.bv_offset + byte, random >> 32 & 7);
				/* Wraps for all that follow: no other segment is hit. */
				byte -= bvec.bv_len;
			}
		}
	}
}

/* Flips bits of what has just been written. */
static void corrupt_store(struct sblk_store *store, u64 pos, u64 len, u64 bits, u64 random)
{
	while (len && bits--) {
		u64 byte = pos + mul_u64_u64_shr(sblk_random(random, bits), len, 64);
		u8 value;

		sblk_store_read(store, byte, &value, 1);
		flip(&value, random >> 32 & 7);
		/* The page is there: it was written. */
		sblk_store_write(store, byte, &value, 1, SBLK_GFP_ATOMIC);
	}
}

static blk_status_t full_read(struct sblk_cmd *cmd)
{
	struct sblk_device *dev = cmd->queue->dev;

	if (READ_ONCE(dev->media.off))
		return BLK_STS_IOERR;
	io_read(dev->media.store, &cmd->io);
	if (cmd->action == SAMPLEBLK_FAULT_CORRUPT)
		corrupt_bios(&cmd->io, max_t(u64, cmd->arg0, 1), cmd->random);
	return BLK_STS_OK;
}

/* Begins a logged change, waiting for memory where `gfp` lets it. */
static int begin(struct sblk_media *media, struct sblk_cmd *cmd, u64 pos, u64 len, gfp_t gfp)
{
	unsigned int tries;

	for (tries = 0; tries < 8; tries++) {
		int err = sblk_media_begin(media, cmd->io.op, cmd->io.fua, pos, len, cmd->start_ns);
		if (err != -ENOMEM || !gfpflags_allow_blocking(gfp))
			return err;
		/* Others may take away what we prepare before we are back: then again. */
		err = sblk_media_prepare(media, cmd->io.op, pos, len, gfp);
		if (err)
			break;
	}
	return -ENOMEM;
}

/* Ends a logged change. Returns the journal's entry. */
static u64 end(struct sblk_device *dev, bool flush)
{
	struct sblk_media *media = &dev->media;

	if (flush)
		trace_sampleblk_flush(dev, media->flushed, media->journal ? atomic64_read(&media->journal->epoch) : 0);
	if (unlikely(sblk_media_overflowed(media)))
		trace_sampleblk_journal_overflow(dev, media->journal->header->next_sequence - 1);
	return sblk_media_end(media);
}

int sblk_io_preflush(struct sblk_device *dev)
{
	int err = sblk_media_begin(&dev->media, SAMPLEBLK_OP_FLUSH, false, 0, 0, ktime_get_ns());

	if (!err)
		sblk_media_complete(&dev->media, end(dev, true), ktime_get_ns(), false);
	return err;
}

static blk_status_t full_change(struct sblk_cmd *cmd, gfp_t gfp)
{
	struct sblk_device *dev = cmd->queue->dev;
	struct sblk_media *media = &dev->media;
	u64 pos = cmd->io.pos;
	u64 len = cmd->io.len;
	blk_status_t status = BLK_STS_OK;
	bool logged;
	int err = 0;

	if (cmd->action == SAMPLEBLK_FAULT_LOST_WRITE)
		return READ_ONCE(media->off) ? BLK_STS_IOERR : BLK_STS_OK;
	if (cmd->action == SAMPLEBLK_FAULT_TORN_WRITE) {
		len = min_t(u64, len, min_t(u64, cmd->arg0, U64_MAX >> SECTOR_SHIFT) << SECTOR_SHIFT);
		status = cmd->arg1 ? errno_to_blk_status(-(int)cmd->arg1) : BLK_STS_OK;
		if (!len)
			return READ_ONCE(media->off) ? BLK_STS_IOERR : status;
	}
	if (cmd->action == SAMPLEBLK_FAULT_MISDIRECTED_WRITE) {
		pos = cmd->arg0 << SECTOR_SHIFT;
		len = min_t(u64, len, dev->config.capacity_bytes - pos);
	}
	logged = sblk_media_logged(media);
	if (logged) {
		err = begin(media, cmd, pos, len, gfp);
		if (err)
			return err == -ENOMEM ? no_memory(gfp) : BLK_STS_IOERR;
		gfp = SBLK_GFP_ATOMIC;
	} else if (READ_ONCE(media->off)) {
		return BLK_STS_IOERR;
	}
	if (cmd->io.op == SBLK_WRITE)
		err = io_write(media->store, &cmd->io, pos, len, gfp);
	else if (cmd->io.op != SBLK_FLUSH)
		err = io_clear(dev, pos, len, gfp);
	if (!err && cmd->action == SAMPLEBLK_FAULT_CORRUPT)
		corrupt_store(media->store, pos, len, max_t(u64, cmd->arg0, 1), cmd->random);
	if (logged)
		cmd->entry = end(dev, cmd->io.op == SBLK_FLUSH);
	/* With a log, begin() saw to it that there is memory. */
	if (err)
		return no_memory(gfp);
	return status;
}

blk_status_t sblk_io_full(struct sblk_cmd *cmd, gfp_t gfp)
{
	if (cmd->io.op == SBLK_READ)
		return full_read(cmd);
	if (cmd->io.op < SBLK_OPS)
		return full_change(cmd, gfp);
	return BLK_STS_NOTSUPP;
}
