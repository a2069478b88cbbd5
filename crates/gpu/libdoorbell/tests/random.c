/* Random calls with faults: many threads, several sessions, and memory, objects and sessions that end while they are used.
 *
 *   random SECONDS [SEED [THREADS, 8]]
 *
 * Each GPU (up to two) has two sessions. Faults: CUDA frees memory that copies and launches name, objects and sessions are freed while other threads
 * use them, handles are stale or of another session, arguments are wrong, lanes are stopped, the process forks, threads end. No kernel and no copy
 * gets a wrong address, and memory that only kernels name stays: doorbell promises nothing for these.
 *
 * Checked: the bytes of copies that were waited for; the counts of launches; memory that was unpinned or freed does not change after that; each code
 * is one that doorbell.h lists for the call; no channel is killed; no call takes longer than doorbell.h states, plus RANDOM_LIMIT_MS (1,000).
 * A seed gives each thread the same choices each time. Prints a line for each kind of call. When a call takes too long, each thread says where it is.
 *
 * Exit status 0: all as stated; 1: otherwise; 77: no CUDA. A call that does not return ends the program with SIGABRT. */
#define _GNU_SOURCE
#include "random/any.h"
#include "random/checked.h"
#include "random/graphs.h"
#include <errno.h>
#include <execinfo.h>
#include <sys/syscall.h>

static int begin_session(struct session *s)
{
    doorbell_options_t options = {.size = sizeof options, .kind = DOORBELL_BESIDE_CUDA, .gpu = (uint32_t)s->gpu, .lanes = 1 + (uint32_t)below(8),
                                  .launch_lanes = 2, .profile = ""};
    doorbell_t *h = NULL;
    s->checks = one_in(4);
    options.flags = s->checks ? DOORBELL_CHECK : 0;
    int code = DOORBELL(create, &options, &h);
    if (code != DOORBELL_OK) {
        complain("doorbell_create: %d (%s)", code, doorbell_error_detail());
        return 0;
    }
    s->ends = now() + (1000 + below(4000)) * MS;
    atomic_store(&s->dead, 0);
    atomic_store(&s->handle, h);
    return 1;
}

static void close_session(struct session *s)
{
    if (pthread_mutex_trylock(&s->closing) != 0)
        return;
    if (atomic_load(&s->dead) || now() > s->ends) {
        if (DOORBELL(free, atomic_load(&s->handle)) != DOORBELL_OK)
            complain("doorbell_free: %s", doorbell_error_detail());
        begin_session(s);
    }
    pthread_mutex_unlock(&s->closing);
}

static volatile int in_call;
static void child_hangs(int signal)
{
    (void)signal;
    _exit(32 + in_call);
}
#define IN(n, call) (in_call = (n), doorbell_##call)

static void a_child(struct session *s, doorbell_t *h)
{
    doorbell_buffer_t a = a_buffer(s, 0), b = a_buffer(s, 0);
    doorbell_ticket_t ticket = a_ticket(s);
    uint64_t transfer = pick(s, TRANSFER), ring = pick(s, RING), queue = pick(s, QUEUE), loop = pick(s, LOOP);
    struct counted *c = a_graph(s);
    doorbell_graph_t graph = c ? atomic_load(&c->graph) : 0;
    int status = 0;
    begin_call(K_forked, 0);
    pid_t child = fork();
    if (child == 0) {
        doorbell_frame_t frame = {.size = sizeof frame};
        doorbell_loop_statistics_t statistics = {.size = sizeof statistics};
        doorbell_options_t options = {.size = sizeof options};
        doorbell_t *other = NULL;
        bool done;
        signal(SIGALRM, child_hangs);
        alarm(10);
        int codes[] = {IN(0, poll(h, ticket, &done)), IN(1, wait(h, ticket, DOORBELL_FOREVER)), IN(2, copy(h, a, 0, b, 0, 8, DOORBELL_FOREVER)),
                       IN(3, copy_async(h, a, 0, b, 0, 8, NULL, &ticket)), IN(4, transfer_async(h, transfer, NULL, &ticket)), IN(5, ring_next(h, ring, &frame)),
                       IN(6, graph_launch(h, graph, NULL, &ticket)), IN(7, queue_add(h, queue, ticket, 1)), IN(8, loop_statistics(h, loop, &statistics, NULL, 0)),
                       IN(9, buffer_free(h, a)), IN(10, transfer_free(h, transfer)), IN(11, loop_stop(h, loop)), IN(12, graph_free(h, graph)),
                       IN(13, queue_wait(h, queue, DOORBELL_FOREVER)), IN(14, create(&options, &other)), IN(15, free(h))};
        for (size_t n = 0; n < sizeof codes / sizeof *codes; n++)
            if (codes[n] != DOORBELL_FORKED)
                _exit(16 + (int)n);
        _exit(0);
    }
    if (child > 0)
        waitpid(child, &status, 0);
    end_call(K_forked, 0);
    if (child < 0 || status != 0)
        complain("a forked child: status %#x (0x10 and the number of the call that is not FORKED, or 0x20 and of one that does not return; then 00)", status);
}

