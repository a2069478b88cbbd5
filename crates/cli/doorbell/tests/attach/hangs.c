// Hangs in every way that a lock allows, and then prints a line. After SIGUSR1 the thread that keeps locks without waiting releases one.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
extern void (*volatile cuStubWithin)(void);

static pthread_mutex_t in_calls = PTHREAD_MUTEX_INITIALIZER, a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER,
                       released = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t all;
static volatile sig_atomic_t go_on;

static void asked(int signal) { go_on = signal; }
static void within(void) { pthread_mutex_lock(&in_calls); }

static void *keeps(void *name)
{
    pthread_setname_np(pthread_self(), name);
    pthread_mutex_lock(&in_calls);
    pthread_mutex_lock(&released);
    pthread_rwlock_wrlock(&written);
    pthread_barrier_wait(&all);
    while (!go_on)
        usleep(1000);
    pthread_mutex_unlock(&released);
    for (;;)
        pause();
}

static void *waits(void *name)
{
    pthread_setname_np(pthread_self(), name);
    char which = *(const char *)name;
    if (which == 'l' || which == 'r')
        pthread_mutex_lock(which == 'l' ? &a : &b);
    pthread_barrier_wait(&all);
    switch (which) {
    case 'l': pthread_mutex_lock(&b); break;
    case 'r': pthread_mutex_lock(&a); break;
    case 'c': cuLaunchKernel((void *)0x100, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0); break;
    case 'w': pthread_rwlock_rdlock(&written); break;
    default: pthread_mutex_lock(&released), pthread_mutex_unlock(&released);
    }
    for (;;)
        pause();
}

int main(void)
{
    alarm(120);
    signal(SIGUSR1, asked);
    cuStubWithin = within;
    const char *names[] = {"left", "right", "caller", "wants to read", "goes on"};
    pthread_t t;
    pthread_barrier_init(&all, 0, 7);
    pthread_create(&t, 0, keeps, "keeps");
    for (int i = 0; i < 5; i++)
        pthread_create(&t, 0, waits, (void *)names[i]);
    pthread_barrier_wait(&all);
    usleep(200000);
    puts("hangs");
    fflush(stdout);
    for (;;)
        pause();
}
