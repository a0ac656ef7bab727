// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "guest_control.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest_console.h"

#define MAX_FRAME (16u << 20) /* argv and environment together; the kernel's own limit is below that */

static int control_fd;

/* Drivers that the kernel has neither built in nor brought will not come: say which, instead of waiting for ports. */
static void check_drivers(int tries)
{
	const char *what = NULL;

	if (access("/sys/class/virtio-ports", F_OK) != 0)
		what = "the kernel has no virtio console driver (CONFIG_VIRTIO_CONSOLE)";
	else if (tries == 2000 && access("/sys/bus/virtio/devices/virtio0", F_OK) != 0)
		what = "the kernel found no virtio device (CONFIG_VIRTIO_PCI)";
	if (what) {
		errno = ENODEV;
		die(what);
	}
}

int open_port(const char *wanted)
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
		check_drivers(tries);
		usleep(1000);
	}
	errno = ETIMEDOUT;
	die(wanted);
}

int open_control(void)
{
	control_fd = open_port(PORT_CONTROL);
	return control_fd;
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

		/* 0 and ENODEV: the host end is closed, for a moment after a restore or for good. */
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

void send_frame(uint32_t type, const void *payload, uint32_t length)
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

void send_failed(const char *format, ...)
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

void *receive_frame(struct frame *frame)
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

bool next_field(const char **at, const char *end, struct field *field, char **text)
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

void append_text(char ***list, char *text)
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
