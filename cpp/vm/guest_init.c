// SPDX-License-Identifier: MIT
/*
 * The guest's init: PID 1 of every VM, static, the only program in the initramfs.
 *
 * It loads the modules that the initramfs brought, says READY and waits. That wait is where the host saves the
 * machine's state, so nothing before it may depend on the time, the host's files or the run. After BEGIN it sets the
 * clock, stirs entropy, mounts the host's root read-only under a tmpfs overlay and moves into it; then it runs
 * commands and carries their standard streams.
 *
 * The streams go through pipes of ours and not straight to the ports: a blocking write to a virtio port spins with
 * interrupts off until the host has taken the data (drivers/char/virtio_console.c, __send_to_port), so one slow
 * reader on the host would lock a CPU up.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/random.h>
#include <net/if.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "protocol.h"

#define MAX_FRAME (16u << 20) /* argv and environment together; the kernel's own limit is below that */
#define STREAM_BUFFER 65536

/* One direction of one stream: read from `from` into `data`, write from there to `to`. */
struct stream {
	int from, to;
	size_t begin, end;
	uint64_t read, written; /* bytes, since the command started */
	uint64_t limit;         /* of bytes to read: UINT64_MAX until the host says where stdin ends */
	bool ended;             /* the command was told that its stdin ended */
	char data[STREAM_BUFFER];
};

static int control_fd, port_stdin, port_stdout, port_stderr;
static struct stream in, out, err;
static pid_t child;
static int terminal = -1; /* master side of the command's terminal, when it has one */
static int child_status;
static bool child_exited;
static char run_dir[PATH_MAX];

static void console(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vdprintf(2, format, args);
	va_end(args);
	dprintf(2, "\n");
}

/* Nothing can go on without this: the console says why, and the host sees the VM end. */
static void __attribute__((noreturn)) die(const char *what)
{
	console("sampleblk-init: %s: %s", what, strerror(errno));
	sync();
	reboot(RB_POWER_OFF);
	_exit(1);
}

static void write_all(int fd, const void *data, size_t length)
{
	const char *at = data;

	while (length > 0) {
		ssize_t put = write(fd, at, length);

		if (put < 0 && errno == EAGAIN) {
			poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
			continue;
		}
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			die("write to the control port");
		at += put;
		length -= (size_t)put;
	}
}

static void read_all(int fd, void *data, size_t length)
{
	char *at = data;

	while (length > 0) {
		ssize_t got = read(fd, at, length);

		/* 0 and ENODEV: the host end is not there, for a moment after a restore or for good. */
		if (got == 0 || (got < 0 && (errno == EAGAIN || errno == ENODEV))) {
			poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, got == 0 ? 10 : -1);
			continue;
		}
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			die("read from the control port");
		at += got;
		length -= (size_t)got;
	}
}

static void send_frame(uint32_t type, const void *payload, uint32_t length)
{
	struct frame frame = {type, length};
	char together[512];

	/* One write where it fits: each one is an exit to the hypervisor. */
	if (length <= sizeof(together) - sizeof(frame)) {
		memcpy(together, &frame, sizeof(frame));
		if (length > 0)
			memcpy(together + sizeof(frame), payload, length);
		write_all(control_fd, together, sizeof(frame) + length);
		return;
	}
	write_all(control_fd, &frame, sizeof(frame));
	write_all(control_fd, payload, length);
}

/* FAILED with the current errno; the text names the operation and what it was on. */
static void send_failed(const char *format, ...)
{
	struct {
		int32_t code;
		char text[400];
	} failed = {.code = errno};
	va_list args;

	va_start(args, format);
	vsnprintf(failed.text, sizeof(failed.text), format, args);
	va_end(args);
	send_frame(FRAME_FAILED, &failed, (uint32_t)(sizeof(failed.code) + strlen(failed.text)));
}

