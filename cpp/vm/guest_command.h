/* SPDX-License-Identifier: MIT */
/* The one command that runs at a time: its process, its standard streams, its terminal, its end. */
#ifndef SAMPLEBLK_VM_GUEST_COMMAND_H
#define SAMPLEBLK_VM_GUEST_COMMAND_H

#include <poll.h>
#include <stdint.h>
#include <sys/types.h>

#define COMMAND_POLLS 3

/* Opens the ports that carry the standard streams. */
void open_streams(void);

/* The frames that are about it, see protocol.h. */
void exec_frame(const char *payload, uint32_t length);
void signal_frame(const char *payload, uint32_t length);
void stdin_end_frame(const char *payload, uint32_t length);
void winsize_frame(const char *payload, uint32_t length);
void unread_frame(const char *payload, uint32_t length);

/* The RESUME frame: the command that has parked goes on, with streams from which nothing was read yet. */
void resume_frame(void);

/* What to poll for it: at most COMMAND_POLLS; how many. */
nfds_t poll_command(struct pollfd *polls);

/* Moves what its streams have, and says EXITED when it and they are at their end. */
void serve_command(void);

/* A process was reaped, or has stopped, which may be the command's. */
void process_ended(pid_t pid, int status);
void process_stopped(pid_t pid);

#endif
