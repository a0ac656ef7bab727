// SPDX-License-Identifier: GPL-2.0-only
// 6.3: the flags of a mapping are changed through functions.
#include <linux/mm.h>

void probe(struct vm_area_struct *vma)
{
	vm_flags_clear(vma, VM_MAYWRITE);
}
