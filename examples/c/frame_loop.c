/* A camera's frame in, its inference, the result out, a thousand times a second, beside a thread that loads modules: does every frame keep its time?
 *
 *   crates/gpu/libdoorbell/install.sh --prefix target/prefix
 *   cc -O2 -pthread examples/c/frame_loop.c -o target/prefix/frame_loop -Itarget/prefix/include -Ltarget/prefix/lib \
 *      -Wl,-rpath,'$ORIGIN/lib' -ldoorbell -ldl
 *   target/prefix/frame_loop [seconds, 5] [class: fifo, deadline, other; the first that is granted]
 *
 * Once by doorbell and once by CUDA, on the same memory: a copy to the GPU, two kernels, a copy back. By doorbell they are one chain
 * (doorbell_chain_create) in the form for control loops: the CPU stores the frame into GPU memory, and the copy back has a separate channel. By CUDA they
 * are one graph with memcpy nodes, CUDA's best form. Each millisecond a frame is there. The thread sleeps until 50 us before it, then spins. The frame's
 * time ends when the result is in host memory, and every result is compared. A frame that takes longer than its period has missed it, and so has each
 * frame that is due meanwhile and never made: misses are counted among all frames that were due. Times are those of the frames that were made.
 *
 * The other thread's modules are compiled anew each time, and hold CUDA's locks meanwhile. The loop's thread asks for a real-time class and says which it
 * got. (On the software GPU no times are printed: that is emulation.)
 *
 * Exit status 0: every result right; 1: otherwise; 77: no CUDA, or graphs cannot be cloned here. */
#define _GNU_SOURCE
#include "neighbours.h"
#include "samples.h"
#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>

/* SPIN: how long before a tick the thread wakes up. LIMIT: how long a result may take; after that a control loop is in its safe state. In nanoseconds. */
enum { BYTES = 4096, THREADS = 256, PERIOD = 1000000, SPIN = 50000, LIMIT = 800000 };

static const char PTX[] = COPY_AND_ADD1;

/* A frame where the camera puts it, where the GPU has it, what the GPU makes of it, and where the program reads that. */
static uint32_t *camera, *result;
static unsigned long long input, output;
static void *stream;

/* The inference, alone or between its copies, as CUDA has it. */
static void *graph_of(void *kernels[2], int with_copies)
{
    uint32_t bytes = BYTES;
    void *copy[] = {&output, &input, &bytes}, *add[] = {&output};
    cuda(cuStreamBeginCapture(stream, 1), "cuStreamBeginCapture");
    if (with_copies)
        cuda(cuMemcpyHtoDAsync(input, camera, BYTES, stream), "cuMemcpyHtoDAsync");
    cuda(cuLaunchKernel(kernels[0], BYTES / 4 / THREADS, 1, 1, THREADS, 1, 1, 0, stream, copy, NULL), "cuLaunchKernel");
    cuda(cuLaunchKernel(kernels[1], 1, 1, 1, 1, 1, 1, 0, stream, add, NULL), "cuLaunchKernel");
    if (with_copies)
        cuda(cuMemcpyDtoHAsync(result, output, BYTES, stream), "cuMemcpyDtoHAsync");
    return captured(stream);
}

/* The same by doorbell. */
static doorbell_graph_t chain_of(void *exec)
{
    doorbell_graph_t inference = cloned(doorbell, exec, stream), chain;
    doorbell_step_t steps[3];
    memset(steps, 0, sizeof steps);
    steps[0].kind = DOORBELL_STEP_COPY;
    steps[0].to = pinned((void *)(uintptr_t)input, BYTES);
    steps[0].from = pinned(camera, BYTES);
    steps[0].bytes = BYTES;
    /* doorbell_graph_launch() stores these bytes. So each launch must be done before the next. */
    steps[0].flags = DOORBELL_STEP_STORES;
    steps[1].kind = DOORBELL_STEP_LAUNCH;
    steps[1].graph = inference;
    steps[2].kind = DOORBELL_STEP_COPY;
    steps[2].to = pinned(result, BYTES);
    steps[2].from = pinned((void *)(uintptr_t)output, BYTES);
    steps[2].bytes = BYTES;
    check(doorbell_chain_create(doorbell, steps, 3, sizeof(doorbell_step_t), DOORBELL_CHAIN_BESIDE, &chain), "doorbell_chain_create");
    /* The chain has a copy of it. */
    check(doorbell_graph_free(doorbell, inference), "doorbell_graph_free");
    return chain;
}

/* Makes the calling thread one that is not preempted, if the kernel grants it; what it is then. */
static const char *real_time(const char *wanted)
{
    static char text[160];
    /* As the kernel has it: struct sched_attr. */
    struct { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; uint64_t runtime, deadline, period; } deadline = {
        sizeof deadline, 6 /* SCHED_DEADLINE */, 0, 0, 0, PERIOD / 2, PERIOD, PERIOD};
    struct sched_param fifo = {.sched_priority = 80};
    int refused = 0;
    if (!wanted || strcmp(wanted, "fifo") == 0) {
        if (sched_setscheduler(0, SCHED_FIFO, &fifo) == 0)
            return "SCHED_FIFO, priority 80";
        refused = errno;
    }
    if (!wanted || strcmp(wanted, "deadline") == 0) {
        if (syscall(SYS_sched_setattr, 0, &deadline, 0) == 0)
            return "SCHED_DEADLINE, half of each period";
        refused = errno;
    }
    if (!refused)
        return "SCHED_OTHER, as asked";
    snprintf(text, sizeof text, "SCHED_OTHER: a real-time class was refused (%s)", strerror(refused));
    return text;
}

