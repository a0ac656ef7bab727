// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "guest_fork_server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest_console.h"
#include "guest_control.h"

#define READY_DEADLINE_MS 90000 /* a busy host's emulated guest takes a minute to import everything */
#define SERVER_FD 3

static int server = -1;
static char *program;
static pid_t rehearsing; /* 0 when there is none, or none any more */

static void __attribute__((noreturn)) server_main(int socket_fd, char **argv, char **envp)
{
	sigset_t none;
	int null;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	setsid();
	/* What it complains of goes to the console, as our own standard streams do. */
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	dup2(null, 0);
	dup2(socket_fd, SERVER_FD);
	execve(argv[0], argv, envp);
	console("sampleblk-init: %s: %s", argv[0], strerror(errno));
	_exit(127);
}

/* False with errno set when it did not become ready. */
static bool start(char **argv, char **envp)
{
	int ends[2];
	uint32_t word;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		return false;
	pid = fork();
	if (pid < 0)
		die("fork");
	if (pid == 0)
		server_main(ends[1], argv, envp);
	close(ends[1]);
	if (poll(&(struct pollfd){.fd = ends[0], .events = POLLIN}, 1, READY_DEADLINE_MS) == 1 &&
	    recv(ends[0], &word, sizeof(word), MSG_WAITALL) == (ssize_t)sizeof(word)) {
		server = ends[0];
		rehearsing = (pid_t)word;
		return true;
	}
	kill(pid, SIGKILL);
	close(ends[0]);
	errno = ECHILD;
	return false;
}

void prepare(const char *payload, uint32_t length)
{
	const char *at = payload, *end = payload + length;
	char **argv = NULL, **envp = NULL, *text;
	struct field field;

	while (next_field(&at, end, &field, &text)) {
		switch (field.type) {
		case FIELD_ARG:
			append_text(&argv, text);
			continue;
		case FIELD_ENV:
			append_text(&envp, text);
			continue;
		case FIELD_HOSTNAME:
			(void)!sethostname(text, field.length); /* modules keep what they ask for */
			break;
		}
		free(text);
	}
	if (argv && start(argv, envp ? envp : (char *[]){NULL})) {
		program = argv[0];
		send_frame(FRAME_PREPARED, NULL, 0);
	} else {
		send_failed("start a Python to fork from");
	}
}

void rehearse(bool wanted)
{
	if (rehearsing)
		kill(rehearsing, wanted ? SIGCONT : SIGKILL);
}

void rehearsal_ended(pid_t pid)
{
	if (pid == rehearsing)
		rehearsing = 0;
}

bool serves(const char *wanted)
{
	return server >= 0 && strcmp(wanted, program) == 0;
}

static bool send_all(const void *data, size_t length)
{
	const char *at = data;

	while (length > 0) {
		ssize_t put = send(server, at, length, MSG_NOSIGNAL);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return false;
		at += put;
		length -= (size_t)put;
	}
	return true;
}

/* The length of what follows, with the descriptors beside it (unix(7), SCM_RIGHTS). */
static bool send_descriptors(uint32_t length, const int *descriptors, size_t count)
{
	union {
		char space[CMSG_SPACE(5 * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec part = {.iov_base = &length, .iov_len = sizeof(length)};
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control.space,
		.msg_controllen = CMSG_SPACE(count * sizeof(int)),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
	return sendmsg(server, &message, MSG_NOSIGNAL) == (ssize_t)sizeof(length);
}

pid_t fork_command(const void *payload, uint32_t length, int stdin_fd, int stdout_fd, int stderr_fd, int report)
{
	int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const int descriptors[] = {stdin_fd, stdout_fd, stderr_fd, report, root};
	uint32_t pid;
	bool sent;

	if (root < 0)
		die("open the root");
	sent = send_descriptors(length, descriptors, 5) && send_all(payload, length);
	close(root);
	if (sent && recv(server, &pid, sizeof(pid), MSG_WAITALL) == (ssize_t)sizeof(pid) && pid != 0)
		return (pid_t)pid;
	/* Gone, or out of step: commands are started without it from now on. */
	close(server);
	server = -1;
	errno = ECHILD;
	return -1;
}
