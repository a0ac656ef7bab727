// SPDX-License-Identifier: GPL-2.0-only
/*
 * The host's side of protection information until 6.10: what block/t10-pi.c does there. Its own profile is in a module, and
 * not for symbol_get(): to use it, each load of the driver would bring it along, with the crypto API behind it.
 */
#include "block/integrity.h"

#include "compat.h"

#ifdef SBLK_INTEGRITY_PROFILE

static blk_status_t generate_tuples(struct blk_integrity_iter *iter)
{
	unsigned int done;

	for (done = 0; done < iter->data_size; done += iter->interval) {
		u16 guard = sblk_integrity_guard(0, iter->data_buf, iter->interval);
		struct sblk_tuple tuple = sblk_integrity_tuple(guard, iter->seed++);

		memcpy(iter->prot_buf, &tuple, sizeof(tuple));
		iter->data_buf += iter->interval;
		iter->prot_buf += sizeof(tuple);
	}
	return BLK_STS_OK;
}

static blk_status_t verify_tuples(struct blk_integrity_iter *iter)
{
	unsigned int done;

	for (done = 0; done < iter->data_size; done += iter->interval, iter->seed++) {
		u16 guard = sblk_integrity_guard(0, iter->data_buf, iter->interval);
		struct sblk_tuple *tuple = iter->prot_buf, right = sblk_integrity_tuple(guard, iter->seed);

		if (!sblk_integrity_is_right(tuple, guard, iter->seed)) {
			pr_err("%s: protection information of block %llu: %8ph, not %8ph\n", iter->disk_name,
			       (unsigned long long)iter->seed, tuple, &right);
			return BLK_STS_PROTECTION;
		}
		iter->data_buf += iter->interval;
		iter->prot_buf += sizeof(*tuple);
	}
	return BLK_STS_OK;
}

/* Whoever submitted a bio numbers its blocks from the seed on. Those become the disk's numbers, or theirs again. */
static void renumber(struct request *rq, unsigned int bytes, bool to_disk)
{
	const struct sblk_cmd *cmd = blk_mq_rq_to_pdu(rq);
	unsigned int shift = cmd->queue->dev->integrity.block_shift;
	u64 block = blk_rq_pos(rq) >> (shift - SECTOR_SHIFT), end = block + (bytes >> shift);
	struct bio *bio;

	for (bio = rq->bio; bio; bio = bio->bi_next) {
		struct bio_integrity_payload *payload = bio_integrity(bio);
		struct bvec_iter from = payload->bip_iter, to = from;
		u64 theirs = bip_get_seed(payload);
		struct sblk_tuple tuple;

		/* It comes here again when it is queued again. */
		if (to_disk && payload->bip_flags & BIP_MAPPED_INTEGRITY) {
			block += from.bi_size / sizeof(tuple);
			continue;
		}
		for (; block < end && sblk_integrity_next(payload, &from, &tuple, false); block++, theirs++) {
			struct sblk_tuple old = sblk_integrity_tuple(0, to_disk ? theirs : block);
			struct sblk_tuple new = sblk_integrity_tuple(0, to_disk ? block : theirs);

			if (!memcmp(tuple.ref, old.ref, sizeof(old.ref)))
				memcpy(tuple.ref, new.ref, sizeof(new.ref));
			sblk_integrity_next(payload, &to, &tuple, true);
		}
		if (to_disk)
			payload->bip_flags |= BIP_MAPPED_INTEGRITY;
	}
}

static void prepare_request(struct request *rq)
{
	renumber(rq, blk_rq_bytes(rq), true);
}

static void complete_request(struct request *rq, unsigned int bytes)
{
	renumber(rq, bytes, false);
}

static const struct blk_integrity_profile profile = {
	.name = "T10-DIF-TYPE1-CRC",
	.generate_fn = generate_tuples,
	.verify_fn = verify_tuples,
	.prepare_fn = prepare_request,
	.complete_fn = complete_request,
};

void sblk_integrity_register(struct gendisk *disk, unsigned int block_bytes)
{
	struct blk_integrity integrity = {
		.profile = &profile,
		.flags = BLK_INTEGRITY_DEVICE_CAPABLE,
		.tuple_size = sizeof(struct sblk_tuple),
		.tag_size = sizeof_field(struct sblk_tuple, app),
		.interval_exp = ilog2(block_bytes),
	};

	blk_integrity_register(disk, &integrity);
	blk_queue_max_integrity_segments(disk->queue, USHRT_MAX);
	/* The kernel hands us segments: no block may lie in two. */
	blk_queue_dma_alignment(disk->queue, block_bytes - 1);
}
#endif