static void any_call(int short_lived)
{
    struct session *s = &sessions[below(session_count)];
    doorbell_t *h = atomic_load(&s->handle);
    me->asks = s->checks;
    on_gpu(s->gpu);
    if (atomic_load(&s->dead) || now() > s->ends)
        close_session(s);
    uint64_t how = below(1000);
    if (how < 150) a_copy(s, h);
    else if (how < 190) a_buffer_call(s, h);
    else if (how < 240) change_block(s);
    else if (how < 400) a_prepared_copy(s, h);
    else if (how < 500) a_wait(s, h);
    else if (how < 570) a_queue_call(s, h);
    else if (how < 590) a_message_call(s, h);
    else if (how < 750) a_graph_call(s, h);
    else if (how < 755) a_freed_pointer(s, h);
    else if (how < 765) a_loop_call(s, h);
    else if (short_lived) a_copy(s, h);
    else if (how < 770) a_loop(s, h);
    else if (how < 790) held_copy(s, h);
    else if (how < 792) a_child(s, h);
    else if (how < 990) round_trip(s, h);
    else if (how < 995) {
        lock_submits(0);
        CUDA(cuMemsetD32Async(me->device[s->gpu] + BYTES, 1, 16, me->streams[s->gpu]));
        unlock_submits();
        DO(cuda_synchronize, cuStreamSynchronize(me->streams[s->gpu]));
    } else
        usleep((useconds_t)below(3000));
}

static void *short_lived(void *argument)
{
    begin_thread(argument);
    for (uint64_t n = below(30); n > 0; n--)
        any_call(1);
    return NULL;
}

static void *run(void *argument)
{
    struct thread *child = (struct thread *)argument + MOST_THREADS;
    int has_child = 0;
    begin_thread(argument);
    for (int gpu = 0; gpu < gpus; gpu++) {
        on_gpu(gpu);
        CUDA(cuStreamCreate(&me->streams[gpu], 1));
        CUDA(cuEventCreate(&me->events[gpu], 2));
        CUDA(cuMemHostAlloc((void **)&me->host[gpu], 4 * BYTES, 0));
        CUDA(cuMemAlloc(&me->device[gpu], 2 * BYTES));
    }
    while (now() < until) {
        any_call(0);
        if (one_in(500)) {
            if (has_child)
                pthread_join(child->id, NULL);
            child->random = next_random() | 1;
            has_child = pthread_create(&child->id, NULL, short_lived, child) == 0;
        }
    }
    if (has_child)
        pthread_join(child->id, NULL);
    return NULL;
}

/* What other parts of a program do with CUDA. */
static void *neighbour(void *argument)
{
    begin_thread(argument);
    while (now() < until) {
        void *module, *stream;
        address_t memory;
        on_gpu((int)below((uint64_t)gpus));
        lock_submits(0);
        if (CUDA(cuModuleLoadData(&module, COPY_AND_ADD1)) == 0)
            CUDA(cuModuleUnload(module));
        if (CUDA(cuStreamCreate(&stream, 1)) == 0)
            CUDA(cuStreamDestroy(stream));
        unlock_submits();
        if (CUDA(cuMemAlloc(&memory, 1 << 20)) == 0)
            DO(cuda_free, cuMemFree(memory));
        usleep((useconds_t)below(20000));
    }
    return NULL;
}

static void says_where(int signal)
{
    void *frames[40];
    int saved = errno;
    (void)signal;
    backtrace_symbols_fd(frames, backtrace(frames, 40), 2);
    errno = saved;
}

/* Where is each thread that has been in its call for a while? */
static void print_places(uint64_t at)
{
    for (size_t n = 0; n < sizeof threads / sizeof *threads; n++) {
        uint64_t since = atomic_load(&threads[n].since);
        if (!since || since + 300 * MS > at)
            continue;
        fprintf(stderr, "thread %zu: in %s for %llu ms\n", n, calls[atomic_load(&threads[n].call)].name, (unsigned long long)((at - since) / MS));
        syscall(SYS_tgkill, getpid(), threads[n].task, SIGUSR1);
        usleep(5000);
    }
}

