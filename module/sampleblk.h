/* SPDX-License-Identifier: GPL-2.0-only */
/* What the driver's files know of each other. */
#ifndef SBLK_SAMPLEBLK_H
#define SBLK_SAMPLEBLK_H

#include <linux/blk-mq.h>
#include <linux/kref.h>
#include <linux/llist.h>
#include <linux/mutex.h>
#include <linux/sampleblk.h>
#include <linux/workqueue.h>

#include "stats.h"
#include "store.h"

struct sblk_device;

/* A hardware queue. It outlives live changes of their number: there is one for each that a device may ever have. */
struct sblk_queue {
	struct sblk_device *dev;
	unsigned int index;
	struct sblk_stats __percpu *stats;
};

/* A request on its way; lies behind each struct request. */
struct sblk_cmd {
	struct sblk_queue *queue;
	u64 start_ns; /* 0 unless somebody wants to know */
	blk_status_t status;
	struct llist_node deferred;
};

struct sblk_device {
	struct kref kref; /* one for the registry, one for each opener */
	struct sampleblk_config config;
	struct sblk_store *store;
	struct gendisk *disk;
	struct blk_mq_tag_set tag_set;

	unsigned int nr_queues; /* of `queues` */
	struct sblk_queue *queues;

	/* Requests that could not get memory without sleeping. */
	struct llist_head deferred;
	struct work_struct deferred_work;

	struct mutex open_lock; /* guards what follows */
	unsigned int openers;
	bool removing;
};

/* device.c: all of these take the registry's lock themselves */
int sblk_device_add(struct sampleblk_config *config);
int sblk_device_remove(u32 index, bool force);
void sblk_device_map(struct sampleblk_list *list);
/* A reference, or NULL. */
struct sblk_device *sblk_device_get(u32 index);
void sblk_device_put(struct sblk_device *dev);
void sblk_device_info(struct sblk_device *dev, struct sampleblk_info *info);
int sblk_device_counters(struct sblk_device *dev, struct sampleblk_counters *counters);
int sblk_device_init(void);
void sblk_device_exit(void);

/* queue.c */
extern const struct blk_mq_ops sblk_mq_ops;
void sblk_queue_deferred(struct work_struct *work);

/* request.c: does what the request asks of the store */
blk_status_t sblk_request_execute(struct sblk_device *dev, struct request *rq, gfp_t gfp);
enum sblk_op sblk_request_op(const struct request *rq);

/* sysfs.c */
extern const struct attribute_group *sblk_disk_groups[];

/* control.c */
int sblk_control_init(void);
void sblk_control_exit(void);

#endif
