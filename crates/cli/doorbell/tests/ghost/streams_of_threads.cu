/* The default stream of each thread: 8 threads, 250 launches each on "the default stream".
   build: nvcc -w -O2 -arch=native -std=c++17 --default-stream per-thread streams_of_threads.cu -o streams_of_threads
   record: --gpu-times
   last: --gpu-times
   expect: kernels('mine') == (2000, 0, 2000) */
#include "gpu.h"
#include <thread>
#include <vector>

__global__ void mine(int *p, int t) { atomicAdd(p + t, 1); }

int main()
{
    int *p, h[8], sum = 0;
    std::vector<std::thread> threads;
    OK(cudaMalloc(&p, 32));
    OK(cudaMemset(p, 0, 32));
    OK(cudaDeviceSynchronize());
    for (int t = 0; t < 8; t++)
        threads.emplace_back([=] {
            for (int i = 0; i < 250; i++)
                mine<<<1, 1>>>(p, t);
            OK(cudaStreamSynchronize(0));
        });
    for (auto &t : threads)
        t.join();
    OK(cudaMemcpy(h, p, 32, cudaMemcpyDeviceToHost));
    for (int x : h)
        sum += x;
    printf("%d (2000)\n", sum);
    return sum != 2000;
}
