// SPDX-License-Identifier: MIT
/*
 * The guest's init: PID 1 of every VM, static, for it is there before all else.
 *
 * It loads the modules that the initramfs brought, makes the nodes that load others, says READY and waits; asked to
 * PREPARE, it starts a Python to fork commands from (guest_fork_server.c) and waits again. That wait is where the host
 * saves the machine's state, so nothing before it may depend on the time or the run, nor on more of the host's files
 * than the initramfs brought. After BEGIN it sets the clock, stirs entropy, mounts the host's root read-only under a
 * tmpfs overlay and moves into it (guest_begin.c); then it runs commands (guest_command.c) and carries their standard
 * streams (guest_stream.c). A command may park: all of BEGIN is undone, the machine is saved with the command in it, and
 * its clones BEGIN and RESUME it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "guest_begin.h"
#include "guest_command.h"
#include "guest_console.h"
#include "guest_control.h"
#include "guest_fork_server.h"
#include "guest_requests.h"

static uint32_t tsc_khz; /* as measured where the machine booted; clones have it, too */

static void mount_early(const char *type, const char *target)
{
	mkdir(target, 0755);
	mount(type, target, type, 0, NULL);
}

static void load_modules(void)
{
	FILE *order = fopen("/run/modules/order", "re");
	char name[256], path[300];

	if (!order)
		return; /* a kernel with everything built in */
	while (fscanf(order, "%255s", name) == 1) {
		int fd;

		snprintf(path, sizeof(path), "/run/modules/%s", name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) != 0 && errno != EEXIST)) {
			console("sampleblk-init: %s: %s", name, strerror(errno));
			die("finit_module");
		}
		close(fd);
		unlink(path); /* its memory would be saved with the machine's state */
	}
	fclose(order);
	unlink("/run/modules/order");
}

/*
 * Nodes that load their driver when they are opened, as kmod(8) static-nodes lists them: nobody else makes them here.
 * devtmpfs is one for all who mount it.
 */
static void make_static_nodes(void)
{
	FILE *list = fopen("/run/modules/devname", "re");
	char line[256], name[128], path[140], *slash, kind;
	unsigned int major, minor;

	if (!list)
		return; /* nor modules that a node could load */
	while (fgets(line, sizeof(line), list)) {
		if (line[0] == '#' || sscanf(line, "%*s %127s %c%u:%u", name, &kind, &major, &minor) != 4)
			continue;
		snprintf(path, sizeof(path), "/dev/%s", name);
		slash = strrchr(path, '/');
		*slash = '\0';
		make_directories(path);
		*slash = '/';
		mknod(path, (kind == 'b' ? S_IFBLK : S_IFCHR) | 0600, makedev(major, minor));
	}
	fclose(list);
	unlink("/run/modules/devname");
}

/* Before the machine is saved: emulated, it takes a clone a tenth of the time that it has until its first command. */
static void loopback_up(void)
{
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd >= 0) {
		ioctl(fd, SIOCSIFFLAGS, &request);
		close(fd);
	}
}

/* As pam_keyinit(8) gives one to each login: else a key that a program adds to its session's goes with that program. */
static void join_session_keyring(void)
{
	if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) >= 0) /* not where the kernel has no keys */
		syscall(SYS_keyctl, KEYCTL_LINK, KEY_SPEC_USER_KEYRING, KEY_SPEC_SESSION_KEYRING);
}

/* SIGCHLD comes as data to poll for; writing to whom has gone is an error and no signal. */
static int open_signals(void)
{
	sigset_t set;
	int signals;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0)
		die("signalfd");
	return signals;
}

static void handle_frame(void)
{
	struct frame frame;
	char *payload = receive_frame(&frame);

	switch (frame.type) {
	case FRAME_PREPARE:
		prepare(payload, frame.length);
		break;
	case FRAME_BEGIN:
		begin(payload, frame.length, tsc_khz);
		break;
	case FRAME_EXEC:
		exec_frame(payload, frame.length);
		break;
	case FRAME_RESUME:
		resume_frame();
		break;
	case FRAME_SIGNAL:
		signal_frame(payload, frame.length);
		break;
	case FRAME_STDIN_END:
		stdin_end_frame(payload, frame.length);
		break;
	case FRAME_WINSIZE:
		winsize_frame(payload, frame.length);
		break;
	case FRAME_UNREAD:
		unread_frame(payload, frame.length);
		break;
	case FRAME_STACKS:
		print_stacks();
		print_requests();
		send_frame(FRAME_PRINTED, NULL, 0);
		break;
	case FRAME_SYNC:
		sync_run_dir();
		send_frame(FRAME_SYNCED, NULL, 0);
		break;
	default:
		errno = EINVAL;
		send_failed("control frame of unknown type %u", frame.type);
	}
	free(payload);
}

static void reap(int signals)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	(void)!read(signals, &info, sizeof(info));
	while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
		if (WIFSTOPPED(status)) {
			process_stopped(pid);
			continue;
		}
		rehearsal_ended(pid);
		process_ended(pid, status);
	}
}

static void __attribute__((noreturn)) serve(int control, int signals)
{
	for (;;) {
		struct pollfd polls[2 + COMMAND_POLLS] = {
			{.fd = control, .events = POLLIN},
			{.fd = signals, .events = POLLIN},
		};
		nfds_t count = 2 + poll_command(polls + 2);

		if (poll(polls, count, -1) < 0 && errno != EINTR)
			die("poll");
		if (polls[0].revents & POLLIN)
			handle_frame();
		else if (polls[0].revents & (POLLHUP | POLLERR))
			usleep(10000); /* the host end is gone, and poll() says so at once, for ever */
		if (polls[1].revents & POLLIN)
			reap(signals);
		serve_command();
	}
}

struct moment {
	uint64_t ticks;
	uint64_t ns;
};

/* Both clocks, read as closely as in the best of a few tries: this may be left waiting for a processor in between. */
static struct moment read_clocks(void)
{
	struct moment best = { 0, 0 };
	uint64_t closest = UINT64_MAX;

	for (int i = 0; i < 16; i++) {
		struct timespec now;
		uint64_t before = __rdtsc(), after;

		clock_gettime(CLOCK_MONOTONIC, &now);
		after = __rdtsc();
		if (after - before < closest) {
			closest = after - before;
			best.ticks = before + closest / 2;
			best.ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
		}
	}
	return best;
}

/* What the kernel takes the rate of the time stamp counter for, by which its clock goes. */
static uint32_t measure_tsc_khz(void)
{
	struct moment first = read_clocks(), last;

	usleep(10000);
	last = read_clocks();
	return (uint32_t)((last.ticks - first.ticks) * 1000000 / (last.ns - first.ns));
}

int main(void)
{
	struct ready ready = { .version = PROTOCOL_VERSION };
	int control, signals;

	mount_early("devtmpfs", "/dev");
	mount_early("proc", "/proc");
	mount_early("sysfs", "/sys");
	unlink("/init"); /* the root that we make has what is here */
	open_console();
	signals = open_signals();
	load_modules();
	make_static_nodes();
	loopback_up();
	join_session_keyring();
	control = open_control();
	mount_beforehand();
	open_streams();
	ready.tsc_khz = tsc_khz = measure_tsc_khz();
	send_frame(FRAME_READY, &ready, sizeof(ready));
	serve(control, signals);
}
