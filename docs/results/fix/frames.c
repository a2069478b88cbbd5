/* A thread with a frame each 500 us, next to a thread that makes one kind of set-up call each 100 ms:
 *
 *     frames KIND WAY BYTES CALLS      KIND: nothing, pin, register, to-gpu, from-gpu; with -async in a stream that is not
 *                                      blocking, with -async-default in the default stream
 *                                      WAY: cuda (CUDA's call), rewritten (as a program would be changed to hold nobody up)
 *
 * A frame is a copy of 4 KiB to the GPU, a kernel, a copy back and a synchronisation. It is late if it ends more than 500 us after it
 * was due. Prints one line of JSON. A call's own time is that until its memory can be used: pinned memory is written to once.
 *
 *     cc -O2 -o frames frames.c -pthread -ldl
 */
#include "hot.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAUSE_US = 100000, PIECE = 4 << 20, MOST = 1 << 20 };

static volatile int over, ready, begun;
static const char *kind;
static int rewritten, calls;
static size_t bytes;
static double own[4096], freed[4096];

static double now_us(void) { return now_ns() / 1e3; }

static int is(const char *name) { return !strcmp(kind, name); }

struct location { uint32_t kind; int32_t id; };
struct access { struct location at; uint32_t flags; };
struct wanted { uint32_t kind, handles; struct location at; void *windows; uint8_t flags[8]; };

/* Pinned memory without the lock for which launches wait. */
static uint64_t make(uint64_t *handle)
{
    struct wanted on_node_0 = {.kind = 1, .at = {3, 0}};
    struct access all[] = {{{1, 0}, 3}, {{3, 0}, 3}};
    uint64_t at;
    CUDA(cuMemAddressReserve, &at, bytes, (size_t)0, (size_t)0, (uint64_t)0);
    CUDA(cuMemCreate, handle, bytes, &on_node_0, (uint64_t)0);
    CUDA(cuMemMap, at, bytes, (size_t)0, *handle, (uint64_t)0);
    CUDA(cuMemSetAccess, at, bytes, all, (size_t)2);
    return at;
}

/* Through two pinned pieces, the CPU and the GPU at the same time. */
static void staged(int to_gpu, uint64_t gpu, char *page, char *pieces, void *stream, void **done)
{
    size_t n = (bytes + PIECE - 1) / PIECE;
    for (size_t i = 0; i <= n; i++) {
        size_t at = i * PIECE, m = at < bytes ? (bytes - at < PIECE ? bytes - at : PIECE) : 0;
        char *piece = pieces + (i & 1) * PIECE;
        if (to_gpu && m) {
            if (i > 1) CUDA(cuEventSynchronize, done[i & 1]);
            memcpy(piece, page + at, m);
            CUDA(cuMemcpyHtoDAsync_v2, gpu + at, piece, m, stream);
            CUDA(cuEventRecord, done[i & 1], stream);
        }
        if (!to_gpu && m) {
            CUDA(cuMemcpyDtoHAsync_v2, piece, gpu + at, m, stream);
            CUDA(cuEventRecord, done[i & 1], stream);
        }
        if (!to_gpu && i) {
            size_t before = at - PIECE, k = bytes - before < PIECE ? bytes - before : PIECE;
            CUDA(cuEventSynchronize, done[(i - 1) & 1]);
            memcpy(page + before, pieces + ((i - 1) & 1) * PIECE, k);
        }
    }
    CUDA(cuStreamSynchronize, stream);
}

