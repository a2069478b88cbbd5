/* A captured graph of 24 kernels and 7 copies, launched 40 times; and one of 10 kernels that is launched once.
   record: --gpu-times
   last: --gpu-times
   cannot: record kernels of graphs that are launched once, and copies in graphs, are not told yet
   expect: kernels('step') == (0, 960, 960)
   expect: kernels('once')[:2] == (0, 10)
   expect: len([c for c in copies if c['bytes'] == 256 << 10]) == 280 */
#include "gpu.h"

__global__ void step(unsigned *p, unsigned n)
{
    if (threadIdx.x == 0)
        *p = *p * 1664525u + n;
}
__global__ void once(unsigned *p) { atomicAdd(p + 1, 1); }

int main()
{
    unsigned *p, *d, *h, r[2] = {1}, want = 1;
    size_t n = 256 << 10;
    cudaStream_t s;
    cudaGraph_t g, g1;
    cudaGraphExec_t x, x1;
    OK(cudaMalloc(&p, 8));
    OK(cudaMalloc(&d, n));
    OK(cudaMallocHost(&h, n));
    OK(cudaMemset(p, 0, 8));
    OK(cudaMemcpy(p, r, 4, cudaMemcpyHostToDevice));
    OK(cudaStreamCreate(&s));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 24; i++) {
        step<<<1, 32, 0, s>>>(p, i);
        if (i % 4 == 3 || i == 0)
            OK(cudaMemcpyAsync(i % 8 ? d : h, i % 8 ? h : d, n, cudaMemcpyDefault, s));
    }
    OK(cudaStreamEndCapture(s, &g));
    OK(cudaGraphInstantiate(&x, g, 0));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 10; i++)
        once<<<1, 1, 0, s>>>(p);
    OK(cudaStreamEndCapture(s, &g1));
    OK(cudaGraphInstantiate(&x1, g1, 0));
    for (int i = 0; i < 40; i++) {
        OK(cudaGraphLaunch(x, s));
        OK(cudaStreamSynchronize(s));
        for (unsigned k = 0; k < 24; k++)
            want = want * 1664525u + k;
    }
    OK(cudaGraphLaunch(x1, s));
    OK(cudaStreamSynchronize(s));
    OK(cudaMemcpy(r, p, 8, cudaMemcpyDeviceToHost));
    printf("chain %u (%u), once %u (10)\n", r[0], want, r[1]);
    return r[0] != want || r[1] != 10;
}
