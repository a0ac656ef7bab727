// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "guest_begin.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/random.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "guest_console.h"
#include "guest_control.h"
#include "guest_fork_server.h"

#define NINE_P "trans=virtio,version=9p2000.L,msize=512000,"
#define OURS "/run/sampleblk-init" /* in the initramfs' /run, which nobody sees who is in NEWROOT */
#define SYSTEM OURS "/system"
#define NEWROOT OURS "/root"
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static char run_dir[PATH_MAX], module_dir[PATH_MAX];
static int first_root; /* what / was before the host's files were there */

void make_directories(const char *path)
{
	char partial[PATH_MAX];

	snprintf(partial, sizeof(partial), "%s", path);
	for (char *slash = strchr(partial + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(partial, 0755);
		*slash = '/';
	}
	mkdir(partial, 0755);
}

static void set_clock(const void *payload, uint32_t length)
{
	int64_t now[2];

	if (length != sizeof(now))
		return;
	memcpy(now, payload, sizeof(now));
	clock_settime(CLOCK_REALTIME, &(struct timespec){.tv_sec = now[0], .tv_nsec = now[1]});
}

/* Every restored VM has the random pool of the saved one until this; credit it, so that getrandom() reseeds. */
static void stir_entropy(const void *payload, uint32_t length)
{
	struct {
		int entropy_count, buf_size;
		char buf[512];
	} pool = {0};
	int fd;

	if (length > sizeof(pool.buf))
		length = sizeof(pool.buf);
	pool.entropy_count = (int)length * 8;
	pool.buf_size = (int)length;
	memcpy(pool.buf, payload, length);
	fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, RNDADDENTROPY, &pool) != 0 || ioctl(fd, RNDRESEEDCRNG) != 0)
		die("stir entropy");
	close(fd);
}

struct mount_step {
	const char *source, *target, *type;
	unsigned long flags;
	const char *options;
	bool optional; /* absent from some kernels */
};

static bool do_mounts(const struct mount_step *steps, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct mount_step *step = &steps[i];

		make_directories(step->target);
		if (mount(step->source, step->target, step->type, step->flags, step->options) != 0 && !step->optional) {
			send_failed("mount %s on %s", step->type ? step->type : step->source, step->target);
			return false;
		}
	}
	return true;
}

