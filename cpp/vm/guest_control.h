/* SPDX-License-Identifier: MIT */
/* The virtio-serial ports, and the frames of protocol.h on the control port. A port that fails ends the VM. */
#ifndef SAMPLEBLK_VM_GUEST_CONTROL_H
#define SAMPLEBLK_VM_GUEST_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol.h"

/* Opens the port of that name, which the driver learns from the host some time after it was loaded. */
int open_port(const char *wanted);

/* Opens the control port, which all below use. Its file descriptor, to poll. */
int open_control(void);

void send_frame(uint32_t type, const void *payload, uint32_t length);

/* FAILED with the current errno; the text names the operation and what it was on. */
void send_failed(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Waits for a frame. Its payload, with a NUL behind it, is the caller's to free. */
void *receive_frame(struct frame *frame);

/*
 * The next field of a frame's payload, whose end is `end`; its text is copied, ends in NUL and is the caller's to free.
 * False at the end.
 */
bool next_field(const char **at, const char *end, struct field *field, char **text);

/* Adds a text to an array that ends in NULL, as exec takes it; both stay the caller's to free. */
void append_text(char ***list, char *text);

#endif
