/* What the programs here and the tests of libdoorbell share: CUDA's driver API through dlopen, a session of doorbell's beside it, errors that end the program, the
 * clock, and SIGINT and SIGTERM, which end them with what they have. */
#ifndef DRIVER_API_H
#define DRIVER_API_H

#include <doorbell.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long a wait may take: ten seconds. */
#define PATIENCE UINT64_C(10000000000)

typedef unsigned long long address_t;

/* Each function, its name in libcuda, and its arguments. */
#define CUDA_FUNCTIONS(F) \
    F(cuInit, "cuInit", unsigned) \
    F(cuDeviceGet, "cuDeviceGet", int *, int) \
    F(cuDeviceGetCount, "cuDeviceGetCount", int *) \
    F(cuDeviceGetName, "cuDeviceGetName", char *, int, int) \
    F(cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", int *, int, int) \
    F(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", void **, int) \
    F(cuDevicePrimaryCtxSetFlags, "cuDevicePrimaryCtxSetFlags_v2", int, unsigned) \
    F(cuCtxSetCurrent, "cuCtxSetCurrent", void *) \
    F(cuCtxSynchronize, "cuCtxSynchronize", void) \
    F(cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess", void *, unsigned) \
    F(cuCtxDisablePeerAccess, "cuCtxDisablePeerAccess", void *) \
    F(cuMemAlloc, "cuMemAlloc_v2", address_t *, size_t) \
    F(cuMemFree, "cuMemFree_v2", address_t) \
    F(cuMemHostAlloc, "cuMemHostAlloc", void **, size_t, unsigned) \
    F(cuMemFreeHost, "cuMemFreeHost", void *) \
    F(cuMemHostRegister, "cuMemHostRegister_v2", void *, size_t, unsigned) \
    F(cuMemHostUnregister, "cuMemHostUnregister", void *) \
    F(cuMemcpyHtoD, "cuMemcpyHtoD_v2", address_t, const void *, size_t) \
    F(cuMemcpyDtoH, "cuMemcpyDtoH_v2", void *, address_t, size_t) \
    F(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", address_t, const void *, size_t, void *) \
    F(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", void *, address_t, size_t, void *) \
    F(cuMemsetD32Async, "cuMemsetD32Async", address_t, unsigned, size_t, void *) \
    F(cuMemcpyPeerAsync, "cuMemcpyPeerAsync", address_t, void *, address_t, void *, size_t, void *) \
    F(cuStreamCreate, "cuStreamCreate", void **, unsigned) \
    F(cuStreamDestroy, "cuStreamDestroy_v2", void *) \
    F(cuStreamSynchronize, "cuStreamSynchronize", void *) \
    F(cuStreamBeginCapture, "cuStreamBeginCapture_v2", void *, int) \
    F(cuStreamEndCapture, "cuStreamEndCapture", void *, void **) \
    F(cuStreamWriteValue32, "cuStreamWriteValue32_v2", void *, address_t, uint32_t, unsigned) \
    F(cuStreamWaitValue32, "cuStreamWaitValue32_v2", void *, address_t, uint32_t, unsigned) \
    F(cuStreamWaitEvent, "cuStreamWaitEvent", void *, void *, unsigned) \
    F(cuEventCreate, "cuEventCreate", void **, unsigned) \
    F(cuEventRecord, "cuEventRecord", void *, void *) \
    F(cuModuleLoadData, "cuModuleLoadData", void **, const void *) \
    F(cuModuleUnload, "cuModuleUnload", void *) \
    F(cuModuleGetFunction, "cuModuleGetFunction", void **, void *, const char *) \
    F(cuLaunchKernel, "cuLaunchKernel", void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **) \
    F(cuGraphInstantiate, "cuGraphInstantiateWithFlags", void **, void *, unsigned long long) \
    F(cuGraphLaunch, "cuGraphLaunch", void *, void *) \
    F(cuGraphExecDestroy, "cuGraphExecDestroy", void *) \
    F(cuGraphDestroy, "cuGraphDestroy", void *)
#define DECLARED(name, in_libcuda, ...) static int (*name)(__VA_ARGS__);
CUDA_FUNCTIONS(DECLARED)
#undef DECLARED

/* copy(to, from, bytes): a thread for each four bytes. add1(word): adds 1. */
#define COPY_AND_ADD1 \
    ".version 6.0\n.target sm_70\n.address_size 64\n" \
    ".visible .entry copy(.param .u64 to, .param .u64 from, .param .u32 bytes)\n" \
    "{\n" \
    "    .reg .pred %p;\n" \
    "    .reg .b64 %to, %from, %at;\n" \
    "    .reg .b32 %bytes, %value, %block, %threads, %thread, %where;\n" \
    "    ld.param.u64 %to, [to];\n" \
    "    ld.param.u64 %from, [from];\n" \
    "    ld.param.u32 %bytes, [bytes];\n" \
    "    mov.u32 %block, %ctaid.x;\n" \
    "    mov.u32 %threads, %ntid.x;\n" \
    "    mov.u32 %thread, %tid.x;\n" \
    "    mad.lo.u32 %where, %block, %threads, %thread;\n" \
    "    shl.b32 %where, %where, 2;\n" \
    "    setp.ge.u32 %p, %where, %bytes;\n" \
    "    @%p bra DONE;\n" \
    "    cvt.u64.u32 %at, %where;\n" \
    "    add.u64 %from, %from, %at;\n" \
    "    add.u64 %to, %to, %at;\n" \
    "    ld.global.u32 %value, [%from];\n" \
    "    st.global.u32 [%to], %value;\n" \
    "DONE:\n" \
    "    ret;\n" \
    "}\n" \
    ".visible .entry add1(.param .u64 word)\n" \
    "{\n" \
    "    .reg .b64 %word;\n" \
    "    ld.param.u64 %word, [word];\n" \
    "    red.global.add.u32 [%word], 1;\n" \
    "    ret;\n" \
    "}\n"

/* The context of the first GPU, and a session beside it. */
static void *context;
static doorbell_t *doorbell;
/* With which an error of doorbell's or CUDA's ends the program. */
static int error_status = 1;

static inline void check(int code, const char *what)
{
    if (code != DOORBELL_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, doorbell_error_text(code), doorbell_error_detail());
        exit(error_status);
    }
}

