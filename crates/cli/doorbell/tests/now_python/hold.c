/* Called with Python's lock held: names its thread in shared memory while it does not return. */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

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

/* The lock is given up for the time of this call. */
void run(long n) {
    for (volatile long i = 0; i < n; i++)
        ;
}
