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
 *
 * SAMPLEBLK_IN_PLACE=1 spares the fork, which takes as long as a small check: main() runs in a process that has the
 * server's memory, as vfork() makes one, and afterwards all that it could write is put back as it was. For a tool that
 * neither maps memory itself and leaves it, nor starts threads or forks. Whoever asks for thousands of runs starts it anew
 * at times: what libc maps for itself (locales) stays.
 *
 * SAMPLEBLK_READS=FD is a file of whole pages, where a child leaves what it reads of the file or device that is the last
 * word of its command: struct reads, with as many entries as there is room for.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_BYTES 65536
#define MAX_ARGUMENTS 64

typedef int (*main_function)(int, char **, char **);
typedef void (*function)(void);
typedef int (*start_function)(main_function, int, char **, function, function, function, void *);

static main_function tool_main;
static int server = -1;
static bool in_place;

/* --- what is read of the disk */

struct reads {
	uint32_t count; /* also of those for which there is no room */
	uint32_t incomplete; /* it was read in a way of which no account is kept */
	struct {
		uint64_t offset;
		uint64_t length; /* that was asked for */
	} list[];
};

static struct reads *reads; /* or NULL */
static size_t reads_room;
static struct stat disk;
static bool watching;

static void *next_function(const char *name)
{
	void *symbol = dlsym(RTLD_NEXT, name);

	if (!symbol)
		_exit(127);
	return symbol;
}