static inline void cuda(int status, const char *what)
{
    if (status != 0) {
        fprintf(stderr, "%s: CUDA error %d\n", what, status);
        exit(error_status);
    }
}

/* In the place of a function that this libcuda lacks: CUDA_ERROR_NOT_FOUND. */
static inline int is_absent(void)
{
    return 500;
}

/* 0: there is no libcuda. */
static inline int load_cuda(void)
{
#define LISTED(name, in_libcuda, ...) {&name, in_libcuda},
    const struct { void *to; const char *name; } functions[] = {CUDA_FUNCTIONS(LISTED)};
#undef LISTED
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int (*absent)(void) = is_absent;
    for (size_t i = 0; library && i < sizeof functions / sizeof *functions; i++) {
        void *found = dlsym(library, functions[i].name);
        if (found)
            memcpy(functions[i].to, &found, sizeof found);
        else
            memcpy(functions[i].to, &absent, sizeof absent);
    }
    return library != NULL;
}

static inline void open_context(void)
{
    int device;
    cuda(cuInit(0), "cuInit");
    cuda(cuDeviceGet(&device, 0), "cuDeviceGet");
    cuda(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    cuda(cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

/* Without libcuda it says what is not there, and ends the program. */
static inline void begin_beside_cuda(const char *not_there)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* Before CUDA is initialised: from now on its calls to the kernel driver are seen. */
    int watching = doorbell_init();
    if (!load_cuda()) {
        printf("no libcuda: %s\n", not_there);
        exit(77);
    }
    check(watching, "doorbell_init");
    open_context();
}

/* A session beside CUDA. 0: as many as usual. */
static inline void open_session(unsigned lanes, unsigned launch_lanes)
{
    doorbell_options_t options = {.size = sizeof options, .kind = DOORBELL_BESIDE_CUDA, .lanes = lanes, .launch_lanes = launch_lanes};
    check(doorbell_create(&options, &doorbell), "doorbell_create");
}

static inline doorbell_buffer_t pinned(const volatile void *memory, uint64_t bytes)
{
    doorbell_buffer_t buffer;
    check(doorbell_buffer_register(doorbell, (void *)(uintptr_t)memory, bytes, &buffer), "doorbell_buffer_register");
    return buffer;
}

static inline void *kernel_of(void *module, const char *name)
{
    void *kernel;
    cuda(cuModuleGetFunction(&kernel, module, name), "cuModuleGetFunction");
    return kernel;
}

/* Ends the capture of a stream: an executable graph of it. */
static inline void *captured(void *stream)
{
    void *graph, *exec;
    cuda(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    cuda(cuGraphInstantiate(&exec, graph, 0), "cuGraphInstantiate");
    cuda(cuGraphDestroy(graph), "cuGraphDestroy");
    return exec;
}

/* doorbell's clone of a graph. Where graphs cannot be cloned, it says so and ends the program. */
static inline doorbell_graph_t cloned(doorbell_t *session, void *exec, void *stream)
{
    doorbell_graph_t graph;
    int code = doorbell_graph_create(session, exec, stream, &graph);
    if (code == DOORBELL_UNAVAILABLE) {
        printf("the graph cannot be cloned: %s\n", doorbell_error_detail());
        exit(77);
    }
    check(code, "doorbell_graph_create");
    return graph;
}

/* Of a software GPU no times are printed: that is emulation. */
static inline int is_software(void)
{
    char name[64] = "";
    cuda(cuDeviceGetName(name, sizeof name, 0), "cuDeviceGetName");
    return strcmp(name, "softcuda") == 0;
}

/* ns */
static inline uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The program is to end. */
static _Atomic int stop;

static inline void interrupted(int signal)
{
    (void)signal;
    stop = 1;
}

static inline void end_at_signals(void)
{
    signal(SIGINT, interrupted);
    signal(SIGTERM, interrupted);
}

#endif
