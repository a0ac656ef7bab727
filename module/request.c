// SPDX-License-Identifier: GPL-2.0-only
/* What a request means for the store. */
#include "sampleblk.h"

/* Copies go through the kernel's own mapping of a segment's pages. */
#ifdef CONFIG_HIGHMEM
#error "sampleblk needs a kernel without highmem"
#endif

enum sblk_op sblk_request_op(const struct request *rq)
{
	switch (req_op(rq)) {
	case REQ_OP_READ:
		return SBLK_READ;
	case REQ_OP_WRITE:
		return SBLK_WRITE;
	case REQ_OP_DISCARD:
		return SBLK_DISCARD;
	case REQ_OP_WRITE_ZEROES:
		return SBLK_WRITE_ZEROES;
	case REQ_OP_FLUSH:
		return SBLK_FLUSH;
	default:
		return SBLK_OPS;
	}
}

static void request_read(struct sblk_device *dev, struct request *rq)
{
	u64 pos = (u64)blk_rq_pos(rq) << SECTOR_SHIFT;
	struct req_iterator iter;
	struct bio_vec bvec;

	rq_for_each_bvec(bvec, rq, iter) {
		sblk_store_read(dev->store, pos, page_address(bvec.bv_page) + bvec.bv_offset, bvec.bv_len);
		pos += bvec.bv_len;
	}
}

static blk_status_t request_write(struct sblk_device *dev, struct request *rq, gfp_t gfp)
{
	u64 pos = (u64)blk_rq_pos(rq) << SECTOR_SHIFT;
	struct req_iterator iter;
	struct bio_vec bvec;

	rq_for_each_bvec(bvec, rq, iter) {
		void *from = page_address(bvec.bv_page) + bvec.bv_offset;

		if (sblk_store_write(dev->store, pos, from, bvec.bv_len, gfp))
			return gfpflags_allow_blocking(gfp) ? BLK_STS_NOSPC : BLK_STS_RESOURCE;
		pos += bvec.bv_len;
	}
	return BLK_STS_OK;
}

/* BLK_STS_RESOURCE, from an atomic `gfp` only: try again where it may sleep. */
blk_status_t sblk_request_execute(struct sblk_device *dev, struct request *rq, gfp_t gfp)
{
	switch (sblk_request_op(rq)) {
	case SBLK_READ:
		request_read(dev, rq);
		return BLK_STS_OK;
	case SBLK_WRITE:
		return request_write(dev, rq, gfp);
	case SBLK_DISCARD:
	case SBLK_WRITE_ZEROES:
		sblk_store_discard(dev->store, (u64)blk_rq_pos(rq) << SECTOR_SHIFT, blk_rq_bytes(rq));
		return BLK_STS_OK;
	case SBLK_FLUSH:
		return BLK_STS_OK;
	default:
		return BLK_STS_NOTSUPP;
	}
}
