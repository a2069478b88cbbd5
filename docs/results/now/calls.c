/* How long each call takes, for now_cost.py: reads lines with a kind (lock, call) and milliseconds, makes calls one after the other
 * for that time, and prints how often a call took so many nanoseconds: `ns:count ns:count ...`. Times of 1,024 ns and more are rounded down
 * by at most a sixteenth. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

int cuEventRecord(void *event, void *stream);

enum { FINE = 1024, PARTS = 16, OCTAVES = 40 };
static unsigned long counts[FINE + OCTAVES * PARTS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;

static unsigned at(unsigned long ns) {
    if (ns < FINE) return ns;
    unsigned octave = 63 - __builtin_clzl(ns);
    return FINE + (octave - 10) * PARTS + (ns >> (octave - 4)) % PARTS;
}

static unsigned long ns_of(unsigned at) {
    if (at < FINE) return at;
    unsigned octave = (at - FINE) / PARTS + 10, part = (at - FINE) % PARTS;
    return (PARTS + part) << (octave - 4);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

/* Threads that wait, so that a look has something to see. */
static void *waits(void *unused) {
    pthread_mutex_lock(&held);
    return unused;
}

int main(int n, char **arguments) {
    char line[64], kind[16];
    double ms;
    pthread_t t;
    pthread_mutex_lock(&held);
    for (int i = 0; i < 16; i++) pthread_create(&t, 0, waits, 0);
    if (n > 1) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(atoi(arguments[1]), &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    double began = now();
    unsigned long ticks = __rdtsc();
    while (now() - began < 2e8) {}
    double ns = (now() - began) / (__rdtsc() - ticks);
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && sscanf(line, "%15s %lf", kind, &ms) == 2) {
        memset(counts, 0, sizeof counts);
        int is_lock = !strcmp(kind, "lock");
        for (unsigned long end = __rdtsc() + ms * 1e6 / ns, before = 0; before < end;) {
            /* (A thread that makes nothing but calls fills its ring faster than a recorder empties it.) */
            for (unsigned long until = __rdtsc() + 1000 / ns; __rdtsc() < until;) {}
            before = __rdtsc();
            if (is_lock) {
                pthread_mutex_lock(&mutex);
                pthread_mutex_unlock(&mutex);
            } else {
                cuEventRecord((void *)0x10, (void *)0x20);
            }
            counts[at((__rdtsc() - before) * ns)]++;
        }
        for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++)
            if (counts[i]) printf("%lu:%lu ", ns_of(i), counts[i]);
        puts("");
        fflush(stdout);
    }
    return 0;
}
