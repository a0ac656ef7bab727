// SPDX-License-Identifier: GPL-2.0-only
// 5.15: bvec_kmap_local().
#include <linux/bvec.h>

void *probe(struct bio_vec *bvec)
{
	return bvec_kmap_local(bvec);
}
