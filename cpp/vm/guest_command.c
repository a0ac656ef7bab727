// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "guest_command.h"

#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest_begin.h"
#include "guest_console.h"
#include "guest_control.h"
#include "guest_fork_server.h"
#include "guest_stream.h"

static int port_stdin, port_stdout, port_stderr;
static struct stream in, out, err;
static bool stdin_ended; /* the command was told so */
static pid_t child;
static int terminal = -1; /* master side of the command's terminal, when it has one */
static int child_status;
static bool child_exited;
static bool child_parks; /* it will stop itself, for the machine to be saved */
static enum { RUNS, STOPPED, PARKED } parking;

void open_streams(void)
{
	port_stdin = open_port(PORT_STDIN);
	port_stdout = open_port(PORT_STDOUT);
	port_stderr = open_port(PORT_STDERR);
	in.to = out.from = err.from = -1;
}

struct command {
	char **argv, **envp, *cwd;
	uint32_t mask; /* umask(2) */
	bool tty, parks;
	struct winsize window;
	const char *frame; /* all of it, as it came */
	uint32_t length;
};

static void make_pipe(int *read_end, int *write_end)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) != 0)
		die("pipe2");
	*read_end = ends[0];
	*write_end = ends[1];
}

/* The PATH that the command's own environment has, as execvpe(3) would use ours. */
static void execute(struct command *command)
{
	for (char **env = command->envp; env && *env; env++)
		if (strncmp(*env, "PATH=", 5) == 0)
			setenv("PATH", *env + 5, 1);
	execvpe(command->argv[0], command->argv, command->envp ? command->envp : (char *[]){NULL});
}

static void __attribute__((noreturn)) child_main(struct command *command, int stdin_fd, int stdout_fd, int stderr_fd,
						 int report)
{
	sigset_t none;
	int32_t code;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	if (command->tty)
		ioctl(stdin_fd, TIOCSCTTY, 0);
	dup2(stdin_fd, 0);
	dup2(stdout_fd, 1);
	dup2(stderr_fd, 2);
	umask(command->mask);
	if (chdir(command->cwd ? command->cwd : "/") == 0)
		execute(command);
	code = errno;
	(void)!write(report, &code, sizeof(code));
	_exit(127);
}

/*
 * Reads what the last command left of its stdin, or the next one would get it. The host has said by now how much
 * there is.
 */
static void discard_stdin(void)
{
	while (in.read < in.limit) {
		uint64_t left = in.limit - in.read;
		ssize_t got = read(port_stdin, in.data, left < sizeof(in.data) ? (size_t)left : sizeof(in.data));

		if (got > 0)
			in.read += (uint64_t)got;
		else
			poll(&(struct pollfd){.fd = port_stdin, .events = POLLIN}, 1, 100);
	}
}

static void close_streams(void)
{
	if (in.to >= 0)
		close(in.to);
	if (out.from >= 0)
		close(out.from);
	if (err.from >= 0)
		close(err.from);
	in.to = out.from = err.from = terminal = -1;
}

/* A fork of the server where it can be one, else of ours; tells `report` when it cannot run, and closes it when it runs. */
static pid_t start_child(struct command *command, int stdin_fd, int stdout_fd, int stderr_fd, int report)
{
	pid_t pid = -1;

	if (serves(command->argv[0]))
		pid = fork_command(command->frame, command->length, stdin_fd, stdout_fd, stderr_fd, report);
	if (pid < 0)
		pid = fork();
	if (pid < 0)
		die("fork");
	if (pid == 0)
		child_main(command, stdin_fd, stdout_fd, stderr_fd, report);
	return pid;
}

static void run_command(struct command *command)
{
	int stdin_read, stdin_write, stdout_read, stdout_write, stderr_read, stderr_write, report_read, report_write;
	int32_t code;
	uint32_t pid;

	discard_stdin();
	terminal = -1;
	if (command->tty) {
		int slave;

		if (openpty(&terminal, &slave, NULL, NULL, &command->window) != 0) {
			send_failed("openpty");
			return;
		}
		fcntl(terminal, F_SETFD, FD_CLOEXEC);
		stdin_read = stdout_write = stderr_write = slave;
		stdin_write = terminal;
		stdout_read = fcntl(terminal, F_DUPFD_CLOEXEC, 0);
		stderr_read = -1;
	} else {
		make_pipe(&stdin_read, &stdin_write);
		make_pipe(&stdout_read, &stdout_write);
		make_pipe(&stderr_read, &stderr_write);
	}
	make_pipe(&report_read, &report_write);

	child_exited = false;
	child_parks = command->parks;
	child_status = 0;
	parking = RUNS;
	child = start_child(command, stdin_read, stdout_write, stderr_write, report_write);
	close(report_write);
	close(stdin_read);
	if (!command->tty) {
		close(stdout_write);
		close(stderr_write);
	}

	start_stream(&in, port_stdin, stdin_write);
	in.from_port = true;
	stdin_ended = false;
	start_stream(&out, stdout_read, port_stdout);
	start_stream(&err, stderr_read, port_stderr);
	if (read(report_read, &code, sizeof(code)) == sizeof(code)) {
		int status;

		/* exec failed: the pipe would have been closed by it */
		waitpid(child, &status, 0);
		child = 0;
		close_streams();
		errno = code;
		if (command->cwd && access(command->cwd, X_OK) != 0)
			send_failed("chdir to %s", command->cwd);
		else
			send_failed("execute %s", command->argv[0]);
	} else {
		pid = (uint32_t)child;
		send_frame(FRAME_STARTED, &pid, sizeof(pid));
	}
	close(report_read);
}

