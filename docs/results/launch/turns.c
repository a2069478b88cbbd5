/* One executable graph launched by CUDA and by doorbell in turns: what turns.py times with.
 *
 *   cc -O2 -shared -fPIC docs/results/launch/turns.c -o target/turns.so
 *
 * Both sides wait in the same way. The graph itself moves a word in host memory on by one as its last step, and the CPU polls that word. Each round has a turn
 * of either side, in an order drawn for each round. In C, because a call from Python costs as much as the launch. */
#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef int (*launch_cuda)(void *exec, void *stream);
typedef int (*synchronize_cuda)(void *stream);
/* doorbell_graph_launch() and doorbell_wait(), of doorbell.h. */
typedef int32_t (*launch_doorbell)(void *doorbell, uint64_t graph, const void *order, uint64_t *ticket);
typedef int32_t (*wait_doorbell)(void *doorbell, uint64_t ticket, uint64_t timeout_ns);

enum { CUDA, DOORBELL, LATE = 999, LOOKS = 4096 };
static const uint64_t patience = 10000000000u;

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Until the word is there; 0 if it does not come. */
static uint64_t seen(const uint32_t *word, uint32_t expected)
{
    uint64_t begun = 0;
    for (unsigned looks = 0;; looks++) {
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == expected)
            return now();
        if (looks % LOOKS == LOOKS - 1) {
            uint64_t t = now();
            begun = begun ? begun : t;
            if (t - begun > patience)
                return 0;
        }
    }
}

/* `rounds` rounds of `each` launches by either side. ns[who][round * each + i][0]: the call; [1]: until the CPU saw the word. who 0: CUDA, 1: doorbell.
 * own_waits: the end is not the word but the return of cuStreamSynchronize, and of doorbell_wait, which are two ways to wait: for graphs whose results only these
 * bring. Otherwise both are called as well, untimed. first[round]: who was first. Returns 0, or 1000 x who + the first error code (999: no word in 10 s). */
int turns(launch_cuda launch, synchronize_cuda synchronize, void *exec, void *stream, launch_doorbell ours, wait_doorbell wait, void *doorbell,
          uint64_t graph, const uint32_t *word, int own_waits, uint64_t rounds, uint64_t each, uint64_t seed, uint64_t *ns, uint8_t *first)
{
    for (uint64_t round = 0; round < rounds; round++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        first[round] = (uint8_t)(seed >> 32 & 1);
        for (int turn = 0; turn < 2; turn++) {
            int who = turn ^ first[round];
            for (uint64_t i = 0; i < each; i++) {
                uint64_t *to = ns + 2 * (rounds * each * (uint64_t)who + round * each + i), ticket = 0, ended = 1;
                uint32_t expected = __atomic_load_n(word, __ATOMIC_ACQUIRE) + 1;
                uint64_t start = now();
                int error = who == DOORBELL ? ours(doorbell, graph, NULL, &ticket) : launch(exec, stream);
                to[0] = now() - start;
                if (!error && !own_waits)
                    ended = seen(word, expected);
                if (!error && ended)
                    error = who == DOORBELL ? wait(doorbell, ticket, patience) : synchronize(stream);
                to[1] = (own_waits ? now() : ended) - start;
                if (!ended)
                    error = LATE;
                if (error)
                    return 1000 * who + (error < 0 ? -error : error);
            }
        }
    }
    return 0;
}
