/* Copies between two GPUs by libdoorbell, beside CUDA's own (cuMemcpyPeerAsync): every byte is compared, and what each takes is measured.
 *
 *   cc -O2 examples/c/peers.c -o target/prefix/peers -Itarget/prefix/include -Ltarget/prefix/lib -Wl,-rpath,'$ORIGIN/lib' -ldoorbell -ldl
 *   target/prefix/peers [rounds, 200]
 *
 * A session is of one GPU. It may name memory of another one after cuCtxEnablePeerAccess (cudaDeviceEnablePeerAccess): its own GPU then
 * writes there, or reads. Before that, and after cuCtxDisablePeerAccess, such memory is refused. Sizes and ways take turns in random
 * order; both ways wait by polling.
 *
 * Exit status: 0, 1 for wrong data or an error, 77 without two GPUs that can access each other. */
#define _GNU_SOURCE
#include "driver_api.h"
#include "samples.h"

enum { LARGEST = 64 << 20, SIZES = 6, WAYS = 4 };

static const size_t BYTES[SIZES] = {8, 4096, 64 << 10, 1 << 20, 16 << 20, LARGEST};
static const char *const NAMES[WAYS] = {"doorbell to the other", "CUDA to the other", "doorbell from the other", "CUDA from the other"};

static void *contexts[2], *stream;
static address_t memory[2];
static doorbell_buffer_t buffers[2];
static doorbell_transfer_t transfers[SIZES][2];

/* Fills memory of one GPU with bytes that no other call has, and the other's with zero. */
static void fill(int from, size_t bytes, unsigned char *pattern, unsigned seed)
{
    for (size_t at = 0; at < bytes; at++)
        pattern[at] = (unsigned char)(at * 31 + (at >> 8) * 7 + seed);
    cuda(cuCtxSetCurrent(contexts[from]), "cuCtxSetCurrent");
    cuda(cuMemcpyHtoD(memory[from], pattern, bytes), "cuMemcpyHtoD");
    void *zero = calloc(1, bytes);
    if (!zero)
        exit(1);
    cuda(cuCtxSetCurrent(contexts[!from]), "cuCtxSetCurrent");
    cuda(cuMemcpyHtoD(memory[!from], zero, bytes), "cuMemcpyHtoD");
    cuda(cuStreamSynchronize(NULL), "cuStreamSynchronize");
    free(zero);
    cuda(cuCtxSetCurrent(contexts[0]), "cuCtxSetCurrent");
}

static uint64_t copy(int size, int way)
{
    int from = way / 2;
    uint64_t begin = now();
    if (way % 2 == 0) {
        doorbell_ticket_t ticket;
        check(doorbell_transfer_async(doorbell, transfers[size][from], NULL, &ticket), "doorbell_transfer_async");
        check(doorbell_wait(doorbell, ticket, PATIENCE), "doorbell_wait");
    } else {
        cuda(cuMemcpyPeerAsync(memory[!from], contexts[!from], memory[from], contexts[from], BYTES[size], stream), "cuMemcpyPeerAsync");
        cuda(cuStreamSynchronize(stream), "cuStreamSynchronize");
    }
    return now() - begin;
}

