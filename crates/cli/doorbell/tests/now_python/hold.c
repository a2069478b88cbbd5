/* Functions that a Python program calls, with Python's lock or without. What they do is in shared memory. */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Called with Python's lock held: names its thread while it does not return. */
void hold(_Atomic long *at, long us) {
    at[0] = at[0] + 1;
    at[1] = syscall(SYS_gettid);
    at[0] = at[0] + 1;
    if (us < 0)
        for (;;)
            pause();
    usleep(us);
    at[0] = at[0] + 1;
    at[1] = 0;
    at[0] = at[0] + 1;
}

/* Called without the lock. */
void run(long n) {
    for (volatile long i = 0; i < n; i++)
        ;
}

int cuLaunchHostFunc(void *stream, void (*function)(void *), void *with);

/* A host function that needs the lock, while the thread that launches it keeps the lock. */
void launch_and_hold(_Atomic long *at, void (*needs_lock)(void *)) {
    cuLaunchHostFunc(0, needs_lock, 0);
    hold(at, -1);
}

/* A host function that sleeps, and one that returns. */
void sleeps(void *shared) {
    _Atomic long *at = shared;
    at[2] = (long)sleeps;
    at[3] = syscall(SYS_gettid);
    for (;;)
        pause();
}

void returns(void *shared) {
    usleep(1000);
    ((_Atomic long *)shared)[4] = syscall(SYS_gettid);
}
