// SPDX-License-Identifier: GPL-2.0-only
#include "core/timing.h"

#include "core/random.h"

/* Fixed point with 32 bits behind the point: the kernel has no floating point, and 1e-6 of a latency is enough. */
#define ONE (1ULL << 32)
#define LN2_Q32 2977044472ULL /* ln 2 */
#define LOG2E_Q32 6196328019ULL /* 1 / ln 2 */

struct sblk_latency *sblk_latency_create(u32 nr_bins)
{
	struct sblk_latency *latency = kvzalloc(struct_size(latency, bins, nr_bins), GFP_KERNEL);

	if (latency)
		latency->nr_bins = nr_bins;
	return latency;
}

void sblk_latency_destroy(struct sblk_latency *latency)
{
	kvfree(latency);
}

static int check_bins(struct sblk_latency *latency)
{
	u64 before = 0;
	u32 i;

	latency->total = 0;
	for (i = 0; i < latency->nr_bins; i++) {
		struct sampleblk_bin *bin = &latency->bins[i];

		if (bin->up_to_ns <= before || bin->up_to_ns > SAMPLEBLK_MAX_LATENCY_NS)
			return -EINVAL;
		if (check_add_overflow(latency->total, bin->count, &latency->total))
			return -EINVAL;
		before = bin->up_to_ns;
		bin->count = latency->total;
	}
	return latency->total ? 0 : -EINVAL;
}

int sblk_latency_check(struct sblk_latency *latency)
{
	if (latency->a > SAMPLEBLK_MAX_LATENCY_NS || latency->b > SAMPLEBLK_MAX_LATENCY_NS)
		return -EINVAL;
	if (latency->nr_bins && latency->model != SAMPLEBLK_LATENCY_EMPIRICAL)
		return -EINVAL;
	switch (latency->model) {
	case SAMPLEBLK_LATENCY_NONE:
		return !latency->a && !latency->b ? 0 : -EINVAL;
	case SAMPLEBLK_LATENCY_CONSTANT:
		return !latency->b ? 0 : -EINVAL;
	case SAMPLEBLK_LATENCY_UNIFORM:
		return latency->a <= latency->b ? 0 : -EINVAL;
	case SAMPLEBLK_LATENCY_NORMAL:
	case SAMPLEBLK_LATENCY_EXPONENTIAL:
		return 0;
	case SAMPLEBLK_LATENCY_LOGNORMAL:
		return latency->b <= 10000 ? 0 : -EINVAL;
	case SAMPLEBLK_LATENCY_PARETO:
		return latency->b >= 100 && latency->b <= 100000 ? 0 : -EINVAL;
	case SAMPLEBLK_LATENCY_EMPIRICAL:
		return !latency->a && !latency->b ? check_bins(latency) : -EINVAL;
	}
	return -EINVAL;
}

/* a * b with b in fixed point. */
static u64 scale(u64 a, u64 b)
{
	return mul_u64_u64_shr(a, b, 32);
}

/* log2 of a number from 1 up to 2, both in fixed point, bit by bit: squaring doubles a logarithm. */
static u64 log2_fraction(u64 x)
{
	u64 result = 0;
	u64 bit;

	for (bit = ONE >> 1; bit; bit >>= 1) {
		x = scale(x, x);
		if (x >= 2 * ONE) {
			result |= bit;
			x >>= 1;
		}
	}
	return result;
}

/* -ln(u) for a uniform u in (0, 1], from 64 random bits; fixed point. */
static u64 minus_ln(u64 random)
{
	int zeros;
	u64 log2; /* -log2(u) */

	random |= 1;
	zeros = 63 - ilog2(random);
	/* u = random / 2^64 = m * 2^-(zeros + 1) with m from 1 up to 2 */
	log2 = ((u64)zeros + 1) * ONE - log2_fraction((random << zeros) >> 31);
	return scale(log2, LN2_Q32);
}

/* e^x for x from 0, fixed point; ~0 when that is too large. */
static u64 exp_q32(u64 x)
{
	/* 2^(2^-1), 2^(2^-2), … in fixed point */
	static const u64 roots[] = {
		6074000999ULL, 5107605667ULL, 4683695047ULL, 4485121743ULL, 4389014833ULL, 4341736423ULL, 4318288543ULL,
		4306612133ULL, 4300785773ULL, 4297875550ULL, 4296421177ULL, 4295694174ULL, 4295330720ULL, 4295149004ULL,
		4295058149ULL, 4295012722ULL, 4294990009ULL, 4294978652ULL, 4294972974ULL, 4294970135ULL,
	};
	u64 y = scale(x, LOG2E_Q32);
	u64 whole = y >> 32;
	u64 result = ONE;
	unsigned int i;

	if (whole >= 31)
		return ~0ULL;
	for (i = 0; i < ARRAY_SIZE(roots); i++)
		if (y & (ONE >> (i + 1)))
			result = scale(result, roots[i]);
	return result << whole;
}

/*
 * A standard normal number in fixed point: of 256 fair coins, the number of heads beyond 128 has a standard deviation of
 * 8; a uniform number fills the gaps between whole heads.
 */
static s64 normal_q32(u64 random)
{
	u64 heads = 0;
	u64 i;

	for (i = 1; i <= 4; i++)
		heads += hweight64(sblk_random(random, i));
	return (((s64)heads - 128) * (s64)ONE + (s64)(sblk_random(random, 5) >> 32) - (s64)(ONE >> 1)) / 8;
}

