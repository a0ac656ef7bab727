// SPDX-License-Identifier: GPL-2.0-only
#include "core/integrity.h"

u64 sblk_integrity_lay_out(struct sblk_integrity *integrity, u64 capacity, u32 block_bytes)
{
	integrity->block_shift = ilog2(block_bytes);
	integrity->start = sblk_pages_of(capacity) << SBLK_PAGE_SHIFT;
	return integrity->start + (capacity >> integrity->block_shift) * sizeof(struct sblk_tuple);
}

/*
 * By half bytes and not by crc_t10dif(), which is a module that brings the crypto API with it into every load of the driver,
 * for a kind of device that few make. The polynomial is 0x8bb7 (x^16 + x^15 + x^11 + x^9 + x^8 + x^7 + x^5 + x^4 + x^2 + x + 1).
 */
u16 sblk_integrity_guard(u16 guard, const void *data, size_t len)
{
	static const u16 steps[16] = {
		0x0000, 0x8bb7, 0x9cd9, 0x176e, 0xb205, 0x39b2, 0x2edc, 0xa56b,
		0xefbd, 0x640a, 0x7364, 0xf8d3, 0x5db8, 0xd60f, 0xc161, 0x4ad6,
	};
	const u8 *byte = data;

	for (; len--; byte++) {
		guard = guard << 4 ^ steps[guard >> 12 ^ *byte >> 4];
		guard = guard << 4 ^ steps[guard >> 12 ^ (*byte & 0xf)];
	}
	return guard;
}

struct sblk_tuple sblk_integrity_tuple(u16 guard, u64 block)
{
	return (struct sblk_tuple){
		.guard = { guard >> 8, guard },
		.ref = { block >> 24, block >> 16, block >> 8, block },
	};
}

bool sblk_integrity_is_right(const struct sblk_tuple *tuple, u16 guard, u64 block)
{
	struct sblk_tuple right = sblk_integrity_tuple(guard, block);

	if (tuple->app[0] == 0xff && tuple->app[1] == 0xff)
		return true;
	return !memcmp(tuple->guard, right.guard, sizeof(right.guard)) && !memcmp(tuple->ref, right.ref, sizeof(right.ref));
}

static struct sblk_tuple inverted(struct sblk_tuple tuple)
{
	u8 *byte = (u8 *)&tuple;
	unsigned int i;

	for (i = 0; i < sizeof(tuple); i++)
		byte[i] = ~byte[i];
	return tuple;
}

static u64 position(const struct sblk_integrity *integrity, u64 block)
{
	return integrity->start + block * sizeof(struct sblk_tuple);
}

struct sblk_tuple sblk_integrity_read(const struct sblk_integrity *integrity, struct sblk_store *store, u64 block)
{
	struct sblk_tuple stored;

	sblk_store_read(store, position(integrity, block), &stored, sizeof(stored));
	return inverted(stored);
}

int sblk_integrity_write(const struct sblk_integrity *integrity, struct sblk_store *store, u64 block,
			 const struct sblk_tuple *tuple, gfp_t gfp)
{
	struct sblk_tuple stored = inverted(*tuple);

	return sblk_store_write(store, position(integrity, block), &stored, sizeof(stored), gfp);
}

int sblk_integrity_reserve(const struct sblk_integrity *integrity, struct sblk_store *store, u64 pos, u64 len, gfp_t gfp)
{
	u64 block = pos >> integrity->block_shift;
	u64 end = (pos + len) >> integrity->block_shift;

	return sblk_store_reserve(store, position(integrity, block), (end - block) * sizeof(struct sblk_tuple), gfp);
}

int sblk_integrity_forget(const struct sblk_integrity *integrity, struct sblk_store *store, u64 pos, u64 len, gfp_t gfp)
{
	u64 block = pos >> integrity->block_shift;
	u64 end = (pos + len) >> integrity->block_shift;

	return sblk_store_discard(store, position(integrity, block), (end - block) * sizeof(struct sblk_tuple), gfp);
}