static void *receive_frame(struct frame *frame)
{
	char *payload;

	read_all(control_fd, frame, sizeof(*frame));
	if (frame->length > MAX_FRAME) {
		errno = EMSGSIZE;
		die("control frame");
	}
	payload = malloc(frame->length + 1);
	if (!payload)
		die("malloc");
	read_all(control_fd, payload, frame->length);
	payload[frame->length] = '\0';
	return payload;
}

/* The next field of a frame's payload; its text is copied and ends in NUL. False at the end. */
static bool next_field(const char **at, const char *end, struct field *field, char **text)
{
	if ((size_t)(end - *at) < sizeof(*field))
		return false;
	memcpy(field, *at, sizeof(*field));
	*at += sizeof(*field);
	if (field->length > (size_t)(end - *at))
		return false;
	*text = strndup(*at, field->length);
	if (field->type == FIELD_CLOCK || field->type == FIELD_ENTROPY || field->type == FIELD_TTY) {
		/* binary: strndup would stop at the first zero */
		free(*text);
		*text = malloc(field->length + 1);
		if (*text)
			memcpy(*text, *at, field->length);
	}
	if (!*text)
		die("malloc");
	*at += field->length;
	return true;
}

static void load_modules(void)
{
	FILE *order = fopen("/modules/order", "re");
	char name[256], path[300];

	if (!order)
		return; /* a kernel with everything built in */
	while (fscanf(order, "%255s", name) == 1) {
		int fd;

		snprintf(path, sizeof(path), "/modules/%s", name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) != 0 && errno != EEXIST)) {
			console("sampleblk-init: %s: %s", name, strerror(errno));
			die("finit_module");
		}
		close(fd);
		unlink(path); /* its memory would be saved with the machine's state */
	}
	fclose(order);
	unlink("/modules/order");
}

/* Opens the port of that name, which the driver learns from the host some time after it was loaded. */
static int open_port(const char *wanted)
{
	for (int tries = 0; tries < 30000; tries++) {
		DIR *ports = opendir("/sys/class/virtio-ports");
		struct dirent *entry;

		while (ports && (entry = readdir(ports))) {
			char path[PATH_MAX], name[64] = "";
			FILE *file;

			if (entry->d_name[0] == '.')
				continue;
			snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", entry->d_name);
			file = fopen(path, "re");
			if (!file)
				continue;
			if (fscanf(file, "%63s", name) != 1)
				name[0] = '\0';
			fclose(file);
			if (strcmp(name, wanted) == 0) {
				int fd;

				closedir(ports);
				snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
				fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
				if (fd < 0)
					die(path);
				return fd;
			}
		}
		if (ports)
			closedir(ports);
		usleep(1000);
	}
	errno = ETIMEDOUT;
	die(wanted);
}

