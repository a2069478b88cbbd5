/* For programs that use a GPU: a call that fails ends the program. */
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define OK(call)                                                       \
    do {                                                               \
        cudaError_t error_ = (call);                                   \
        if (error_) {                                                  \
            printf("%s: %s\n", #call, cudaGetErrorString(error_));     \
            exit(1);                                                   \
        }                                                              \
    } while (0)