/* The other GPU's memory is refused, and the reason printed. */
static void is_refused(const char *when)
{
    doorbell_buffer_t other;
    int code = doorbell_buffer_register(doorbell, (void *)(uintptr_t)memory[1], LARGEST, &other);
    if (code != DOORBELL_NOT_PINNABLE) {
        fprintf(stderr, "%s the other GPU's memory is not refused: %d (%s)\n", when, code, doorbell_error_detail());
        exit(1);
    }
    printf("%s: %s\n", when, doorbell_error_detail());
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 200, count = 0, devices[2], can[2] = {0};
    int watching = doorbell_init();
    if (!load_cuda() || cuInit(0) != 0 || cuDeviceGetCount(&count) != 0 || count < 2) {
        printf("no two GPUs\n");
        return 77;
    }
    check(watching, "doorbell_init");
    for (int i = 0; i < 2; i++)
        cuda(cuDeviceGet(&devices[i], i), "cuDeviceGet");
    cuda(cuDeviceCanAccessPeer(&can[0], devices[0], devices[1]), "cuDeviceCanAccessPeer");
    cuda(cuDeviceCanAccessPeer(&can[1], devices[1], devices[0]), "cuDeviceCanAccessPeer");
    if (!can[0] || !can[1]) {
        printf("the two GPUs cannot access each other\n");
        return 77;
    }
    for (int i = 0; i < 2; i++) {
        cuda(cuDevicePrimaryCtxSetFlags(devices[i], 1), "cuDevicePrimaryCtxSetFlags"); /* CU_CTX_SCHED_SPIN */
        cuda(cuDevicePrimaryCtxRetain(&contexts[i], devices[i]), "cuDevicePrimaryCtxRetain");
        cuda(cuCtxSetCurrent(contexts[i]), "cuCtxSetCurrent");
        cuda(cuMemAlloc(&memory[i], LARGEST), "cuMemAlloc");
    }
    cuda(cuCtxSetCurrent(contexts[0]), "cuCtxSetCurrent");
    cuda(cuStreamCreate(&stream, 1), "cuStreamCreate");
    open_session(1, 0);
    buffers[0] = pinned((void *)(uintptr_t)memory[0], LARGEST);
    is_refused("before peer access");
    cuda(cuCtxEnablePeerAccess(contexts[1], 0), "cuCtxEnablePeerAccess");
    buffers[1] = pinned((void *)(uintptr_t)memory[1], LARGEST);
    for (int size = 0; size < SIZES; size++)
        for (int from = 0; from < 2; from++)
            check(doorbell_transfer_create(doorbell, buffers[!from], 0, buffers[from], 0, BYTES[size], &transfers[size][from]), "doorbell_transfer_create");

    unsigned char *pattern = malloc(LARGEST), *found = malloc(LARGEST);
    if (!pattern || !found)
        return 1;
    for (int size = 0; size < SIZES; size++)
        for (int way = 0; way < WAYS; way++) {
            int from = way / 2;
            fill(from, BYTES[size], pattern, (unsigned)(size * WAYS + way + 1));
            copy(size, way);
            cuda(cuCtxSetCurrent(contexts[!from]), "cuCtxSetCurrent");
            cuda(cuMemcpyDtoH(found, memory[!from], BYTES[size]), "cuMemcpyDtoH");
            cuda(cuCtxSetCurrent(contexts[0]), "cuCtxSetCurrent");
            if (memcmp(pattern, found, BYTES[size]) != 0) {
                fprintf(stderr, "%s, %zu bytes: other bytes arrived\n", NAMES[way], BYTES[size]);
                return 1;
            }
        }
    static struct samples taken[SIZES][WAYS];
    uint64_t random = 88172645463325252u;
    for (int turn = 0; turn < rounds * SIZES * WAYS; turn++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        int size = (int)(random % SIZES), way = (int)(random / SIZES % WAYS);
        add(&taken[size][way], copy(size, way));
    }
    printf("%10s  %-24s %8s %10s %10s %10s %8s\n", "bytes", "way", "copies", "p50", "p99", "max", "GB/s");
    for (int size = 0; size < SIZES; size++)
        for (int way = 0; way < WAYS; way++) {
            struct samples *s = &taken[size][way];
            sorted(s);
            printf("%10zu  %-24s %8zu %10s %10s %10s %8.2f\n", BYTES[size], NAMES[way], s->count, text(p50(s)), text(p99(s)), text(most(s)),
                   (double)BYTES[size] / (double)p50(s));
        }

    cuda(cuCtxDisablePeerAccess(contexts[1]), "cuCtxDisablePeerAccess");
    is_refused("after peer access");
    doorbell_ticket_t ticket;
    int code = doorbell_transfer_async(doorbell, transfers[0][0], NULL, &ticket);
    if (code != DOORBELL_FREED) {
        fprintf(stderr, "a copy that was prepared before is not refused: %d (%s)\n", code, doorbell_error_detail());
        return 1;
    }
    printf("a copy that was prepared before: %s\n", doorbell_error_text(code));
    check(doorbell_free(doorbell), "doorbell_free");
    return 0;
}
