// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "guest_console.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/reboot.h>
#include <unistd.h>

void open_console(void)
{
	int tty = open("/dev/console", O_RDWR | O_NOCTTY);

	if (tty < 0)
		return;
	dup2(tty, 0);
	dup2(tty, 1);
	dup2(tty, 2);
	if (tty > 2)
		close(tty);
}

void console(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vdprintf(2, format, args);
	va_end(args);
	dprintf(2, "\n");
}

void die(const char *what)
{
	console("sampleblk-init: %s: %s", what, strerror(errno));
	sync();
	reboot(RB_POWER_OFF);
	_exit(1);
}

void print_stacks(void)
{
	/* sysrq.rst: all that is printed goes to the console, blocked tasks, backtraces of all CPUs. */
	static const char keys[] = {'8', 'w', 'l'};
	int fd = open("/proc/sysrq-trigger", O_WRONLY | O_CLOEXEC);

	for (size_t i = 0; fd >= 0 && i < sizeof(keys); i++)
		(void)!write(fd, &keys[i], 1);
	if (fd >= 0)
		close(fd);
}
