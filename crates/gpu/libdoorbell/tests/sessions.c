/* Several sessions in a process, of several libdoorbell.so: each works as if it were alone.
 *
 *   sessions SECONDS LIBRARY...
 *
 * Each library has two sessions on the first GPU, and one on the second where there is one. Two threads of each session copy random parts of a buffer to the GPU and back
 * and compare; each session launches a graph that counts, in no stream's order and in a stream's, and the count has to be right; memory that CUDA frees is DOORBELL_FREED in each session that
 * has registered it, and handles of one session are errors in all others. Prints a line for each session. */
#define _GNU_SOURCE
#include "driver_api.h"
#include <pthread.h>

enum { BYTES = 1 << 20, MOST = 16 };

/* One libdoorbell.so. */
struct library {
    const char *path;
    __typeof__(&doorbell_init) init;
    __typeof__(&doorbell_create) create;
    __typeof__(&doorbell_free) free;
    __typeof__(&doorbell_buffer_register) buffer_register;
    __typeof__(&doorbell_buffer_create) buffer_create;
    __typeof__(&doorbell_buffer_free) buffer_free;
    __typeof__(&doorbell_copy_async) copy_async;
    __typeof__(&doorbell_wait) wait;
    __typeof__(&doorbell_graph_create) graph_create;
    __typeof__(&doorbell_graph_launch) graph_launch;
    __typeof__(&doorbell_error_detail) error_detail;
};

struct session {
    struct library *of;
    int gpu;
    void *context, *stream;
    doorbell_t *doorbell;
    doorbell_buffer_t host, device;
    unsigned char *bytes;
    uint32_t *word;
    doorbell_graph_t graph;
    pthread_t threads[3];
    unsigned long copies, launches;
};

static struct library libraries[4];
static struct session sessions[MOST];
static int session_count, wrong;
static uint64_t until;

static void fail(const char *what, int code, struct session *s)
{
    fprintf(stderr, "session %ld: %s: %d (%s)\n", s ? (long)(s - sessions) : -1L, what, code, s ? s->of->error_detail() : "");
    __atomic_add_fetch(&wrong, 1, __ATOMIC_SEQ_CST);
}
#define OK(s, call) do { int answer_ = (call); if (answer_ != 0) { fail(#call, answer_, s); return 0; } } while (0)
#define IS(s, call, wanted) do { int answer_ = (call); if (answer_ != (wanted)) fail(#call, answer_, s); } while (0)

static void find(void *library, void *to, const char *name)
{
    void *at = dlsym(library, name);
    if (!at) {
        fprintf(stderr, "no %s: %s\n", name, dlerror());
        exit(1);
    }
    memcpy(to, &at, sizeof at);
}

static void open_library(struct library *l, const char *path)
{
    void *opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!opened) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    l->path = path;
    find(opened, &l->init, "doorbell_init");
    find(opened, &l->create, "doorbell_create");
    find(opened, &l->free, "doorbell_free");
    find(opened, &l->buffer_register, "doorbell_buffer_register");
    find(opened, &l->buffer_create, "doorbell_buffer_create");
    find(opened, &l->buffer_free, "doorbell_buffer_free");
    find(opened, &l->copy_async, "doorbell_copy_async");
    find(opened, &l->wait, "doorbell_wait");
    find(opened, &l->graph_create, "doorbell_graph_create");
    find(opened, &l->graph_launch, "doorbell_graph_launch");
    find(opened, &l->error_detail, "doorbell_error_detail");
    if (l->init() != DOORBELL_OK)
        fprintf(stderr, "%s: %s\n", path, l->error_detail()), exit(1);
}

/* A session, its memory, and a graph that was learnt from launches that count, too. */
static int set_up(struct session *s)
{
    doorbell_options_t options = {.size = sizeof options, .kind = DOORBELL_BESIDE_CUDA, .gpu = (uint32_t)s->gpu, .lanes = 2, .profile = ""};
    int device;
    void *module;
    OK(s, cuDeviceGet(&device, s->gpu));
    OK(s, cuDevicePrimaryCtxRetain(&s->context, device));
    OK(s, cuCtxSetCurrent(s->context));
    OK(s, s->of->create(&options, &s->doorbell));
    OK(s, s->of->buffer_create(s->doorbell, DOORBELL_HOST, 2 * BYTES, &s->host, (void **)&s->bytes));
    OK(s, s->of->buffer_create(s->doorbell, DOORBELL_VIDEO, BYTES, &s->device, NULL));
    OK(s, cuMemHostAlloc((void **)&s->word, 4096, 0));
    *s->word = 0;
    OK(s, cuStreamCreate(&s->stream, 1));
    OK(s, cuModuleLoadData(&module, COPY_AND_ADD1));
    uint64_t at = (uint64_t)(uintptr_t)s->word;
    void *arguments[] = {&at};
    OK(s, cuStreamBeginCapture(s->stream, 1));
    OK(s, cuLaunchKernel(kernel_of(module, "add1"), 1, 1, 1, 1, 1, 1, 0, s->stream, arguments, NULL));
    OK(s, s->of->graph_create(s->doorbell, captured(s->stream), s->stream, &s->graph));
    s->launches = *s->word;
    return 1;
}

