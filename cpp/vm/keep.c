// SPDX-License-Identifier: MIT
/*
 * sampleblk-keep FD FOLDER COMMAND [ARG...]
 *
 * Runs a command (QEMU) that must not outlive the process that started us, however that one dies: FD is the read end of
 * a pipe whose only write end is there, so its end of file is that process's end, and then the command is killed and
 * FOLDER, its scratch files, removed. A byte that is written there asks for the same: 's' without removing FOLDER, 'e'
 * with it, for a process that may be killed before it can do so itself. We make it, with an empty folder in it for a
 * guest that was given none to write to: made by that process, it would stay if that one was killed before we run.
 * Should we be killed ourselves, the kernel kills the command (PR_SET_PDEATHSIG, which is bound to the thread that
 * forked: one reason to be a process of our own with one thread). A session of its own keeps Ctrl-C at the terminal
 * away from QEMU: whether to stop is for the guest's command to decide.
 *
 * Exits as the command did: its status, or 128 + signal.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *position)
{
	(void)status;
	(void)type;
	(void)position;
	return remove(path);
}

static void fail(const char *what)
{
	fprintf(stderr, "sampleblk-keep: %s: %s\n", what, strerror(errno));
	exit(125);
}

/*
 * Makes the folder, unless it is there as when a command before this one could not start, and holds it by flock(2): one
 * that nobody holds is of killed processes, and goes with the next VM. Returns its descriptor.
 */
static int make_and_hold(const char *folder)
{
	struct stat held, named;

	for (;;) {
		int fd;

		if (mkdir(folder, 0700) != 0 && errno != EEXIST)
			fail(folder);
		fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0) {
			if (flock(fd, LOCK_SH) != 0 || fstat(fd, &held) != 0)
				fail(folder);
			if (stat(folder, &named) == 0 && held.st_ino == named.st_ino)
				return fd;
			close(fd);
		} else if (errno != ENOENT) {
			fail(folder);
		}
		/* Another one has met it before it was held, and removed it: once more. */
	}
}

int main(int argc, char **argv)
{
	int lifeline, signals, status, folder;
	char shared[PATH_MAX];
	pid_t self, child;
	sigset_t set;

	if (argc < 4) {
		fprintf(stderr, "usage: sampleblk-keep FD FOLDER COMMAND [ARG...]\n");
		return 125;
	}
	lifeline = atoi(argv[1]);
	snprintf(shared, sizeof(shared), "%s/no-run-dir", argv[2]);
	/* Before there is a folder: until then we are killed with our group. Fails when we lead a session already. */
	setsid();
	folder = make_and_hold(argv[2]);
	if (mkdir(shared, 0755) != 0 && errno != EEXIST)
		fail(shared);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signals = signalfd(-1, &set, SFD_CLOEXEC);
	if (signals < 0)
		fail("signalfd");

	self = getpid();
	child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0) {
		sigprocmask(SIG_UNBLOCK, &set, NULL);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != self)
			_exit(125); /* killed between fork and prctl */
		close(lifeline);
		execvp(argv[3], argv + 3);
		fail(argv[3]);
	}

	/* The command's sockets must close when it ends: hold none of them. */
	for (int fd = 3; fd < 1024; fd++)
		if (fd != lifeline && fd != signals && fd != folder)
			close(fd);
	for (;;) {
		struct pollfd polls[] = {
			{.fd = lifeline, .events = POLLIN},
			{.fd = signals, .events = POLLIN},
		};

		if (poll(polls, 2, -1) < 0) {
			if (errno == EINTR)
				continue;
			fail("poll");
		}
		if (polls[0].revents) {
			char word;
			ssize_t got = read(lifeline, &word, 1);

			kill(child, SIGKILL);
			waitpid(child, &status, 0);
			if (got != 1 || word == 'e')
				nftw(argv[2], remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
			return 128 + SIGKILL;
		}
		if (polls[1].revents) {
			struct signalfd_siginfo info;

			(void)!read(signals, &info, sizeof(info));
			if (waitpid(child, &status, WNOHANG) == child)
				return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
		}
	}
}
