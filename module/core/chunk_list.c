// SPDX-License-Identifier: GPL-2.0-only
#include "core/chunk_list.h"

/* How far the bytes from `pos` are all there, or all zero; pages are looked at one by one. */
static u64 run_end(struct sblk_store *store, u64 pos, u64 end, bool *data)
{
	u64 absent_until;

	*data = sblk_store_present(store, pos, &absent_until);
	for (;;) {
		if (*data)
			pos = (pos | (SBLK_PAGE_BYTES - 1)) + 1;
		else
			pos = absent_until;
		if (pos >= end)
			return end;
		if (sblk_store_present(store, pos, &absent_until) != *data)
			return pos;
	}
}

u64 sblk_chunks_size(struct sblk_store *store, u64 pos, u64 len)
{
	u64 end = pos + len;
	u64 size = 0;

	while (pos < end) {
		bool data;
		u64 next = run_end(store, pos, end, &data);

		size += sizeof(struct sampleblk_chunk) + (data ? next - pos : 0);
		pos = next;
	}
	return size;
}

u64 sblk_chunks_pack(struct sblk_store *store, u64 pos, u64 len, void *to)
{
	void *start = to;
	u64 end = pos + len;

	while (pos < end) {
		bool data;
		u64 next = run_end(store, pos, end, &data);
		struct sampleblk_chunk *chunk = to;

		chunk->sector = pos >> 9;
		chunk->sectors = (next - pos) >> 9;
		chunk->kind = data ? SAMPLEBLK_CHUNK_DATA : SAMPLEBLK_CHUNK_ZERO;
		chunk->reserved = 0;
		to += sizeof(*chunk);
		if (data) {
			sblk_store_read(store, pos, to, next - pos);
			to += next - pos;
		}
		pos = next;
	}
	return to - start;
}

/* Calls write() or discard() for the part of each chunk that lies in [pos, pos + len), until one fails. */
static int each_chunk(struct sblk_store *store, const void *chunks, u64 bytes, u64 pos, u64 len, gfp_t gfp,
		      int (*write)(struct sblk_store *store, u64 pos, const void *from, size_t len, gfp_t gfp),
		      int (*discard)(struct sblk_store *store, u64 pos, u64 len, gfp_t gfp))
{
	const void *end = chunks + bytes;
	int err = 0;

	while (chunks < end && !err) {
		const struct sampleblk_chunk *chunk = chunks;
		const void *data = chunk + 1;
		bool zero = chunk->kind != SAMPLEBLK_CHUNK_DATA;
		u64 begin = chunk->sector << 9;
		u64 from = max_t(u64, begin, pos);
		u64 to = min_t(u64, begin + (chunk->sectors << 9), pos + len);

		chunks = zero ? data : data + (chunk->sectors << 9);
		if (from >= to)
			continue;
		err = zero ? discard(store, from, to - from, gfp) : write(store, from, data + (from - begin), to - from, gfp);
	}
	return err;
}

int sblk_chunks_apply(struct sblk_store *store, const void *chunks, u64 bytes, u64 pos, u64 len, gfp_t gfp)
{
	return each_chunk(store, chunks, bytes, pos, len, gfp, sblk_store_write, sblk_store_discard);
}

static int reserve_write(struct sblk_store *store, u64 pos, const void *from, size_t len, gfp_t gfp)
{
	return sblk_store_reserve(store, pos, len, gfp);
}

int sblk_chunks_reserve(struct sblk_store *store, const void *chunks, u64 bytes, u64 pos, u64 len, gfp_t gfp)
{
	return each_chunk(store, chunks, bytes, pos, len, gfp, reserve_write, sblk_store_reserve_discard);
}