/* Before the machine is saved: emulated, a clone takes milliseconds to mount a file system, and less to move it. */
void mount_beforehand(void)
{
	static const struct mount_step steps[] = {
		{"tmpfs", OURS "/overlay", "tmpfs", 0, "mode=755,size=75%", false},
		{"proc", SYSTEM "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, false},
		{"sysfs", SYSTEM "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, false},
		{"devtmpfs", SYSTEM "/dev", "devtmpfs", MS_NOSUID, "mode=755", false},
		{"devpts", SYSTEM "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=666", false},
		{"tmpfs", SYSTEM "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777", false},
		{"tmpfs", SYSTEM "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755", false},
		{"cgroup2", SYSTEM "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, true},
		{"debugfs", SYSTEM "/sys/kernel/debug", "debugfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, true},
		{"tracefs", SYSTEM "/sys/kernel/tracing", "tracefs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, true},
	};

	if (!do_mounts(steps, COUNT(steps)))
		return;
	mkdir(OURS "/overlay/upper", 0755);
	mkdir(OURS "/overlay/work", 0755);
	mkdir(SYSTEM "/run/lock", 01777);
	(void)!symlink("/proc/self/fd", SYSTEM "/dev/fd");
	(void)!symlink("/proc/self/fd/0", SYSTEM "/dev/stdin");
	(void)!symlink("/proc/self/fd/1", SYSTEM "/dev/stdout");
	(void)!symlink("/proc/self/fd/2", SYSTEM "/dev/stderr");
}

/*
 * The host's root, read-only, under a tmpfs, with what was mounted beforehand. Makes it our root. Over the host's
 * files are the initramfs' own: copies of some of them, which are opened without asking the host. What else there is of
 * ours is below /run, which is covered.
 */
static bool enter_root(const char *modules)
{
	static const struct mount_step steps[] = {
		{TAG_ROOT, OURS "/host", "9p", MS_RDONLY, NINE_P "cache=loose", false},
		{"overlay", NEWROOT, "overlay", 0,
		 "lowerdir=/:" OURS "/host,upperdir=" OURS "/overlay/upper,workdir=" OURS "/overlay/work", false},
		{SYSTEM "/proc", NEWROOT "/proc", NULL, MS_MOVE, NULL, false},
		{SYSTEM "/sys", NEWROOT "/sys", NULL, MS_MOVE, NULL, false},
		{SYSTEM "/dev", NEWROOT "/dev", NULL, MS_MOVE, NULL, false},
		{SYSTEM "/run", NEWROOT "/run", NULL, MS_MOVE, NULL, false},
	};
	struct utsname kernel;
	char path[PATH_MAX];

	first_root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (first_root < 0)
		die("open the root");
	if (!do_mounts(steps, COUNT(steps)))
		return false;
	if (run_dir[0]) {
		/* mmap: writable shared mappings work, and the host sees every write by the time that we sync. */
		const struct mount_step run = {TAG_RUN, path, "9p", MS_NOSUID | MS_NODEV, NINE_P "cache=mmap", false};

		snprintf(path, sizeof(path), NEWROOT "%.4000s", run_dir);
		if (!do_mounts(&run, 1))
			return false;
	}
	if (modules) {
		char source[PATH_MAX];
		const struct mount_step bind = {source, module_dir, NULL, MS_BIND, NULL, false};

		uname(&kernel);
		snprintf(source, sizeof(source), NEWROOT "%.4000s", modules);
		snprintf(module_dir, sizeof(module_dir), NEWROOT "/lib/modules/%s", kernel.release);
		if (!do_mounts(&bind, 1))
			return false;
	}
	/*
	 * As switch_root(8) does. PID 1 shares its root with the kernel's helper threads, so from here on
	 * request_module() finds the host's modprobe.
	 */
	if (chdir(NEWROOT) != 0 || mount(".", "/", NULL, MS_MOVE, NULL) != 0 || chroot(".") != 0 || chdir("/") != 0) {
		send_failed("switch root");
		return false;
	}
	return true;
}

/*
 * All that enter_root() did, backwards, for the machine to be saved and another one to enter_root() anew. What is still
 * in use of the host's files, by whomever, is busy: that cannot be saved.
 */
bool leave_root(void)
{
	static const char *const moved[] = {"/proc", "/sys", "/dev", "/run"};
	char from[PATH_MAX], to[PATH_MAX];

	sync_run_dir();
	/* What lies over a root has no name in it but "/..". */
	if (fchdir(first_root) != 0 || chroot(".") != 0 || mount("/..", NEWROOT, NULL, MS_MOVE, NULL) != 0) {
		send_failed("leave the root");
		return false;
	}
	close(first_root);
	for (size_t i = 0; i < COUNT(moved); i++) {
		snprintf(from, sizeof(from), NEWROOT "%s", moved[i]);
		snprintf(to, sizeof(to), SYSTEM "%s", moved[i]);
		if (mount(from, to, NULL, MS_MOVE, NULL) != 0) {
			send_failed("move %s", from);
			return false;
		}
	}
	snprintf(from, sizeof(from), NEWROOT "%.4000s", run_dir);
	const char *const mounted[] = {module_dir[0] ? module_dir : NULL, run_dir[0] ? from : NULL, NEWROOT, OURS "/host"};

	for (size_t i = 0; i < COUNT(mounted); i++) {
		if (mounted[i] && umount2(mounted[i], 0) != 0) {
			send_failed("unmount %s", mounted[i]);
			return false;
		}
	}
	return true;
}

void begin(const char *payload, uint32_t length, uint32_t tsc_khz)
{
	const char *at = payload, *end = payload + length;
	char *text, *modules = NULL;
	struct begun begun = { .tsc_khz = tsc_khz };
	struct field field;

	while (next_field(&at, end, &field, &text)) {
		switch (field.type) {
		case FIELD_REHEARSE:
			rehearse(text[0] != 0);
			break;
		case FIELD_CLOCK:
			set_clock(text, field.length);
			break;
		case FIELD_ENTROPY:
			stir_entropy(text, field.length);
			break;
		case FIELD_HOSTNAME:
			(void)!sethostname(text, field.length);
			break;
		case FIELD_RUN_DIR:
			snprintf(run_dir, sizeof(run_dir), "%s", text);
			break;
		case FIELD_MODULES:
			free(modules);
			modules = strdup(text);
			break;
		}
		free(text);
	}
	if (enter_root(modules))
		send_frame(FRAME_BEGUN, &begun, sizeof(begun));
	free(modules);
}

void sync_run_dir(void)
{
	int fd;

	if (!run_dir[0])
		return;
	fd = open(run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		syncfs(fd);
		close(fd);
	}
}
