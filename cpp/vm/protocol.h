/* SPDX-License-Identifier: MIT */
/*
 * What the guest's init and the host (python/sampleblk_lab/vm/channel.py) say to each other over the virtio-serial
 * port PORT_CONTROL. Little endian, as both ends are x86-64. Change PROTOCOL_VERSION with any change here.
 */
#ifndef SAMPLEBLK_VM_PROTOCOL_H
#define SAMPLEBLK_VM_PROTOCOL_H

#include <stdint.h>

#define PROTOCOL_VERSION 8

/* virtio-serial port names: control frames, and the raw bytes of the command's three standard streams. */
#define PORT_CONTROL "sampleblk.control"
#define PORT_STDIN "sampleblk.stdin"
#define PORT_STDOUT "sampleblk.stdout"
#define PORT_STDERR "sampleblk.stderr"

/* mount tags of the two 9p shares */
#define TAG_ROOT "sampleblk-root"
#define TAG_RUN "sampleblk-run"

struct frame {
	uint32_t type;
	uint32_t length; /* bytes of payload that follow */
};

/* Host to guest. The payload of BEGIN and EXEC is a list of fields: struct field, then `length` bytes. */
enum {
	FRAME_PREPARE = 'P',   /* start a Python to fork commands from; answered by PREPARED or FAILED */
	FRAME_BEGIN = 'B',     /* set the clock, stir entropy, mount everything; answered by BEGUN or FAILED */
	FRAME_EXEC = 'E',      /* run one command; answered by STARTED and EXITED (or PARKED), or by FAILED */
	FRAME_RESUME = 'C',    /* in a clone of a machine that was saved when PARKED, after BEGIN: the command goes on */
	FRAME_SIGNAL = 'S',    /* u32: signal number for the command */
	FRAME_STDIN_END = 'I', /* u64: bytes that its stdin has in all; close it after them */
	FRAME_WINSIZE = 'W',   /* u16 rows, u16 columns */
	FRAME_UNREAD = 'U',    /* u32: 1 stdout or 2 stderr has no reader any more; the command gets EPIPE */
	FRAME_STACKS = 'T',    /* print on the console what tasks wait for, where CPUs are, which requests; PRINTED */
	FRAME_SYNC = 'Y',      /* write the run directory back; answered by SYNCED */
};

/* Guest to host. */
enum {
	FRAME_READY = 'R',   /* struct ready; booted, nothing mounted, waiting for BEGIN */
	FRAME_PREPARED = 'p',
	FRAME_BEGUN = 'b',   /* struct begun */
	FRAME_STARTED = 's', /* u32: the command's pid in the guest */
	FRAME_EXITED = 'x',  /* struct exited */
	FRAME_PARKED = 'k',  /* struct exited; the command has stopped, all of BEGIN's is unmounted: it can be saved */
	FRAME_FAILED = 'f',  /* i32 errno, then the text of the operation that failed */
	FRAME_PRINTED = 't',
	FRAME_SYNCED = 'y',
};

struct ready {
	uint32_t version; /* PROTOCOL_VERSION */
	uint32_t tsc_khz; /* by the guest's clock */
};

struct begun {
	uint32_t tsc_khz; /* as at READY, which a clone did not say */
};

struct field {
	uint32_t type;
	uint32_t length;
};

enum {
	FIELD_REHEARSE = 'c', /* u8: 1 if the Python that is ready goes through a command meanwhile; the first field */
	FIELD_CLOCK = 't',    /* i64 seconds, i64 nanoseconds since the epoch */
	FIELD_ENTROPY = 'e',  /* bytes for the random pool */
	FIELD_HOSTNAME = 'h', /* text */
	FIELD_MODULES = 'k',  /* host path to bind over /lib/modules/RELEASE */
	FIELD_RUN_DIR = 'r',  /* host path that the run share is mounted on */
	FIELD_ARG = 'a',      /* one argument, in order */
	FIELD_ENV = 'v',      /* one NAME=VALUE */
	FIELD_CWD = 'd',      /* working directory */
	FIELD_UMASK = 'm',    /* u32, umask(2) */
	FIELD_PARKS = 'p',    /* u8: the command stops itself (SIGSTOP), outside the root, to be PARKED */
	FIELD_TTY = 'w',      /* u16 rows, u16 columns; the command gets a terminal */
};

struct exited {
	uint32_t signaled; /* 1: `status` is a signal number, 0: an exit status */
	int32_t status;
	uint64_t stdout_bytes; /* sent on PORT_STDOUT and PORT_STDERR since STARTED: the host waits for them all */
	uint64_t stderr_bytes;
};

#endif
