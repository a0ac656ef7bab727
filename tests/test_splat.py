# SPDX-License-Identifier: MIT
"""Lines of kernels from 5.10 to 7.2: which are complaints."""

from __future__ import annotations

import pytest

from sampleblk_lab.splat import is_splat

COMPLAINTS = (
    "Kernel panic - not syncing: Fatal exception",
    "BUG: kernel NULL pointer dereference, address: 0000000000000008",
    "BUG: KASAN: slab-use-after-free in mutate+0x4b/0x60 [sampleblk]",
    "BUG: KFENCE: out-of-bounds read in mutate+0x4b/0x60",
    "BUG: sleeping function called from invalid context at kernel/locking/mutex.c:580",
    "BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 61s!",
    "BUG kmalloc-64 (Not tainted): Right Redzone overwritten",
    "BUG sblk_page (Tainted: G    B   W  OE     ): Objects remaining in sblk_page on __kmem_cache_shutdown()",
    "BUG: Bad page state in process fio  pfn:1c2d3",
    "[ BUG: Invalid wait context ]",
    "WARNING: CPU: 1 PID: 214 at fs/btrfs/transaction.c:1996 btrfs_commit_transaction+0x1/0x2",
    "WARNING: fs/ext4/inode.c:3450 at ext4_dirty_folio+0x6d/0x80, CPU#1: fio/214",
    "WARNING: possible circular locking dependency detected",
    "WARNING: suspicious RCU usage",
    "INFO: trying to register non-static key.",
    "INFO: task fio:214 blocked for more than 120 seconds.",
    "INFO: task fio:214 blocked in I/O wait for more than 120 seconds.",
    "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
    "watchdog: BUG: soft lockup - CPU#1 stuck for 134s! [fio:214]",
    "watchdog: Watchdog detected hard LOCKUP on cpu 1",
    "general protection fault, probably for non-canonical address 0xdead000000000108: 0000 [#1] PREEMPT SMP NOPTI",
    "general protection fault: 0000 [#1] SMP PTI",
    "Oops: general protection fault, maybe for address 0x0: 0000 [#1] SMP NOPTI",
    "divide error: 0000 [#1] PREEMPT SMP NOPTI",
    "Oops: divide error: 0000 [#1] SMP NOPTI",
    "stack segment: 0000 [#1] SMP NOPTI",
    "kmemleak: 1 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
    "kmemleak: unreferenced object 0xffff8880037fd000 (size 512):",
    "VFS: Busy inodes after unmount of sampleblk0. Self-destruct in 5 seconds.  Have a nice day...",
    "UBSAN: array-index-out-of-bounds in drivers/block/loop.c:1:2",
)

CHATTER = (
    "traps: fio[335] general protection fault ip:7f9c217ac219 sp:7ffe77cfbfb8 error:0 in libc.so.6[7f9c2167c000+15600]",
    "traps: fio[336] trap divide error ip:401136 sp:7ffd0e1f5a40 error:0 in fio[401000+1000]",
    "fio[337]: segfault at 0 ip 0000000000401136 sp 00007ffd0e1f5a40 error 6 in fio[401000+1000]",
    "sampleblk: DEBUG: a request of 8 sectors",
    "kmemleak: Kernel memory leak detector initialized (mem pool available: 15679)",
    "kasan: KernelAddressSanitizer initialized",
    "Buffer I/O error on dev sampleblk0, logical block 0, async page read",
    "EXT4-fs error (device sampleblk0): ext4_lookup:1785: inode #2: comm ls: deleted inode referenced: 12",
    "XFS (sampleblk0): Metadata corruption detected at xfs_agf_read_verify+0x1/0x2",
    "zonefs (sda) WARNING: inode 5: invalid size 0 (should be 4096)",
)


@pytest.mark.parametrize("prefix", ["", "[   12.345678] ", "[   12.345678][  T214] ", "[   12.345678][    C1] "])
def test_complaints_are_told_from_chatter(prefix: str) -> None:
    assert [line for line in COMPLAINTS if not is_splat(prefix + line)] == []
    assert [line for line in CHATTER if is_splat(prefix + line)] == []