/* `next` is the libc's own function of a name, found at its first call. */
#define NEXT(function)                                                           \
	static void *found_##function;                                           \
	void *symbol = __atomic_load_n(&found_##function, __ATOMIC_RELAXED);     \
	__typeof__(function) *next;                                              \
                                                                                 \
	if (!symbol) {                                                           \
		symbol = next_function(#function);                               \
		__atomic_store_n(&found_##function, symbol, __ATOMIC_RELAXED);   \
	}                                                                        \
	memcpy(&next, &symbol, sizeof(next))

static bool is_disk(int fd)
{
	int before = errno;
	struct stat about;
	bool found;

	found = watching && fd >= 0 && !fstat(fd, &about) &&
		(S_ISBLK(disk.st_mode) ? S_ISBLK(about.st_mode) && about.st_rdev == disk.st_rdev :
					 about.st_dev == disk.st_dev && about.st_ino == disk.st_ino);
	errno = before;
	return found;
}

static void note_read(int fd, off_t offset, size_t length)
{
	uint32_t at;

	if (!is_disk(fd))
		return;
	at = __atomic_fetch_add(&reads->count, 1, __ATOMIC_RELAXED);
	if (at >= reads_room) {
		reads->incomplete = 1;
		return;
	}
	reads->list[at].offset = (uint64_t)offset;
	reads->list[at].length = length;
}

static void note_other(int fd)
{
	if (is_disk(fd))
		reads->incomplete = 1;
}

#define EXPORT __attribute__((visibility("default")))

ssize_t __pread_chk(int fd, void *to, size_t length, off_t offset, size_t room);
ssize_t __pread64_chk(int fd, void *to, size_t length, off_t offset, size_t room);
ssize_t __read_chk(int fd, void *to, size_t length, size_t room);

EXPORT ssize_t pread(int fd, void *to, size_t length, off_t offset)
{
	NEXT(pread);
	note_read(fd, offset, length);
	return next(fd, to, length, offset);
}

EXPORT ssize_t pread64(int fd, void *to, size_t length, off_t offset)
{
	NEXT(pread64);
	note_read(fd, offset, length);
	return next(fd, to, length, offset);
}

EXPORT ssize_t __pread_chk(int fd, void *to, size_t length, off_t offset, size_t room)
{
	NEXT(__pread_chk);
	note_read(fd, offset, length);
	return next(fd, to, length, offset, room);
}

EXPORT ssize_t __pread64_chk(int fd, void *to, size_t length, off_t offset, size_t room)
{
	NEXT(__pread64_chk);
	note_read(fd, offset, length);
	return next(fd, to, length, offset, room);
}

EXPORT ssize_t read(int fd, void *to, size_t length)
{
	NEXT(read);
	note_other(fd);
	return next(fd, to, length);
}

EXPORT ssize_t __read_chk(int fd, void *to, size_t length, size_t room)
{
	NEXT(__read_chk);
	note_other(fd);
	return next(fd, to, length, room);
}

EXPORT ssize_t readv(int fd, const struct iovec *parts, int count)
{
	NEXT(readv);
	note_other(fd);
	return next(fd, parts, count);
}

EXPORT ssize_t preadv(int fd, const struct iovec *parts, int count, off_t offset)
{
	NEXT(preadv);
	note_other(fd);
	return next(fd, parts, count, offset);
}

EXPORT ssize_t preadv64(int fd, const struct iovec *parts, int count, off_t offset)
{
	NEXT(preadv64);
	note_other(fd);
	return next(fd, parts, count, offset);
}

EXPORT void *mmap(void *address, size_t length, int access, int flags, int fd, off_t offset)
{
	NEXT(mmap);
	note_other(fd);
	return next(address, length, access, flags, fd, offset);
}

EXPORT void *mmap64(void *address, size_t length, int access, int flags, int fd, off_t offset)
{
	NEXT(mmap64);
	note_other(fd);
	return next(address, length, access, flags, fd, offset);
}

/* In the server, once. Without the file no account is kept. */
static void keep_account(int fd)
{
	struct stat about;
	void *there;

	if (fstat(fd, &about) || about.st_size < (off_t)sizeof(*reads))
		return;
	there = mmap(NULL, (size_t)about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (there == MAP_FAILED)
		return;
	reads = there;
	reads_room = ((size_t)about.st_size - sizeof(*reads)) / sizeof(reads->list[0]);
}

/* --- commands */

/* The length of a command, with its descriptor in *output; 0 at the end, -1 for a malformed packet. */
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
	watching = reads && !stat(arguments[count - 1], &disk);
	if (dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0)
		_exit(127);
	close(output);
	close(server);
	errno = 0;
	return tool_main(count, arguments, environ);
}

/* --- without a fork */

#define MAX_PARTS 256
#define STACK_BYTES (8 << 20)

/* What the tool can write, as it was before it ran. In memory that is shared, and so no part of it. */
struct pristine {
	char *stack; /* of the process that runs main(); its lowest page cannot be used */
	void *brk;
	size_t count;
	struct {
		char *at;
		size_t length;
		char *copy;
	} parts[MAX_PARTS];
};

static struct pristine *pristine; /* or NULL: fork */

static void *shared_memory(size_t length)
{
	void *made = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return made == MAP_FAILED ? NULL : made;
}

/* Adds a line of /proc/self/maps to what is kept, if it is private and can be written. False: it cannot be kept. */
static bool keep(struct pristine *all, const char *line)
{
	uintptr_t from, to, here = (uintptr_t)__builtin_frame_address(0);
	char access[5];

	if (sscanf(line, "%lx-%lx %4s", &from, &to, access) != 3)
		return false;
	if (access[1] != 'w' || access[3] != 'p' || (from <= here && here < to))
		return true; /* the server's stack is not the tool's */
	if (all->stack <= (char *)from && (char *)to <= all->stack + STACK_BYTES)
		return true;
	if (access[0] != 'r' || all->count == MAX_PARTS)
		return false;
	all->parts[all->count].at = (char *)from;
	all->parts[all->count].length = to - from;
	all->parts[all->count].copy = shared_memory(to - from);
	return all->parts[all->count++].copy;
}

/* In the server, once, when nothing of the tool has run. */
static void keep_all(void)
{
	static char maps[MAX_BYTES];
	size_t length = 0;
	ssize_t got;
	struct pristine *all;
	int fd;

	/* Nothing that is allocated is outside of what brk() ends. */
	mallopt(M_MMAP_MAX, 0);
	all = shared_memory(sizeof(*all));
	if (!all)
		return;
	all->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (all->stack == MAP_FAILED || mprotect(all->stack, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE))
		return;
	all->brk = sbrk(0);
	fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	while ((got = read(fd, maps + length, sizeof(maps) - 1 - length)) > 0)
		length += (size_t)got;
	close(fd);
	if (got < 0 || length == sizeof(maps) - 1)
		return;
	for (char *line = maps, *end; (end = strchr(line, '\n')); line = end + 1) {
		*end = 0;
		if (!keep(all, line))
			return;
	}
	pristine = all; /* before the copies: it is among what is put back */
	for (size_t i = 0; i < all->count; i++)
		memcpy(all->parts[i].copy, all->parts[i].at, all->parts[i].length);
}

static void put_back(void)
{
	const struct pristine *all = pristine;

	syscall(SYS_brk, all->brk);
	for (size_t i = 0; i < all->count; i++)
		memcpy(all->parts[i].at, all->parts[i].copy, all->parts[i].length);
}

struct job {
	int count;
	char **given;
	char *command;
	ssize_t length;
	int output;
	void (*interrupt)(int);
	pid_t parent;
};

/* In the child, forked or not. */
static int do_job(void *given)
{
	struct job *job = given;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != job->parent)
		_exit(127);
	signal(SIGINT, job->interrupt);
	exit(run(job->count, job->given, job->command, job->length, job->output));
}

static pid_t started(struct job *job)
{
	pid_t child;

	if (pristine)
		return clone(do_job, pristine->stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | SIGCHLD, job);
	child = fork();
	if (!child)
		do_job(job);
	return child;
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
	if (in_place)
		keep_all();
	if (send(server, "", 1, MSG_NOSIGNAL) != 1)
		_exit(127);
	for (;;) {
		int output, status = -1;
		ssize_t length = receive(command, sizeof(command), &output);

		if (!length)
			_exit(0);
		if (reads) {
			reads->count = 0;
			reads->incomplete = 0;
		}
		if (length > 0) {
			struct job job = { argc, argv, command, length, output, interrupt, getpid() };
			pid_t child = started(&job);

			close(output);
			while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
				;
			if (pristine)
				put_back();
		}
		if (send(server, &status, sizeof(status), MSG_NOSIGNAL) < 0)
			_exit(0);
	}
}

EXPORT int __libc_start_main(main_function main, int argc, char **argv, function init, function fini, function rtld_fini,
			     void *stack_end)
{
	const char *given = getenv("SAMPLEBLK_RESIDENT"), *account = getenv("SAMPLEBLK_READS");
	start_function start;
	void *symbol = dlsym(RTLD_NEXT, "__libc_start_main");

	memcpy(&start, &symbol, sizeof(start));
	if (given) {
		server = atoi(given);
		/* What the tool starts is started as ever. */
		if (account)
			keep_account(atoi(account));
		in_place = getenv("SAMPLEBLK_IN_PLACE");
		unsetenv("SAMPLEBLK_RESIDENT");
		unsetenv("SAMPLEBLK_READS");
		unsetenv("SAMPLEBLK_IN_PLACE");
		unsetenv("LD_BIND_NOW");
		unsetenv("LD_PRELOAD");
		tool_main = main;
		main = serve;
	}
	return start(main, argc, argv, init, fini, rtld_fini, stack_end);
}
