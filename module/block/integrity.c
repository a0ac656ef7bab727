// SPDX-License-Identifier: GPL-2.0-only
#include "block/integrity.h"

static unsigned int block_bytes(const struct sblk_device *dev)
{
	return 1U << dev->integrity.block_shift;
}

/* The CRC of the next block of a bio, or of the copy that is made of it. A block may lie in several segments. */
static u16 next_guard(const struct sblk_device *dev, struct bio *bio, struct bvec_iter *iter, u8 *copy)
{
	unsigned int left = block_bytes(dev);
	u16 guard = 0;

	while (left) {
		struct bio_vec bvec = bio_iter_iovec(bio, *iter);
		unsigned int part = min(bvec.bv_len, left);
		void *data = sblk_bvec_map(&bvec);

		if (copy)
			memcpy(copy, data, part);
		guard = sblk_integrity_guard(guard, copy ?: data, part);
		sblk_bvec_unmap(data);
		if (copy)
			copy += part;
		bvec_iter_advance(bio->bi_io_vec, iter, part);
		left -= part;
	}
	return guard;
}

bool sblk_integrity_next(const struct bio_integrity_payload *payload, struct bvec_iter *iter, struct sblk_tuple *tuple,
			 bool to_host)
{
	u8 *bytes = (u8 *)tuple;
	unsigned int left = sizeof(*tuple);

	if (iter->bi_size < left)
		return false;
	while (left) {
		struct bio_vec bvec = bvec_iter_bvec(payload->bip_vec, *iter);
		unsigned int part = min(bvec.bv_len, left);
		u8 *host = sblk_bvec_map(&bvec);

		if (to_host)
			memcpy(host, bytes, part);
		else
			memcpy(bytes, host, part);
		sblk_bvec_unmap(host);
		bvec_iter_advance(payload->bip_vec, iter, part);
		bytes += part;
		left -= part;
	}
	return true;
}

static bool bio_is_right(const struct sblk_device *dev, struct bio *bio, u64 block)
{
	const struct bio_integrity_payload *payload = bio_integrity(bio);
	struct bvec_iter tuples, iter = bio->bi_iter;

	if (!payload)
		return true;
	tuples = payload->bip_iter;
	for (; iter.bi_size; block++) {
		u16 guard = next_guard(dev, bio, &iter, NULL);
		struct sblk_tuple tuple;

		if (!sblk_integrity_next(payload, &tuples, &tuple, false) || !sblk_integrity_is_right(&tuple, guard, block))
			return false;
	}
	return true;
}

bool sblk_integrity_admits(const struct sblk_device *dev, const struct sblk_io *io)
{
	u64 block = io->pos >> dev->integrity.block_shift;
	struct bio *bio;

	for (bio = io->bio; bio; bio = bio->bi_next) {
		if (!bio_is_right(dev, bio, block))
			return false;
		block += bio->bi_iter.bi_size >> dev->integrity.block_shift;
	}
	return true;
}

/* What a fault does to the tuple of a block of a request. */
static void spoil(const struct sblk_device *dev, const struct sblk_fault *fault, u64 block, struct sblk_tuple *tuple)
{
	u64 sector = block << (dev->integrity.block_shift - SECTOR_SHIFT);
	u64 last = sector + (block_bytes(dev) >> SECTOR_SHIFT) - 1;
	u32 flip = fault->arg1;

	if (fault->action != SAMPLEBLK_FAULT_CORRUPT_TAG || sector > fault->last_sector || last < fault->first_sector)
		return;
	switch (fault->arg0) {
	case SAMPLEBLK_TAG_GUARD:
		tuple->guard[0] ^= flip >> 8;
		tuple->guard[1] ^= flip;
		break;
	case SAMPLEBLK_TAG_APP:
		tuple->app[0] ^= flip >> 8;
		tuple->app[1] ^= flip;
		break;
	case SAMPLEBLK_TAG_REF:
		tuple->ref[0] ^= flip >> 24;
		tuple->ref[1] ^= flip >> 16;
		tuple->ref[2] ^= flip >> 8;
		tuple->ref[3] ^= flip;
		break;
	}
}

/* A block of a request, and what the host says of it or there is to say: what is compared is what is stored. */
struct block {
	u64 number;
	u8 *data;
	struct sblk_tuple tuple;
};

static int take_block(const struct sblk_device *dev, struct bio *bio, struct bvec_iter *iter, struct bvec_iter *tuples,
		      struct block *block)
{
	const struct bio_integrity_payload *payload = bio_integrity(bio);
	u16 guard = next_guard(dev, bio, iter, block->data);

	if (!payload)
		block->tuple = sblk_integrity_tuple(guard, block->number);
	else if (!sblk_integrity_next(payload, tuples, &block->tuple, false) ||
		 !sblk_integrity_is_right(&block->tuple, guard, block->number))
		return -EILSEQ;
	return 0;
}

int sblk_integrity_store(struct sblk_device *dev, const struct sblk_io *io, u64 pos, u64 len, const struct sblk_fault *fault,
			 gfp_t gfp)
{
	unsigned int bytes = block_bytes(dev), shift = dev->integrity.block_shift;
	struct block block = { .number = io->pos >> shift, .data = kmalloc(bytes, gfp) };
	struct sblk_store *store = dev->medium.store;
	u64 end = pos + len;
	struct bio *bio;
	int err = 0;

	if (!block.data)
		return -ENOMEM;
	for (bio = io->bio; bio && pos < end && !err; bio = bio->bi_next) {
		const struct bio_integrity_payload *payload = bio_integrity(bio);
		struct bvec_iter tuples = payload ? payload->bip_iter : (struct bvec_iter){};
		struct bvec_iter iter = bio->bi_iter;

		for (; iter.bi_size && pos < end && !err; block.number++, pos += bytes) {
			err = take_block(dev, bio, &iter, &tuples, &block);
			if (err)
				break;
			spoil(dev, fault, block.number, &block.tuple);
			err = sblk_store_write(store, pos, block.data, min_t(u64, bytes, end - pos), gfp);
			if (!err && end - pos >= bytes)
				err = sblk_integrity_write(&dev->integrity, store, pos >> shift, &block.tuple, gfp);
		}
	}
	kfree(block.data);
	return err;
}

void sblk_integrity_return(struct sblk_device *dev, const struct sblk_io *io, const struct sblk_fault *fault)
{
	u64 block = io->pos >> dev->integrity.block_shift;
	struct bio *bio;

	for (bio = io->bio; bio; bio = bio->bi_next) {
		const struct bio_integrity_payload *payload = bio_integrity(bio);
		u64 end = block + (bio->bi_iter.bi_size >> dev->integrity.block_shift);
		struct bvec_iter iter;

		if (payload)
			iter = payload->bip_iter;
		for (; payload && block < end; block++) {
			struct sblk_tuple tuple =
				sblk_integrity_read(&dev->integrity, dev->medium.store, block);

			spoil(dev, fault, block, &tuple);
			sblk_integrity_next(payload, &iter, &tuple, true);
		}
		block = end;
	}
}