/* mkdir -p; an existing directory is fine. */
static int make_directories(const char *path)
{
	char partial[PATH_MAX];

	snprintf(partial, sizeof(partial), "%s", path);
	for (char *slash = strchr(partial + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(partial, 0755);
		*slash = '/';
	}
	return mkdir(partial, 0755) != 0 && errno != EEXIST ? -1 : 0;
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

static void loopback_up(void)
{
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd >= 0) {
		ioctl(fd, SIOCSIFFLAGS, &request);
		close(fd);
	}
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

#define NINE_P "trans=virtio,version=9p2000.L,msize=512000,"
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The host's root, read-only, under a tmpfs; the kernel's own file systems fresh. Makes it our root. */
static bool enter_root(const char *modules)
{
	static const struct mount_step root[] = {
		{TAG_ROOT, "/host", "9p", MS_RDONLY, NINE_P "cache=loose", false},
		{"tmpfs", "/overlay", "tmpfs", 0, "mode=755,size=75%", false},
	};
	static const struct mount_step overlay[] = {
		{"overlay", "/newroot", "overlay", 0, "lowerdir=/host,upperdir=/overlay/upper,workdir=/overlay/work", false},
	};
	static const struct mount_step system[] = {
		{"proc", "/newroot/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, false},
		{"sysfs", "/newroot/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, false},
		{"devtmpfs", "/newroot/dev", "devtmpfs", MS_NOSUID, "mode=755", false},
		{"devpts", "/newroot/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=666", false},
		{"tmpfs", "/newroot/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777", false},
		{"tmpfs", "/newroot/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755", false},
		{"cgroup2", "/newroot/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, true},
		{"debugfs", "/newroot/sys/kernel/debug", "debugfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, true},
		{"tracefs", "/newroot/sys/kernel/tracing", "tracefs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, true},
	};
	struct utsname kernel;
	char path[PATH_MAX];

	if (!do_mounts(root, COUNT(root)))
		return false;
	mkdir("/overlay/upper", 0755);
	mkdir("/overlay/work", 0755);
	if (!do_mounts(overlay, COUNT(overlay)) || !do_mounts(system, COUNT(system)))
		return false;
	mkdir("/newroot/run/lock", 01777);
	(void)!symlink("/proc/self/fd", "/newroot/dev/fd");
	(void)!symlink("/proc/self/fd/0", "/newroot/dev/stdin");
	(void)!symlink("/proc/self/fd/1", "/newroot/dev/stdout");
	(void)!symlink("/proc/self/fd/2", "/newroot/dev/stderr");

	if (run_dir[0]) {
		/* mmap: writable shared mappings work, and the host sees every write by the time that we sync. */
		const struct mount_step run = {TAG_RUN, path, "9p", MS_NOSUID | MS_NODEV, NINE_P "cache=mmap", false};

		snprintf(path, sizeof(path), "/newroot%.4000s", run_dir);
		if (!do_mounts(&run, 1))
			return false;
	}
	if (modules) {
		char source[PATH_MAX];
		const struct mount_step bind = {source, path, NULL, MS_BIND, NULL, false};

		uname(&kernel);
		snprintf(source, sizeof(source), "/newroot%.4000s", modules);
		snprintf(path, sizeof(path), "/newroot/lib/modules/%s", kernel.release);
		if (!do_mounts(&bind, 1))
			return false;
	}
	/*
	 * As switch_root(8) does. PID 1 shares its root with the kernel's helper threads, so from here on
	 * request_module() finds the host's modprobe.
	 */
	if (chdir("/newroot") != 0 || mount(".", "/", NULL, MS_MOVE, NULL) != 0 || chroot(".") != 0 || chdir("/") != 0) {
		send_failed("switch root");
		return false;
	}
	return true;
}

static void begin(const char *payload, uint32_t length)
{
	const char *at = payload, *end = payload + length;
	char *text, *modules = NULL;
	struct field field;

	while (next_field(&at, end, &field, &text)) {
		switch (field.type) {
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
	loopback_up();
	if (enter_root(modules))
		send_frame(FRAME_BEGUN, NULL, 0);
	free(modules);
}

static void make_pipe(int *read_end, int *write_end)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) != 0)
		die("pipe2");
	*read_end = ends[0];
	*write_end = ends[1];
}

static void set_nonblocking(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static void start_stream(struct stream *stream, int from, int to)
{
	*stream = (struct stream){.from = from, .to = to, .limit = UINT64_MAX};
	set_nonblocking(from);
	set_nonblocking(to);
}

struct command {
	char **argv, **envp, *cwd;
	bool tty;
	struct winsize window;
};

static void append(char ***list, char *text)
{
	size_t count = 0;

	while (*list && (*list)[count])
		count++;
	*list = realloc(*list, (count + 2) * sizeof(char *));
	if (!*list)
		die("malloc");
	(*list)[count] = text;
	(*list)[count + 1] = NULL;
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
	child = fork();
	if (child < 0)
		die("fork");
	if (child == 0)
		child_main(command, stdin_read, stdout_write, stderr_write, report_write);
	close(report_write);
	close(stdin_read);
	if (!command->tty) {
		close(stdout_write);
		close(stderr_write);
	}

	start_stream(&in, port_stdin, stdin_write);
	start_stream(&out, stdout_read, port_stdout);
	start_stream(&err, stderr_read, port_stderr);
	if (read(report_read, &code, sizeof(code)) == sizeof(code)) {
		int status;

		/* exec failed: the pipe would have been closed by it */
		waitpid(child, &status, 0);
		child = 0;
		close(stdin_write);
		close(stdout_read);
		if (stderr_read >= 0)
			close(stderr_read);
		in.to = out.from = err.from = terminal = -1;
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

static void exec_frame(const char *payload, uint32_t length)
{
	const char *at = payload, *end = payload + length;
	struct command command = {0};
	struct field field;
	char *text;

	while (next_field(&at, end, &field, &text)) {
		switch (field.type) {
		case FIELD_ARG:
			append(&command.argv, text);
			continue;
		case FIELD_ENV:
			append(&command.envp, text);
			continue;
		case FIELD_CWD:
			command.cwd = text;
			continue;
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

/* What a terminal sends to the whole foreground group goes to the group; the rest to the command alone. */
static void signal_frame(uint32_t number)
{
	if (child <= 0)
		return;
	if (number == SIGINT || number == SIGQUIT || number == SIGHUP)
		kill(-child, (int)number);
	else
		kill(child, (int)number);
}

static void sync_run_dir(void)
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

static void unread(struct stream *stream)
{
	if (stream->from >= 0)
		close(stream->from);
	stream->from = -1;
	stream->begin = stream->end = 0;
}

static void handle_frame(void)
{
	struct frame frame;
	char *payload = receive_frame(&frame);
	uint32_t number = 0;

	switch (frame.type) {
	case FRAME_BEGIN:
		begin(payload, frame.length);
		break;
	case FRAME_EXEC:
		exec_frame(payload, frame.length);
		break;
	case FRAME_SIGNAL:
		memcpy(&number, payload, frame.length < 4 ? frame.length : 4);
		signal_frame(number);
		break;
	case FRAME_STDIN_END:
		memcpy(&in.limit, payload, frame.length < 8 ? frame.length : 8);
		break;
	case FRAME_WINSIZE:
		if (terminal >= 0 && frame.length == 4) {
			struct winsize window = {0};

			memcpy(&window.ws_row, payload, 2);
			memcpy(&window.ws_col, payload + 2, 2);
			ioctl(terminal, TIOCSWINSZ, &window);
		}
		break;
	case FRAME_UNREAD:
		memcpy(&number, payload, frame.length < 4 ? frame.length : 4);
		if (child > 0)
			unread(number == 1 ? &out : &err);
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

static bool drained(const struct stream *stream)
{
	return stream->begin == stream->end;
}

/* Moves what can be moved without waiting. A side that is gone ends the stream; its input is thrown away. */
static void pump(struct stream *stream)
{
	for (;;) {
		bool moved = false;

		if (stream->from >= 0 && stream->begin == stream->end && stream->read < stream->limit) {
			uint64_t room = stream->limit - stream->read;
			ssize_t got = read(stream->from, stream->data,
					   room < sizeof(stream->data) ? (size_t)room : sizeof(stream->data));

			if (got > 0) {
				stream->begin = 0;
				stream->end = (size_t)got;
				stream->read += (uint64_t)got;
				moved = true;
			} else if (stream != &in && (got == 0 || (errno != EAGAIN && errno != EINTR))) {
				/* end of file, or EIO from a terminal whose last user is gone */
				close(stream->from);
				stream->from = -1;
			}
		}
		if (stream->begin < stream->end) {
			ssize_t put = stream->to < 0 ? (ssize_t)(stream->end - stream->begin)
						     : write(stream->to, stream->data + stream->begin,
							     stream->end - stream->begin);

			if (put > 0) {
				stream->begin += (size_t)put;
				stream->written += (uint64_t)put;
				moved = true;
			} else if (put < 0 && errno == EPIPE) {
				close(stream->to);
				stream->to = -1;
				moved = true;
			}
		}
		if (stream == &in && !stream->ended && stream->read == stream->limit && drained(stream)) {
			/* On a terminal the end of input is a character (Ctrl-D), and closing would hang it up. */
			if (terminal >= 0) {
				(void)!write(terminal, "\4", 1);
			} else if (stream->to >= 0) {
				close(stream->to);
				stream->to = -1;
			}
			stream->ended = true;
		}
		if (!moved)
			return;
	}
}

static void reap(int signals)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	(void)!read(signals, &info, sizeof(info));
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == child) {
			child_status = status;
			child_exited = true;
		}
	}
}

/* The command is gone and all that it wrote has been read: whoever still holds its pipes is not waited for. */
static void finish_command(void)
{
	struct exited exited = {
		.signaled = WIFSIGNALED(child_status),
		.status = WIFSIGNALED(child_status) ? WTERMSIG(child_status) : WEXITSTATUS(child_status),
		.stdout_bytes = out.written,
		.stderr_bytes = err.written,
	};

	sync_run_dir();
	if (in.to >= 0)
		close(in.to);
	if (out.from >= 0)
		close(out.from);
	if (err.from >= 0)
		close(err.from);
	in.to = out.from = err.from = terminal = -1;
	child = 0;
	child_exited = false;
	send_frame(FRAME_EXITED, &exited, sizeof(exited));
}

static void __attribute__((noreturn)) serve(int signals)
{
	for (;;) {
		struct pollfd polls[8];
		nfds_t count = 0;
		struct stream *streams[] = {&in, &out, &err};

		polls[count++] = (struct pollfd){.fd = control_fd, .events = POLLIN};
		polls[count++] = (struct pollfd){.fd = signals, .events = POLLIN};
		for (size_t i = 0; child > 0 && i < COUNT(streams); i++) {
			struct stream *stream = streams[i];

			if (drained(stream) && stream->from >= 0 && stream->read < stream->limit)
				polls[count++] = (struct pollfd){.fd = stream->from, .events = POLLIN};
			else if (!drained(stream) && stream->to >= 0)
				polls[count++] = (struct pollfd){.fd = stream->to, .events = POLLOUT};
		}
		if (poll(polls, count, -1) < 0 && errno != EINTR)
			die("poll");
		if (polls[0].revents & POLLIN)
			handle_frame();
		else if (polls[0].revents & (POLLHUP | POLLERR))
			usleep(10000); /* the host end is gone, and poll() says so at once, for ever */
		if (polls[1].revents & POLLIN)
			reap(signals);
		if (child > 0) {
			pump(&in);
			pump(&out);
			pump(&err);
			if (child_exited && drained(&out) && drained(&err))
				finish_command();
		}
	}
}

int main(void)
{
	static const struct mount_step early[] = {
		{"devtmpfs", "/dev", "devtmpfs", 0, NULL, false},
		{"proc", "/proc", "proc", 0, NULL, false},
		{"sysfs", "/sys", "sysfs", 0, NULL, false},
	};
	uint32_t version = PROTOCOL_VERSION;
	sigset_t set;
	int signals, tty;

	for (size_t i = 0; i < COUNT(early); i++) {
		mkdir(early[i].target, 0755);
		mount(early[i].source, early[i].target, early[i].type, 0, NULL);
	}
	tty = open("/dev/console", O_RDWR | O_NOCTTY);
	if (tty >= 0) {
		dup2(tty, 0);
		dup2(tty, 1);
		dup2(tty, 2);
		if (tty > 2)
			close(tty);
	}
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0)
		die("signalfd");
	load_modules();
	control_fd = open_port(PORT_CONTROL);
	port_stdin = open_port(PORT_STDIN);
	port_stdout = open_port(PORT_STDOUT);
	port_stderr = open_port(PORT_STDERR);
	in.to = out.from = err.from = -1;
	send_frame(FRAME_READY, &version, sizeof(version));
	serve(signals);
}
