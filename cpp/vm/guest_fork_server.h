/* SPDX-License-Identifier: MIT */
/*
 * A Python process that has imported what commands will, and forks one of itself for each of them
 * (python/sampleblk_lab/vm/guest/fork_server.py): starting Python and importing numpy and pytest takes seconds under
 * emulation. It runs from copies of the host's files, which the initramfs brought to the same paths: a mounted 9p share
 * would keep the machine from being saved.
 *
 * Its forks are children of ours, since the process between ends at once: they are signalled and waited for as the
 * commands that we start ourselves.
 */
#ifndef SAMPLEBLK_VM_GUEST_FORK_SERVER_H
#define SAMPLEBLK_VM_GUEST_FORK_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The PREPARE frame: starts it, and answers when it is ready. */
void prepare(const char *payload, uint32_t length);

/*
 * Beside what BEGIN does, a process of its own goes through a command, where that is wanted; else it ends. Any process
 * that ends may be that one.
 */
void rehearse(bool wanted);
void rehearsal_ended(pid_t pid);

/* Whether it is there and runs this program. */
bool serves(const char *program);

/*
 * Asks for a fork that runs the command in an EXEC frame's payload, with these descriptors as its standard streams and
 * our root as its root. `report` is closed when the command runs, or gets the errno of what kept it from it. Its process
 * ID; -1 with errno when the server is gone.
 */
pid_t fork_command(const void *payload, uint32_t length, int stdin_fd, int stdout_fd, int stderr_fd, int report);

#endif
