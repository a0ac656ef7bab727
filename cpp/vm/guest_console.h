/* SPDX-License-Identifier: MIT */
/* The guest's console: where init says what the host cannot be told, and its last words. */
#ifndef SAMPLEBLK_VM_GUEST_CONSOLE_H
#define SAMPLEBLK_VM_GUEST_CONSOLE_H

/* Makes it our standard streams. */
void open_console(void);

/* A line. */
void console(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Nothing can go on without this: the console says why, with errno, and the host sees the VM end. */
void die(const char *what) __attribute__((noreturn));

/* Has the kernel print the stacks of tasks that wait uninterruptibly, and of every CPU. */
void print_stacks(void);

#endif
