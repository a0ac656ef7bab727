// SPDX-License-Identifier: MIT
// The least that writing a file 4 KiB at a time can cost: pwrite() and nothing else.
//   pwrite_loop FILE SIZE LOOPS      prints nanoseconds per call, elapsed
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { block = 4096 };

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s FILE SIZE LOOPS\n", argv[0]);
        return 2;
    }
    const long long size = atoll(argv[2]);
    const long long loops = atoll(argv[3]);
    const int fd = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    void *buffer = NULL;
    if (fd < 0 || posix_memalign(&buffer, block, block) != 0) {
        perror(argv[1]);
        return 1;
    }
    memset(buffer, 0x5a, block);
    const long long begin = now_ns();
    for (long long loop = 0; loop < loops; ++loop) {
        for (long long offset = 0; offset < size; offset += block) {
            if (pwrite(fd, buffer, block, offset) != block) {
                perror("pwrite");
                return 1;
            }
        }
    }
    const double calls = (double)(loops * (size / block));
    printf("%.3f\n", (double)(now_ns() - begin) / calls);
    return 0;
}