static void *neighbour(void *unused)
{
    (void)unused;
    uint64_t gpu = 0;
    void *stream, *done[2], *pieces;
    char *page = malloc(bytes + 1);
    CUDA(cuCtxSetCurrent, context);
    CUDA(cuStreamCreate, &stream, 1);
    if (strstr(kind, "default")) stream = 0;
    CUDA(cuEventCreate, &done[0], 2);
    CUDA(cuEventCreate, &done[1], 2);
    CUDA(cuMemHostAlloc, &pieces, (size_t)2 * PIECE, 0);
    if (strstr(kind, "gpu")) {
        memset(page, 1, bytes);
        CUDA(cuMemAlloc_v2, &gpu, bytes);
    }
    ready = 1;
    while (!begun) usleep(100);
    for (int i = 0; i < calls; i++) {
        double began = now_us(), ended = began, before_free = 0;
        if (is("pin")) {
            uint64_t handle = 0, at = 0;
            if (rewritten) at = make(&handle);
            else CUDA(cuMemHostAlloc, &at, bytes, 0);
            memset((void *)at, 1, bytes);
            ended = now_us();
            before_free = now_us();
            if (rewritten) {
                CUDA(cuMemUnmap, at, bytes);
                CUDA(cuMemRelease, handle);
                CUDA(cuMemAddressFree, at, bytes);
            } else CUDA(cuMemFreeHost, (void *)at);
            freed[i] = now_us() - before_free;
        } else if (is("register")) {
            char *fresh = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            began = now_us();
            if (rewritten) madvise(fresh, bytes, 23 /* MADV_POPULATE_WRITE */);
            CUDA(cuMemHostRegister_v2, fresh, bytes, 0);
            ended = now_us();
            before_free = now_us();
            CUDA(cuMemHostUnregister, fresh);
            freed[i] = now_us() - before_free;
            munmap(fresh, bytes);
        } else if (!is("nothing")) {
            int to_gpu = !strncmp(kind, "to-gpu", 6), async = !!strstr(kind, "async");
            if (rewritten) staged(to_gpu, gpu, page, pieces, stream, done);
            else if (to_gpu && async) CUDA(cuMemcpyHtoDAsync_v2, gpu, page, bytes, stream);
            else if (to_gpu) CUDA(cuMemcpyHtoD_v2, gpu, page, bytes);
            else if (async) CUDA(cuMemcpyDtoHAsync_v2, page, gpu, bytes, stream);
            else CUDA(cuMemcpyDtoH_v2, page, gpu, bytes);
            ended = now_us();
            CUDA(cuStreamSynchronize, stream);
        }
        own[i] = ended - began;
        double left = PAUSE_US - (now_us() - began);
        if (left > 0) usleep(left);
    }
    over = 1;
    return 0;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double at(double *sorted, int n, double part) { return n ? sorted[(int)(part * (n - 1))] : 0; }

int main(int count, char **word)
{
    static double frame[MOST];
    if (count != 5) return fprintf(stderr, "frames KIND WAY BYTES CALLS\n"), 2;
    kind = word[1], rewritten = !strcmp(word[2], "rewritten"), bytes = strtoull(word[3], 0, 0), calls = atoi(word[4]);
    if (calls > 4096) calls = 4096;
    int n = 0, late = 0, wrong = 0;
    struct parts parts;
    hot_begin();
    pthread_t t;
    pthread_create(&t, 0, neighbour, 0);
    while (!ready) usleep(100);
    double due = now_us() + 1000;
    for (int warm = 1; !over && n < MOST; due += PERIOD_US) {
        while (now_us() < due) {}
        double ended = hot_frame(n, &parts, &wrong) / 1e3;
        /* The first frames load code. */
        if (warm) {
            if (++warm > 200) warm = 0, begun = 1, due = now_us();
            continue;
        }
        frame[n++] = ended - due;
        if (ended - due > PERIOD_US) late++, due = ended;
    }
    over = 1;
    pthread_join(t, 0);
    qsort(frame, n, sizeof *frame, rising);
    qsort(own, calls, sizeof *own, rising);
    qsort(freed, calls, sizeof *freed, rising);
    double sum = 0;
    for (int i = 0; i < n; i++) sum += frame[i];
    printf("{\"kind\":\"%s\",\"bytes\":%zu,\"frames\":%d,\"late\":%d,\"wrong\":%d,\"p50_us\":%.1f,\"p999_us\":%.1f,\"max_us\":%.1f,\"sum_us\":%.0f,"
           "\"calls\":%d,\"own_p50_us\":%.0f,\"own_max_us\":%.0f,\"free_p50_us\":%.0f}\n",
           kind, bytes, n, late, wrong, at(frame, n, .5), at(frame, n, .999), at(frame, n, 1), sum, calls, at(own, calls, .5), at(own, calls, 1),
           at(freed, calls, .5));
    return wrong != 0;
}