void exec_frame(const char *payload, uint32_t length)
{
	const char *at = payload, *end = payload + length;
	struct command command = {.mask = 022, .frame = payload, .length = length};
	struct field field;
	char *text;

	while (next_field(&at, end, &field, &text)) {
		switch (field.type) {
		case FIELD_ARG:
			append_text(&command.argv, text);
			continue;
		case FIELD_ENV:
			append_text(&command.envp, text);
			continue;
		case FIELD_CWD:
			command.cwd = text;
			continue;
		case FIELD_UMASK:
			memcpy(&command.mask, text, sizeof(command.mask));
			break;
		case FIELD_PARKS:
			command.parks = true;
			break;
		case FIELD_TTY:
			command.tty = true;
			memcpy(&command.window.ws_row, text, 2);
			memcpy(&command.window.ws_col, text + 2, 2);
			break;
		}
		free(text);
	}
	errno = EINVAL;
	if (!command.argv)
		send_failed("execute: no command");
	else if (child > 0)
		send_failed("execute %s: another command runs", command.argv[0]);
	else
		run_command(&command);
	for (char **arg = command.argv; arg && *arg; arg++)
		free(*arg);
	for (char **env = command.envp; env && *env; env++)
		free(*env);
	free(command.argv);
	free(command.envp);
	free(command.cwd);
}

static uint32_t first_number(const char *payload, uint32_t length)
{
	uint32_t number = 0;

	memcpy(&number, payload, length < 4 ? length : 4);
	return number;
}

/* What a terminal sends to the whole foreground group goes to the group; the rest to the command alone. */
void signal_frame(const char *payload, uint32_t length)
{
	uint32_t number = first_number(payload, length);

	if (child <= 0)
		return;
	if (number == SIGINT || number == SIGQUIT || number == SIGHUP)
		kill(-child, (int)number);
	else
		kill(child, (int)number);
}

void stdin_end_frame(const char *payload, uint32_t length)
{
	memcpy(&in.limit, payload, length < 8 ? length : 8);
}

void winsize_frame(const char *payload, uint32_t length)
{
	if (terminal >= 0 && length == 4) {
		struct winsize window = {0};

		memcpy(&window.ws_row, payload, 2);
		memcpy(&window.ws_col, payload + 2, 2);
		ioctl(terminal, TIOCSWINSZ, &window);
	}
}

void unread_frame(const char *payload, uint32_t length)
{
	if (child > 0)
		unread(first_number(payload, length) == 1 ? &out : &err);
}

void resume_frame(void)
{
	uint32_t pid = (uint32_t)child;

	if (parking != PARKED) {
		errno = EINVAL;
		send_failed("resume: no command has parked");
		return;
	}
	parking = RUNS;
	child_parks = false;
	in.read = out.written = err.written = 0;
	in.limit = UINT64_MAX;
	send_frame(FRAME_STARTED, &pid, sizeof(pid));
	kill(child, SIGCONT);
}

nfds_t poll_command(struct pollfd *polls)
{
	nfds_t count = 0;

	if (child <= 0 || parking == PARKED)
		return 0;
	count += poll_stream(&in, &polls[count]);
	count += poll_stream(&out, &polls[count]);
	count += poll_stream(&err, &polls[count]);
	return count;
}

/* Tells the command that there is no more stdin, once it has all. */
static void end_stdin(void)
{
	if (stdin_ended || in.read != in.limit || !drained(&in))
		return;
	/* On a terminal the end of input is a character (Ctrl-D), and closing would hang it up. */
	if (terminal >= 0) {
		(void)!write(terminal, "\4", 1);
	} else if (in.to >= 0) {
		close(in.to);
		in.to = -1;
	}
	stdin_ended = true;
}

/* What is told of a command that has ended, or parked, and of which all has been read that it wrote. */
static void send_end(uint32_t type)
{
	struct exited exited = {
		.signaled = WIFSIGNALED(child_status),
		.status = WIFSIGNALED(child_status) ? WTERMSIG(child_status) : WEXITSTATUS(child_status),
		.stdout_bytes = out.written,
		.stderr_bytes = err.written,
	};

	send_frame(type, &exited, sizeof(exited));
}

/* Whoever still holds the pipes of a command that is gone is not waited for. */
static void finish_command(void)
{
	sync_run_dir();
	close_streams();
	child = 0;
	child_exited = false;
	send_end(FRAME_EXITED);
}

void serve_command(void)
{
	if (child <= 0 || parking == PARKED)
		return;
	pump(&in);
	end_stdin();
	pump(&out);
	pump(&err);
	if (parking == STOPPED && drained(&out) && drained(&err)) {
		/* Without the host's files it could only go on to be told so: where they are in use, this is the end. */
		rehearse(false);
		if (leave_root())
			send_end(FRAME_PARKED);
		parking = PARKED;
		return;
	}
	if (child_exited && drained(&out) && drained(&err))
		finish_command();
}

void process_ended(pid_t pid, int status)
{
	if (pid != child)
		return;
	child_status = status;
	child_exited = true;
}

void process_stopped(pid_t pid)
{
	if (pid == child && child_parks && parking == RUNS)
		parking = STOPPED;
}