/* Of `due` frames those that were made have times; the others are among the misses. */
struct loop { struct samples times; unsigned long due, misses, wrong; };

/* Sleeps, then spins: a wake-up takes some 50 us. */
static void until(uint64_t then)
{
    uint64_t wake = then - SPIN;
    struct timespec t = {(time_t)(wake / 1000000000), (long)(wake % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
    while (now() < then)
        ;
}

/* By doorbell, or, without a chain, by CUDA. */
static void run(struct loop *loop, double seconds, doorbell_graph_t chain, void *exec)
{
    static uint32_t number;
    uint64_t due = now() + PERIOD, end = due + (uint64_t)(seconds * 1e9);
    while (due < end && !stop) {
        number++;
        loop->due++;
        for (uint32_t i = 0; i < BYTES / 4; i++)
            camera[i] = number * 2654435761u + i;
        until(due);
        if (chain) {
            doorbell_ticket_t ticket;
            check(doorbell_graph_launch(doorbell, chain, NULL, &ticket), "doorbell_graph_launch");
            int code = doorbell_wait(doorbell, ticket, LIMIT);
            /* A control loop enters its safe state here. The launch cannot be cancelled: until it is done, the chain's memory is the GPU's. */
            if (code == DOORBELL_TIMEOUT)
                code = doorbell_wait(doorbell, ticket, PATIENCE);
            check(code, "doorbell_wait");
        } else {
            cuda(cuGraphLaunch(exec, stream), "cuGraphLaunch");
            cuda(cuStreamSynchronize(stream), "cuStreamSynchronize");
        }
        uint64_t done = now();
        add(&loop->times, done - due);
        loop->misses += done - due > PERIOD;
        loop->wrong += result[0] != camera[0] + 1 || memcmp(result + 1, camera + 1, BYTES - 4) != 0;
        /* The rule for late frames: those that were due meanwhile are never made. */
        for (due += PERIOD; due < done && due < end; due += PERIOD) {
            loop->due++;
            loop->misses++;
        }
    }
    sorted(&loop->times);
}

static void print(const char *whose, const struct loop *loop, int times)
{
    printf("%s: %zu of the %lu frames that were due, of %d bytes, %s", whose, loop->times.count, loop->due, BYTES,
           loop->wrong ? "there are WRONG results" : "every result right");
    if (times)
        printf("; p50 %s, p99 %s, max %s of these; %lu of %lu missed their %s", text(p50(&loop->times)), text(p99(&loop->times)),
               text(most(&loop->times)), loop->misses, loop->due, text(PERIOD));
    printf("\n");
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 5;
    const char *class = argc > 2 ? argv[2] : NULL;
    struct loop ours = {0}, theirs = {0};
    struct neighbour loads = {.kind = MODULE, .number = 1};
    void *module, *pointer;
    /* Each load compiles: nothing comes from the driver's cache on disk. */
    setenv("CUDA_CACHE_DISABLE", "1", 1);
    begin_beside_cuda("there are no graphs");
    cuda(cuModuleLoadData(&module, PTX), "cuModuleLoadData");
    void *kernels[2] = {kernel_of(module, "copy"), kernel_of(module, "add1")};
    cuda(cuMemAlloc(&input, BYTES), "cuMemAlloc");
    cuda(cuMemAlloc(&output, BYTES), "cuMemAlloc");
    cuda(cuMemHostAlloc(&pointer, 2 * BYTES, 0), "cuMemHostAlloc");
    camera = pointer;
    result = camera + BYTES / 4;
    cuda(cuStreamCreate(&stream, 1), "cuStreamCreate");
    open_session(0, 0);
    /* All of it before the neighbour begins: preparing takes CUDA's locks. */
    void *alone = graph_of(kernels, 0), *whole = graph_of(kernels, 1);
    doorbell_graph_t chain = chain_of(alone);
    cuda(cuGraphLaunch(whole, stream), "cuGraphLaunch");
    cuda(cuStreamSynchronize(stream), "cuStreamSynchronize");
    pause_at = UINT64_MAX;
    pthread_barrier_init(&all_ready, NULL, 2);
    if (pthread_create(&loads.id, NULL, neighbour, &loads) != 0)
        return 1;
    pthread_barrier_wait(&all_ready);
    end_at_signals();
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        printf("memory is not locked (%s): a page fault may delay a frame\n", strerror(errno));
    printf("the loop runs under %s\n", real_time(class));
    run(&ours, seconds, chain, NULL);
    run(&theirs, seconds, 0, whole);
    ended = 1;
    pthread_join(loads.id, NULL);
    if (loads.status)
        printf("the neighbour ended early: %s: CUDA error %d\n", loads.refused, loads.status);
    int times = !is_software();
    print("doorbell", &ours, times);
    print("CUDA", &theirs, times);
    printf("beside a thread that loaded %" PRIu64 " modules\n", loads.done);
    check(doorbell_graph_free(doorbell, chain), "doorbell_graph_free");
    check(doorbell_free(doorbell), "doorbell_free");
    return ours.wrong || theirs.wrong ? 1 : 0;
}
