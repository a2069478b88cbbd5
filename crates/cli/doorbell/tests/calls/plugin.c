/* A library that is loaded later and contains the runtime. */
#include <stdint.h>

typedef struct { uint32_t x, y, z; } dim3;
int cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **args, uint64_t shared, void *stream);
int cudaDeviceSynchronize(void);
static int (*const again)(void) = cudaDeviceSynchronize;

int work(uint32_t n) {
    static uint64_t value = 7;
    static void *params[] = {&value};
    return cudaLaunchKernel((void *)0xf9, (dim3){n, 1, 1}, (dim3){1, 1, 1}, params, 0, 0) + again();
}