static void *copy(void *argument)
{
    struct session *s = argument;
    cuCtxSetCurrent(s->context);
    unsigned seed = (unsigned)(uintptr_t)&seed;
    /* Each thread has its half. */
    size_t half = BYTES / 2, first = s->threads[0] == pthread_self() ? 0 : half;
    while (now() < until && !wrong) {
        size_t length = 1 + (size_t)rand_r(&seed) % half, offset = first + (size_t)rand_r(&seed) % (half - length + 1);
        unsigned char *from = s->bytes + offset, *back = from + BYTES;
        for (size_t i = 0; i < length; i += 61)
            from[i] = (unsigned char)rand_r(&seed);
        doorbell_ticket_t ticket;
        int code;
        for (int way = 0; way < 2; way++) {
            while ((code = way == 0 ? s->of->copy_async(s->doorbell, s->device, offset, s->host, offset, length, NULL, &ticket)
                                    : s->of->copy_async(s->doorbell, s->host, BYTES + offset, s->device, offset, length, NULL, &ticket)) == DOORBELL_BUSY
                   || code == DOORBELL_FULL)
                sched_yield();
            OK(s, code);
            OK(s, s->of->wait(s->doorbell, ticket, PATIENCE));
        }
        for (size_t i = 0; i < length; i += 61)
            if (from[i] != back[i]) {
                fail("a byte is wrong", (int)i, s);
                break;
            }
        __atomic_add_fetch(&s->copies, 2, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* Launches; and memory that is registered in all sessions of this GPU and freed. */
static void *count(void *argument)
{
    struct session *s = argument;
    cuCtxSetCurrent(s->context);
    while (now() < until && !wrong) {
        doorbell_order_t order = doorbell_after_stream(s->stream);
        order.flags |= DOORBELL_ORDER_STREAM_WAITS;
        doorbell_ticket_t ticket;
        int code;
        bool in_stream = s->launches % 7 == 0;
        while ((code = s->of->graph_launch(s->doorbell, s->graph, in_stream ? &order : NULL, &ticket)) == DOORBELL_BUSY || code == DOORBELL_FULL)
            sched_yield();
        OK(s, code);
        if (in_stream)
            OK(s, cuStreamSynchronize(s->stream));
        else
            OK(s, s->of->wait(s->doorbell, ticket, PATIENCE));
        s->launches++;
        if (*(volatile uint32_t *)s->word != (uint32_t)s->launches)
            fail("the count", (int)*s->word, s);
        if (s->launches % 50 != 0)
            continue;
        address_t block;
        doorbell_buffer_t buffers[MOST];
        OK(s, cuMemAlloc(&block, 65536));
        for (int n = 0; n < session_count; n++)
            if (sessions[n].gpu == s->gpu)
                OK(&sessions[n], sessions[n].of->buffer_register(sessions[n].doorbell, (void *)(uintptr_t)block, 65536, &buffers[n]));
        OK(s, cuMemFree(block));
        for (int n = 0; n < session_count; n++)
            if (sessions[n].gpu == s->gpu) {
                while ((code = sessions[n].of->copy_async(sessions[n].doorbell, sessions[n].host, 0, buffers[n], 0, 8, NULL, &ticket)) == DOORBELL_BUSY)
                    sched_yield();
                IS(&sessions[n], code, DOORBELL_FREED);
                IS(&sessions[n], sessions[n].of->buffer_free(sessions[n].doorbell, buffers[n]), DOORBELL_OK);
            }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int gpus;
    if (argc < 3)
        return fprintf(stderr, "usage: sessions SECONDS LIBRARY...\n"), 2;
    int named = argc - 2 > 4 ? 4 : argc - 2;
    /* All libraries before CUDA is initialised. */
    for (int n = 0; n < named; n++)
        open_library(&libraries[n], argv[2 + n]);
    if (!load_cuda() || cuInit(0) != 0 || cuDeviceGetCount(&gpus) != 0)
        return fprintf(stderr, "no CUDA\n"), 77;
    for (int n = 0; n < named; n++)
        for (int which = 0; which < (gpus > 1 ? 3 : 2); which++) {
            struct session *s = &sessions[session_count];
            s->of = &libraries[n];
            s->gpu = which == 2;
            session_count += set_up(s);
        }
    if (wrong)
        return 1;
    /* A handle of one is none of another's. */
    for (int a = 0; a < session_count; a++)
        for (int b = 0; b < session_count; b++) {
            doorbell_ticket_t ticket;
            struct session *s = &sessions[a], *other = &sessions[b];
            if (a != b && s->of == other->of)
                IS(s, s->of->graph_launch(s->doorbell, other->graph, NULL, &ticket), DOORBELL_HANDLE);
            if (s->of != other->of)
                IS(s, s->of->graph_launch(other->doorbell, other->graph, NULL, &ticket), DOORBELL_HANDLE);
        }
    until = now() + (uint64_t)(atof(argv[1]) * 1e9);
    for (int n = 0; n < session_count; n++)
        for (int t = 0; t < 3; t++)
            pthread_create(&sessions[n].threads[t], NULL, t < 2 ? copy : count, &sessions[n]);
    for (int n = 0; n < session_count; n++)
        for (int t = 0; t < 3; t++)
            pthread_join(sessions[n].threads[t], NULL);
    for (int n = 0; n < session_count; n++) {
        struct session *s = &sessions[n];
        printf("session %d, library %ld, GPU %d: %lu copies, %lu launches\n", n, (long)(s->of - libraries), s->gpu, s->copies, s->launches);
        IS(s, s->of->free(s->doorbell), DOORBELL_OK);
    }
    printf("%s\n", wrong ? "something is wrong" : "all right");
    return wrong != 0;
}
