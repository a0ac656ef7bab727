/* SPDX-License-Identifier: MIT */
#ifndef SAMPLEBLK_VM_GUEST_REQUESTS_H
#define SAMPLEBLK_VM_GUEST_REQUESTS_H

/* Prints on the console which block devices have requests in flight, each request, and the state of our driver's. */
void print_requests(void);

#endif
