/* The frame of the hot thread: 4 KiB to the GPU, a kernel that adds one, 4 KiB back, and a synchronisation. */
#ifndef HOT_H
#define HOT_H
#include "driver.h"

enum { PERIOD_US = 500 };

/* The software libcuda runs kernels of this name, too. */
static const char hot_code[] = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry add1(.param .u64 p){ .reg .b64 a; .reg .b32 w; "
                               "ld.param.u64 a,[p]; ld.global.u32 w,[a]; add.u32 w,w,1; st.global.u32 [a],w; ret; }";

/* Found once: dlsym has a lock, which a driver holds that loads its compiler. */
static struct { int (*to)(), (*launch)(), (*from)(), (*wait)(); void *function, *stream, *arguments[1]; uint64_t gpu; uint32_t *host; } hot;

/* How long the calls of a frame took; of the two copies the longer. */
struct parts { int64_t copy, launch, wait; };

static void hot_begin(void)
{
    hot.function = begin(hot_code, "add1");
    hot.arguments[0] = &hot.gpu;
    CUDA(cuMemAlloc_v2, &hot.gpu, (size_t)4096);
    CUDA(cuMemHostAlloc, &hot.host, (size_t)8192, 0);
    CUDA(cuStreamCreate, &hot.stream, 1);
    hot.to = (int (*)())dlsym(lib, "cuMemcpyHtoDAsync_v2");
    hot.launch = (int (*)())dlsym(lib, "cuLaunchKernel");
    hot.from = (int (*)())dlsym(lib, "cuMemcpyDtoHAsync_v2");
    hot.wait = (int (*)())dlsym(lib, "cuStreamSynchronize");
}

/* A frame; when it ended. */
static int64_t hot_frame(uint32_t number, struct parts *took, int *wrong)
{
    int64_t began = now_ns(), at[4];
    hot.host[0] = number;
    int result = hot.to(hot.gpu, hot.host, (size_t)4096, hot.stream);
    at[0] = now_ns();
    if (!result) result = hot.launch(hot.function, 1, 1, 1, 1, 1, 1, 0, hot.stream, hot.arguments, (void *)0);
    at[1] = now_ns();
    if (!result) result = hot.from(hot.host + 1024, hot.gpu, (size_t)4096, hot.stream);
    at[2] = now_ns();
    if (!result) result = hot.wait(hot.stream);
    at[3] = now_ns();
    if (result) fprintf(stderr, "the hot thread: %d\n", result), exit(1);
    *wrong += hot.host[1024] != number + 1;
    int64_t to = at[0] - began, from = at[2] - at[1];
    *took = (struct parts){to > from ? to : from, at[1] - at[0], at[3] - at[2]};
    return at[3];
}

#endif
