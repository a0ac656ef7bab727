// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * /proc/inspect_oracle: what the kernel itself says of an open file, for the tests of sampleblk_lab.inspect.
 * Write the number of a descriptor of yours, then read "name value" lines; of a block device's also its queues.
 */
#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/proc_fs.h>
#include <linux/sched.h>
#include <linux/seq_file.h>

static void show_pages(struct seq_file *out, struct address_space *mapping)
{
	unsigned long index;
	void *entry;

	rcu_read_lock();
	xa_for_each(&mapping->i_pages, index, entry) {
		struct page *page = entry;

		if (xa_is_value(entry))
			continue;
		/* The flags are the first word of every version's struct page. */
		seq_printf(out, "page %lu %#lx %#lx %lu\n", index, (unsigned long)page, *(unsigned long *)page,
			   (unsigned long)page_size(page) >> PAGE_SHIFT);
	}
	rcu_read_unlock();
}

static void show_disk(struct seq_file *out, struct block_device *bdev)
{
	struct request_queue *q = bdev->bd_disk->queue;
	struct blk_mq_hw_ctx *hctx;
	unsigned long i;

	seq_printf(out, "gendisk %#lx\n", (unsigned long)bdev->bd_disk);
	seq_printf(out, "disk_name %s\n", bdev->bd_disk->disk_name);
	seq_printf(out, "disk_fops %ps\n", bdev->bd_disk->fops);
	seq_printf(out, "request_queue %#lx\n", (unsigned long)q);
	if (!q->mq_ops)
		return;
	seq_printf(out, "mq_ops %ps\n", q->mq_ops);
	seq_printf(out, "queue_rq %ps\n", q->mq_ops->queue_rq);
	queue_for_each_hw_ctx(q, hctx, i)
		seq_printf(out, "hctx %lu %#lx %#lx\n", i, (unsigned long)hctx, (unsigned long)hctx->tags);
}

static int oracle_show(struct seq_file *out, void *unused)
{
	struct file *file = fget((unsigned int)(unsigned long)out->private);
	struct inode *inode;

	if (!file)
		return -EBADF;
	inode = file_inode(file);
	seq_printf(out, "task %#lx\n", (unsigned long)current);
	seq_printf(out, "pid %d\n", current->pid);
	seq_printf(out, "comm %s\n", current->comm);
	seq_printf(out, "file %#lx\n", (unsigned long)file);
	seq_printf(out, "dentry %#lx\n", (unsigned long)file->f_path.dentry);
	seq_printf(out, "name %s\n", file->f_path.dentry->d_name.name);
	seq_printf(out, "inode %#lx\n", (unsigned long)inode);
	seq_printf(out, "superblock %#lx\n", (unsigned long)inode->i_sb);
	seq_printf(out, "mapping %#lx\n", (unsigned long)file->f_mapping);
	seq_printf(out, "position %lld\n", file->f_pos);
	seq_printf(out, "inode_number %llu\n", (u64)inode->i_ino);
	seq_printf(out, "size %lld\n", i_size_read(inode));
	seq_printf(out, "nrpages %lu\n", file->f_mapping->nrpages);
	seq_printf(out, "f_op %ps\n", file->f_op);
	seq_printf(out, "i_op %ps\n", inode->i_op);
	seq_printf(out, "a_ops %ps\n", file->f_mapping->a_ops);
	seq_printf(out, "write_iter %ps\n", file->f_op->write_iter);
	seq_printf(out, "dirty_bit %d\n", PG_dirty);
	show_pages(out, file->f_mapping);
	if (S_ISBLK(inode->i_mode))
		show_disk(out, I_BDEV(file->f_mapping->host));
	fput(file);
	return 0;
}

static int oracle_open(struct inode *inode, struct file *file)
{
	return single_open_size(file, oracle_show, NULL, 1 << 20);
}

static ssize_t oracle_write(struct file *file, const char __user *text, size_t count, loff_t *pos)
{
	struct seq_file *out = file->private_data;
	unsigned int fd;
	int err = kstrtouint_from_user(text, count, 10, &fd);

	if (err)
		return err;
	out->private = (void *)(unsigned long)fd;
	return count;
}

static const struct proc_ops oracle_ops = {
	.proc_open = oracle_open,
	.proc_read = seq_read,
	.proc_write = oracle_write,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

static int __init oracle_init(void)
{
	return proc_create("inspect_oracle", 0600, NULL, &oracle_ops) ? 0 : -ENOMEM;
}
module_init(oracle_init);

static void __exit oracle_exit(void)
{
	remove_proc_entry("inspect_oracle", NULL);
}
module_exit(oracle_exit);

MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("What the kernel says of an open file, for the tests of sampleblk_lab.inspect");
