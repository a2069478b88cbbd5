/* A bare timer thread for server.py: it sleeps until `spin` before each tick, and spins then. At the tick the chain is launched and its ticket is waited for. Its functions of libdoorbell come by pointer, so that it uses the
 * library that the process has. */
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <time.h>

struct job {
    void *doorbell;
    uint64_t chain;
    int32_t (*launch)(void *, uint64_t, const void *, uint64_t *);
    int32_t (*wait)(void *, uint64_t, uint64_t);
    void *input;
    const void *frame;
    uint64_t bytes, period, ticks;
    /* Nanoseconds from tick to result, as many as there are ticks; 0: missed. */
    uint64_t *took;
    int32_t code;
    /* Nanoseconds; a period or more: it never sleeps. */
    uint32_t spin;
    /* The longest time from the moment for which it slept until it ran. */
    uint64_t wake_max;
};

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void run(struct job *job)
{
    uint64_t first = now() + job->period;
    for (uint64_t n = 0; n < job->ticks;) {
        uint64_t due = first + n * job->period, at = now();
        if (at >= due + job->period) {
            n++; /* Its time is over. */
            continue;
        }
        if (at + job->spin < due) {
            uint64_t wake = due - job->spin;
            struct timespec t = {(time_t)(wake / 1000000000u), (long)(wake % 1000000000u)};
            while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0)
                ;
            uint64_t late = now() - wake;
            job->wake_max = late > job->wake_max ? late : job->wake_max;
        }
        while ((at = now()) < due)
            ;
        if (at >= due + job->period)
            continue;
        uint64_t ticket;
        memcpy(job->input, job->frame, job->bytes);
        if ((job->code = job->launch(job->doorbell, job->chain, NULL, &ticket)) != 0 || (job->code = job->wait(job->doorbell, ticket, 2000000000u)) != 0)
            return;
        job->took[n++] = now() - due;
    }
}
