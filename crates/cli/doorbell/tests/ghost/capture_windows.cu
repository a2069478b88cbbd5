/* Five windows of cudaProfilerStart and Stop, 100 launches in each, 100 after each, while another thread launches.
   record: --gpu-times --capture profiler
   last: --gpu-times --capture profiler
   expect: kernels('inside') == (500, 0, 500) and kernels('outside')[0] == 0 */
#include "gpu.h"
#include <atomic>
#include <cuda_profiler_api.h>
#include <thread>

__global__ void inside(int *p) { atomicAdd(p, 1); }
__global__ void outside(int *p) { atomicAdd(p + 1, 1); }
__global__ void other(int *p) { atomicAdd(p + 2, 1); }

int main()
{
    int *p, h[3];
    long made = 0;
    std::atomic<bool> stop(false);
    cudaStream_t s, t;
    OK(cudaMalloc(&p, 12));
    OK(cudaMemset(p, 0, 12));
    OK(cudaStreamCreate(&s));
    OK(cudaStreamCreate(&t));
    std::thread beside([&] {
        for (; !stop; made++) {
            other<<<1, 1, 0, t>>>(p);
            OK(cudaStreamSynchronize(t));
        }
    });
    for (int w = 0; w < 5; w++) {
        OK(cudaProfilerStart());
        for (int i = 0; i < 100; i++)
            inside<<<1, 1, 0, s>>>(p);
        OK(cudaStreamSynchronize(s));
        OK(cudaProfilerStop());
        for (int i = 0; i < 100; i++)
            outside<<<1, 1, 0, s>>>(p);
        OK(cudaStreamSynchronize(s));
    }
    stop = true;
    beside.join();
    OK(cudaMemcpy(h, p, 12, cudaMemcpyDeviceToHost));
    printf("inside %d, outside %d (500), other as made %d\n", h[0], h[1], h[2] == made);
    return h[0] != 500 || h[2] != made;
}
