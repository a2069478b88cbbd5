/* Frames of server.py and fix_server.py from C, at ticks. run() sleeps until `spin` before each tick, then spins, then makes one frame in the calling
 * thread. frame_by_chain() launches a chain of libdoorbell, frame_by_cuda() calls the driver. Their functions are pointers from Python, so the
 * libraries are those that the process has. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

struct job {
    uint64_t period, ticks;
    /* Nanoseconds from tick to result, as many as there are ticks; 0: missed. */
    uint64_t *took;
    int32_t code;
    /* Nanoseconds; a period or more: it never sleeps. */
    uint32_t spin;
    /* The longest time from the moment for which it slept until it ran. */
    uint64_t wake_max;
};

struct chain {
    void *doorbell;
    uint64_t chain;
    int32_t (*launch)(void *, uint64_t, const void *, uint64_t *);
    int32_t (*wait)(void *, uint64_t, uint64_t);
    void *input;
    const void *frame;
    uint64_t bytes;
};

struct cuda {
    int32_t (*to_gpu)(uint64_t, const void *, size_t, void *);
    int32_t (*launch)(void *, void *);
    int32_t (*to_host)(void *, uint64_t, size_t, void *);
    int32_t (*synchronize)(void *);
    /* A CUgraphExec, and the stream of all calls. */
    void *graph, *stream;
    /* GPU memory that the graph reads and writes. */
    uint64_t x, y;
    /* Pinned memory. */
    void *input, *output;
    const void *frame;
    uint64_t bytes;
};

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Both return the first result that is not 0. */
int32_t frame_by_chain(const void *argument)
{
    const struct chain *by = argument;
    uint64_t ticket;
    memcpy(by->input, by->frame, by->bytes);
    int32_t code = by->launch(by->doorbell, by->chain, NULL, &ticket);
    return code ? code : by->wait(by->doorbell, ticket, 2000000000u);
}

int32_t frame_by_cuda(const void *argument)
{
    const struct cuda *by = argument;
    int32_t code;
    memcpy(by->input, by->frame, by->bytes);
    if ((code = by->to_gpu(by->x, by->input, by->bytes, by->stream)) != 0 || (code = by->launch(by->graph, by->stream)) != 0 ||
        (code = by->to_host(by->output, by->y, by->bytes, by->stream)) != 0)
        return code;
    return by->synchronize(by->stream);
}

void run(struct job *job, int32_t (*frame)(const void *), const void *argument)
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
        if ((job->code = frame(argument)) != 0)
            return;
        job->took[n++] = now() - due;
    }
}