/* A latency times what exp_q32() said, of which ~0 makes any too large but none. */
static u64 stretch(u64 a, u64 factor)
{
	return a && factor == ~0ULL ? ~0ULL : scale(a, factor);
}

static u64 draw_empirical(const struct sblk_latency *latency, u64 random)
{
	u64 target = mul_u64_u64_shr(random, latency->total, 64);
	u32 low = 0, high = latency->nr_bins - 1;
	u64 from;

	/* The first bin with more than `target` in it and before it. */
	while (low < high) {
		u32 middle = (low + high) / 2;

		if (target < latency->bins[middle].count)
			high = middle;
		else
			low = middle + 1;
	}
	from = low ? latency->bins[low - 1].up_to_ns : 0;
	/* Evenly within the bin. */
	return from + mul_u64_u64_shr(sblk_random(random, 1), latency->bins[low].up_to_ns - from, 64);
}

static u64 draw(struct sblk_latency *latency)
{
	u64 n, random, factor;
	s64 normal, value;

	if (latency->model == SAMPLEBLK_LATENCY_NONE)
		return 0;
	if (latency->model == SAMPLEBLK_LATENCY_CONSTANT)
		return latency->a;
	n = atomic64_inc_return(&latency->drawn);
	random = sblk_random(latency->seed, n);
	switch (latency->model) {
	case SAMPLEBLK_LATENCY_UNIFORM:
		return latency->a + mul_u64_u64_shr(random, latency->b - latency->a + 1, 64);
	case SAMPLEBLK_LATENCY_NORMAL:
		normal = normal_q32(random);
		value = scale(latency->b, normal < 0 ? -normal : normal);
		value = normal < 0 ? (s64)latency->a - value : (s64)latency->a + value;
		return value < 0 ? 0 : value;
	case SAMPLEBLK_LATENCY_LOGNORMAL:
		normal = normal_q32(random);
		factor = exp_q32(div_u64((normal < 0 ? -normal : normal) * latency->b, 1000));
		if (normal < 0)
			return mul_u64_u64_div_u64(latency->a, ONE, factor);
		return stretch(latency->a, factor);
	case SAMPLEBLK_LATENCY_EXPONENTIAL:
		return latency->b + scale(latency->a, minus_ln(random));
	case SAMPLEBLK_LATENCY_PARETO:
		/* a * u^(-1 / shape) */
		factor = exp_q32(div_u64(minus_ln(random) * 1000, latency->b));
		return stretch(latency->a, factor);
	default:
		return draw_empirical(latency, random);
	}
}

u64 sblk_latency_draw(struct sblk_latency *latency)
{
	return min_t(u64, draw(latency), SAMPLEBLK_MAX_LATENCY_NS);
}

int sblk_throttle_check(const struct sblk_throttle *throttle)
{
	/* A limit so low that one request would take longer than any latency may. */
	if (throttle->bytes_per_second && throttle->bytes_per_second < 4096)
		return -EINVAL;
	if (!throttle->stall_period_ns)
		return throttle->stall_ns || throttle->stall_offset_ns ? -EINVAL : 0;
	if (throttle->stall_ns >= throttle->stall_period_ns || throttle->stall_offset_ns >= throttle->stall_period_ns)
		return -EINVAL;
	return throttle->stall_ns <= SAMPLEBLK_MAX_LATENCY_NS ? 0 : -EINVAL;
}

/* Takes `cost` from a line of time in which everybody waits for who came before; returns when it is this one's turn. */
static u64 line_up(atomic64_t *free_ns, u64 now_ns, u64 cost)
{
	u64 old, begin;

	do {
		old = atomic64_read(free_ns);
		begin = max_t(u64, old, now_ns);
	} while ((u64)atomic64_cmpxchg(free_ns, old, begin + cost) != old);
	return begin + cost;
}

/* So long take `units` of `per_second`: rounded up, as a limit is not exceeded. */
static u64 cost_ns(u64 units, u64 per_second)
{
	u64 cost = mul_u64_u64_div_u64(units, 1000000000ULL, per_second);

	/* The remainder, which fits where the product does not. */
	return cost + (units * 1000000000ULL - cost * per_second != 0);
}

u64 sblk_throttle_pass(struct sblk_throttle *throttle, u64 now_ns, u64 bytes)
{
	u64 when = now_ns;

	if (throttle->iops)
		when = max_t(u64, when, line_up(&throttle->io_free_ns, now_ns, cost_ns(1, throttle->iops)));
	if (throttle->bytes_per_second && bytes)
		when = max_t(u64, when,
			     line_up(&throttle->bytes_free_ns, now_ns, cost_ns(bytes, throttle->bytes_per_second)));
	return when;
}

u64 sblk_throttle_stall(const struct sblk_throttle *throttle, u64 when_ns)
{
	u64 phase;

	if (!throttle->stall_ns)
		return when_ns;
	div64_u64_rem(when_ns, throttle->stall_period_ns, &phase);
	/* In an order that does not overflow with the longest period. */
	if (phase < throttle->stall_offset_ns)
		phase += throttle->stall_period_ns - throttle->stall_offset_ns;
	else
		phase -= throttle->stall_offset_ns;
	return phase < throttle->stall_ns ? when_ns + throttle->stall_ns - phase : when_ns;
}
