/* SPDX-License-Identifier: MIT */
/*
 * One direction of one of the command's standard streams, between a port and a pipe or terminal of ours.
 *
 * They go through pipes and not straight to the ports: a blocking write to a virtio port spins with interrupts off
 * until the host has taken the data (drivers/char/virtio_console.c, __send_to_port), so one slow reader on the host
 * would lock a CPU up.
 */
#ifndef SAMPLEBLK_VM_GUEST_STREAM_H
#define SAMPLEBLK_VM_GUEST_STREAM_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STREAM_BUFFER 65536

/* Read from `from` into `data`, write from there to `to`; -1 is a side that is gone. */
struct stream {
	int from, to;
	size_t begin, end;
	uint64_t read, written; /* bytes, since the command started */
	uint64_t limit;         /* of bytes to read: UINT64_MAX until the host says where stdin ends */
	bool from_port;         /* a read that yields nothing is no end: the host's side comes and goes */
	char data[STREAM_BUFFER];
};

void start_stream(struct stream *stream, int from, int to);

/* Nothing that was read is still to be written. */
bool drained(const struct stream *stream);

/* What must happen for it to move on; false when nothing will. */
bool poll_stream(const struct stream *stream, struct pollfd *wanted);

/* Moves what can be moved without waiting. A side that is gone ends the stream; its input is thrown away. */
void pump(struct stream *stream);

/* Nobody reads it any more: its writer shall get EPIPE. */
void unread(struct stream *stream);

#endif
