// SPDX-License-Identifier: MIT
/*
 * LD_PRELOAD=sampleblk-resident.so SAMPLEBLK_RESIDENT=FD TOOL
 *
 * Keeps a tool that is run again and again, such as e2fsck, loaded and linked: instead of its main() a server runs, which
 * forks for each command, and main() runs in the child. Most of the time that a short tool takes in an emulated machine
 * is execve() and ld.so.
 *
 * FD is a SOCK_SEQPACKET socket. The server sends one byte when it is ready; a tool that ignores LD_PRELOAD prints its
 * usage and ends without it. A command is a packet with the arguments behind those that the server itself has, each ended by
 * a zero byte, and one descriptor (SCM_RIGHTS) for standard output and error; a packet that is too long, or without a descriptor, is
 * answered with -1. The answer to any other is the child's wait status, an int. The end of the socket ends the server;
 * the end of whoever started it does too, and a child ends with the server.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_BYTES 65536
#define MAX_ARGUMENTS 64

typedef int (*main_function)(int, char **, char **);
typedef void (*function)(void);
typedef int (*start_function)(main_function, int, char **, function, function, function, void *);

static main_function tool_main;
static int server = -1;

/* The length of a command, with its descriptor in *output; 0 at the end, -1 for a packet that is none. */
static ssize_t receive(char *command, size_t room, int *output)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec data = { .iov_base = command, .iov_len = room };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	struct cmsghdr *rights;
	ssize_t length;

	do
		length = recvmsg(server, &message, MSG_CMSG_CLOEXEC);
	while (length < 0 && errno == EINTR);
	if (length <= 0)
		return 0;
	rights = CMSG_FIRSTHDR(&message);
	if (!rights || rights->cmsg_type != SCM_RIGHTS)
		return -1;
	memcpy(output, CMSG_DATA(rights), sizeof(*output));
	if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) || command[length - 1]) {
		close(*output);
		return -1;
	}
	return length;
}

/* In the child: as if the tool had been started with this command. A script is what its interpreter was given first. */
static int run(int count, char **given, char *command, ssize_t length, int output)
{
	char *arguments[MAX_ARGUMENTS + 1] = { NULL };

	if (count > MAX_ARGUMENTS)
		_exit(127);
	memcpy(arguments, given, (size_t)count * sizeof(*given));
	for (char *word = command; word < command + length; word += strlen(word) + 1) {
		if (count == MAX_ARGUMENTS)
			_exit(127);
		arguments[count++] = word;
	}
	if (dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0)
		_exit(127);
	close(output);
	close(server);
	return tool_main(count, arguments, environ);
}

static int serve(int argc, char **argv, char **envp)
{
	static char command[MAX_BYTES];
	void (*interrupt)(int);

	(void)envp;
	/* Bound to the thread that started us, which lives as long as its exploration. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Ctrl-C is for the command, and for whoever waits for it. */
	interrupt = signal(SIGINT, SIG_IGN);
	if (send(server, "", 1, MSG_NOSIGNAL) != 1)
		_exit(127);
	for (;;) {
		int output, status = -1;
		ssize_t length = receive(command, sizeof(command), &output);
		pid_t self = getpid(), child;

		if (!length)
			_exit(0);
		if (length > 0) {
			child = fork();
			if (!child) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				if (getppid() != self)
					_exit(127);
				signal(SIGINT, interrupt);
				return run(argc, argv, command, length, output);
			}
			close(output);
			while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
				;
		}
		if (send(server, &status, sizeof(status), MSG_NOSIGNAL) < 0)
			_exit(0);
	}
}

__attribute__((visibility("default"))) int __libc_start_main(main_function main, int argc, char **argv, function init,
							     function fini, function rtld_fini, void *stack_end)
{
	const char *given = getenv("SAMPLEBLK_RESIDENT");
	start_function start;
	void *symbol = dlsym(RTLD_NEXT, "__libc_start_main");

	memcpy(&start, &symbol, sizeof(start));
	if (given) {
		server = atoi(given);
		/* What the tool starts is started as ever. */
		unsetenv("SAMPLEBLK_RESIDENT");
		unsetenv("LD_PRELOAD");
		tool_main = main;
		main = serve;
	}
	return start(main, argc, argv, init, fini, rtld_fini, stack_end);
}
