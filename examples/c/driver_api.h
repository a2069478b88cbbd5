/* What the programs here that measure share: CUDA's driver API through dlopen, errors that end the program, the clock, and SIGINT and
 * SIGTERM, which end them with what they have. */
#ifndef DRIVER_API_H
#define DRIVER_API_H

#include <doorbell.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* With which an error of doorbell's or CUDA's ends the program. */
static int error_status = 1;

static void check(int code, const char *what)
{
    if (code != DOORBELL_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, doorbell_error_text(code), doorbell_error_detail());
        exit(error_status);
    }
}

static void cuda(int status, const char *what)
{
    if (status != 0) {
        fprintf(stderr, "%s: CUDA error %d\n", what, status);
        exit(error_status);
    }
}

/* A pointer to a function, and its name in libcuda. */
struct function { void *to; const char *name; };

/* 0: there is no libcuda. */
static int load_functions(const struct function *functions, size_t count)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        return 0;
    for (size_t i = 0; i < count; i++) {
        void *found = dlsym(library, functions[i].name);
        if (!found) {
            fprintf(stderr, "libcuda has no %s\n", functions[i].name);
            exit(error_status);
        }
        memcpy(functions[i].to, &found, sizeof found);
    }
    return 1;
}

/* ns */
static inline uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The program is to end. */
static _Atomic int stop;

static inline void interrupted(int signal)
{
    (void)signal;
    stop = 1;
}

static inline void end_at_signals(void)
{
    signal(SIGINT, interrupted);
    signal(SIGTERM, interrupted);
}

#endif
