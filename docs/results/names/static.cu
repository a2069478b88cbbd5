// Kernels of a template, copies and memsets, with the CUDA runtime inside (nvcc -cudart static).
#include <cuda_runtime.h>

template <typename T, int N>
__global__ void scaled(T *x) {
  x[blockIdx.x * blockDim.x + threadIdx.x] *= N;
}

extern "C" int run(int times) {
  float *device, *pinned, ordinary[4096] = {};
  if (cudaMalloc(&device, sizeof ordinary) || cudaMallocHost(&pinned, sizeof ordinary)) return 1;
  for (int i = 0; i < times; i++) {
    cudaMemset(device, 0, sizeof ordinary);
    scaled<float, 3><<<16, 256>>>(device);
    scaled<int, 5><<<16, 256>>>((int *)device);
    cudaMemcpyAsync(pinned, device, sizeof ordinary, cudaMemcpyDeviceToHost, 0);
    cudaMemcpy(device, ordinary, sizeof ordinary, cudaMemcpyHostToDevice);
  }
  return cudaDeviceSynchronize() || cudaGetLastError();
}
