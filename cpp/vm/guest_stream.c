// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "guest_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static void set_nonblocking(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void start_stream(struct stream *stream, int from, int to)
{
	*stream = (struct stream){.from = from, .to = to, .limit = UINT64_MAX};
	set_nonblocking(from);
	set_nonblocking(to);
}

bool drained(const struct stream *stream)
{
	return stream->begin == stream->end;
}

bool poll_stream(const struct stream *stream, struct pollfd *wanted)
{
	if (drained(stream) && stream->from >= 0 && stream->read < stream->limit)
		*wanted = (struct pollfd){.fd = stream->from, .events = POLLIN};
	else if (!drained(stream) && stream->to >= 0)
		*wanted = (struct pollfd){.fd = stream->to, .events = POLLOUT};
	else
		return false;
	return true;
}

void pump(struct stream *stream)
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
			} else if (!stream->from_port && (got == 0 || (errno != EAGAIN && errno != EINTR))) {
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
		if (!moved)
			return;
	}
}

void unread(struct stream *stream)
{
	if (stream->from >= 0)
		close(stream->from);
	stream->from = -1;
	stream->begin = stream->end = 0;
}