static void *watch(void *unused)
{
    int printed = 0;
    (void)unused;
    for (;;) {
        usleep(100000);
        uint64_t at = now();
        int late = 0, too_long = 0;
        for (size_t n = 0; n < sizeof threads / sizeof *threads; n++) {
            uint64_t since = atomic_load(&threads[n].since);
            late |= since && since < at && at - since > 30 * limit;
            too_long |= since && since < at && at - since > limit + atomic_load(&threads[n].allowed) * MS;
            uint64_t release_at = atomic_load(&threads[n].release_at);
            if (release_at && release_at < at)
                *atomic_load(&threads[n].release_word) = 1;
        }
        if (late || (too_long && printed++ < 4))
            print_places(at);
        if (late)
            abort();
    }
    return NULL;
}

static void print_calls(void)
{
    printf("%-22s %10s %10s %8s  codes\n", "call", "count", "ok", "max ms");
    for (int kind = 0; kind < KINDS; kind++) {
        unsigned long all = 0;
        for (int code = 0; code < 32; code++)
            all += counts[kind][code];
        printf("%-22s %10lu %10lu %8.1f ", calls[kind].name, all, (unsigned long)counts[kind][0], (double)longest[kind] / 1e6);
        for (int code = 1; code < 32; code++)
            if (counts[kind][code])
                printf(" %d: %lu", code, (unsigned long)counts[kind][code]);
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return fprintf(stderr, "usage: random SECONDS [SEED [THREADS]]\n"), 2;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : now();
    thread_count = argc > 3 ? atoi(argv[3]) : thread_count;
    thread_count = thread_count < 1 ? 1 : thread_count > MOST_THREADS ? MOST_THREADS : thread_count;
    if (getenv("RANDOM_LIMIT_MS"))
        limit = strtoull(getenv("RANDOM_LIMIT_MS"), NULL, 0) * MS;
    void *frame;
    backtrace(&frame, 1);
    signal(SIGUSR1, says_where);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("seed %llu, %d threads\n", (unsigned long long)seed, thread_count);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (doorbell_init() != DOORBELL_OK || !load_cuda() || cuInit(0) != 0 || cuDeviceGetCount(&gpus) != 0)
        return fprintf(stderr, "no CUDA\n"), 77;
    gpus = gpus < GPUS ? gpus : GPUS;
    for (size_t n = 0; n < sizeof threads / sizeof *threads; n++) {
        threads[n].number = (int)n;
        threads[n].random = (seed + n + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    }
    begin_thread(&threads[2 * MOST_THREADS]);
    counted = calloc(WORDS / 2, sizeof *counted);
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&submits, &attributes);
    for (int gpu = 0; gpu < gpus; gpu++) {
        int device;
        void *module, *at = NULL;
        if (cuDeviceGet(&device, gpu) != 0 || cuDevicePrimaryCtxRetain(&contexts[gpu], device) != 0 || cuCtxSetCurrent(contexts[gpu]) != 0 || cuModuleLoadData(&module, COPY_AND_ADD1) != 0
            || cuModuleGetFunction(&functions[gpu], module, "add1") != 0 || cuMemHostAlloc(&at, (size_t)WORDS * STRIDE * 4, 0) != 0)
            return fprintf(stderr, "CUDA gives no context or memory\n"), 1;
        words[gpu] = at;
        memset(at, 0, (size_t)WORDS * STRIDE * 4);
        for (int n = 0; n < BLOCKS; n++)
            pthread_mutex_init(&blocks[gpu][n].lock, NULL);
        for (int n = 0; n < EACH; n++) {
            struct session *s = &sessions[session_count++];
            s->gpu = gpu;
            s->number = n;
            pthread_mutex_init(&s->closing, NULL);
            if (!begin_session(s))
                return 1;
        }
    }
    pthread_t watcher, beside;
    until = now() + (uint64_t)(atof(argv[1]) * 1e9);
    pthread_create(&watcher, NULL, watch, NULL);
    for (int n = 0; n < thread_count; n++)
        pthread_create(&threads[n].id, NULL, run, &threads[n]);
    pthread_create(&beside, NULL, neighbour, &threads[2 * MOST_THREADS + 1]);
    for (int n = 0; n < thread_count; n++)
        pthread_join(threads[n].id, NULL);
    pthread_join(beside, NULL);
    for (int n = 0; n < session_count; n++)
        if (DOORBELL(free, sessions[n].handle) != DOORBELL_OK)
            complain("doorbell_free: %s", doorbell_error_detail());
    int graphs = 0;
    for (int n = 0; n < WORDS / 2; n++)
        if (counted[n].graph) {
            check_count(&counted[n]);
            graphs++;
        }
    print_calls();
    printf("seed %llu: %d graphs and chains, %s\n", (unsigned long long)seed, graphs, atomic_load(&wrong) ? "something is wrong" : "all right");
    return atomic_load(&wrong) != 0;
}
