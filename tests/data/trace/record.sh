#!/bin/sh
# SPDX-License-Identifier: MIT
# The guest's part of making KERNEL-io.dat and KERNEL-fsync.dat; see README.md.
# usage: record.sh KERNEL DIRECTORY
set -eu
kernel=$1
out=$2

if modinfo -p null_blk | grep -q ^memory_backed; then
	# Completions come from a timer, so from another context than the one that issued.
	modprobe null_blk memory_backed=1 nr_devices=1 gb=1 irqmode=2 completion_nsec=50000
	device=/dev/nullb0
else # 5.10
	modprobe loop
	truncate -s 64M /dev/shm/image
	device=$(losetup -f --show /dev/shm/image)
fi
mkfs.ext4 -q -F -O ^orphan_file,^metadata_csum_seed -E lazy_itable_init=0 "$device" 64M
mount=$(mktemp -d)
mount "$device" "$mount"
cd "$mount"

cat >/tmp/job.sh <<'JOB'
dd if=/dev/zero of=a bs=4k count=12 conv=fsync 2>/dev/null
dd if=/dev/zero of=b bs=16k count=4 oflag=direct 2>/dev/null
cat /nonexistent 2>/dev/null
sync -d a
dd if=b of=/dev/null bs=8k iflag=direct 2>/dev/null
JOB
set --
for call in write openat fsync close read; do
	set -- "$@" -e "syscalls:sys_enter_$call" -e "syscalls:sys_exit_$call"
done
# Into memory first: a 9p folder takes no splice(2).
trace-cmd record -b 2000 -o "/tmp/$kernel-io.dat" \
	-p function -l vfs_read -l vfs_write -l vfs_fsync_range -l 'submit_bio*' \
	-e block -e sched:sched_switch -e sched:sched_waking -e sched:sched_process_fork -e sched:sched_process_exec "$@" \
	sh /tmp/job.sh

trace-cmd record -b 8000 -o "/tmp/$kernel-fsync.dat" \
	-p function_graph -g __x64_sys_fsync -g jbd2_journal_commit_transaction -g blk_mq_run_work_fn \
	-g blk_mq_complete_request --max-graph-depth 8 \
	-e block -e sched:sched_switch -e syscalls:sys_enter_write -e syscalls:sys_exit_write \
	-e syscalls:sys_enter_fsync -e syscalls:sys_exit_fsync \
	dd if=/dev/zero of=c bs=4k count=8 conv=fsync

cp "/tmp/$kernel-io.dat" "/tmp/$kernel-fsync.dat" "$out"
cd /
umount "$mount"
