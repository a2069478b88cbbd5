/* One executable graph launched by CUDA and by doorbell in turns: what networks.py --launcher doorbell times with.
 *
 *   cc -O2 -shared -fPIC docs/results/launch/turns.c -o target/turns.so
 *
 * In C, because a call from Python costs as much as the launch. */
#include <stdint.h>
#include <time.h>

typedef int (*launch_cuda)(void *exec, void *stream);
typedef int (*synchronize_cuda)(void *stream);
typedef int (*launch_doorbell)(uint64_t graph, uint64_t *ticket);
typedef int (*wait_doorbell)(uint64_t ticket, uint64_t timeout_ns);

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* n launches of each, in turns of `turn`, each waited for. ns[who][i][0]: the call; [1]: call and wait. who 0: CUDA, 1: doorbell.
 * Returns 0, or 1000 x who + the first error code. */
int turns(launch_cuda launch, synchronize_cuda synchronize, void *exec, void *stream, launch_doorbell ours, wait_doorbell wait,
          uint64_t graph, uint64_t n, uint64_t turn, uint64_t *ns)
{
    for (uint64_t done = 0; done < n; done += turn) {
        for (int who = 0; who < 2; who++) {
            for (uint64_t i = done; i < n && i < done + turn; i++) {
                uint64_t *to = ns + 2 * (n * (uint64_t)who + i), ticket = 0, start = now(), called;
                int error = who ? ours(graph, &ticket) : launch(exec, stream);
                called = now();
                if (!error)
                    error = who ? wait(ticket, 10000000000u) : synchronize(stream);
                to[0] = called - start;
                to[1] = now() - start;
                if (error)
                    return 1000 * who + (error < 0 ? -error : error);
            }
        }
    }
    return 0;
}
