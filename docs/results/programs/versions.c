// One program for every CUDA runtime from 12.4 on: copies of all kinds, 1,000 launches, a captured graph that is launched 20 times, and a sum that says
// whether all of them ran. `docs/results/cuda_programs.py` builds it against each runtime's own headers. Plain C, so that it needs no nvcc of that version: the
// kernel comes in as a fatbin (KERNEL), and is registered as nvcc's own code does.
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAUNCHES = 1000, GRAPHS = 20, NODES = 5, COUNT = 1 << 16 };

__asm__(".section .rodata\n.balign 16\nfatbin: .incbin \"" KERNEL "\"\n.previous\n");
extern const char fatbin[];
static const struct { int magic, version; const void *data; void *more; } wrapper = { 0x466243b1, 1, fatbin, 0 };
void **__cudaRegisterFatBinary(const void *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaUnregisterFatBinary(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
static char add; // only its address counts: the host's handle of the kernel

#define MUST(call)                                                                                     \
  do {                                                                                                 \
    cudaError_t e = (call);                                                                            \
    if (e) { fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e)); exit(1); }                     \
  } while (0)

static void launch(int *at, int by, cudaStream_t stream) {
  int count = COUNT;
  void *arguments[] = { &at, &count, &by };
  dim3 blocks = { COUNT / 256, 1, 1 }, threads = { 256, 1, 1 };
  MUST(cudaLaunchKernel(&add, blocks, threads, arguments, 0, stream));
}

int main(void) {
  void **module = __cudaRegisterFatBinary(&wrapper);
  __cudaRegisterFunction(module, &add, "add", "add", -1, 0, 0, 0, 0, 0);
  __cudaRegisterFatBinaryEnd(module);
  int runtime = 0, *pageable = malloc(COUNT * sizeof(int)), *pinned, *device;
  MUST(cudaRuntimeGetVersion(&runtime));
  cudaStream_t stream;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  MUST(cudaMalloc((void **)&device, COUNT * sizeof(int)));
  MUST(cudaMallocHost((void **)&pinned, COUNT * sizeof(int)));
  for (int i = 0; i < COUNT; i++) pageable[i] = i, pinned[i] = 7;
  MUST(cudaMemcpy(device, pageable, COUNT * sizeof(int), cudaMemcpyHostToDevice));
  MUST(cudaMemsetAsync(device, 0, COUNT / 2 * sizeof(int), stream));
  MUST(cudaMemcpyAsync(device, pinned, 4096, cudaMemcpyHostToDevice, stream));
  for (int i = 0; i < LAUNCHES; i++) launch(device, 1, stream);
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < NODES; i++) launch(device, 2, stream);
  MUST(cudaStreamEndCapture(stream, &graph));
  MUST(cudaGraphInstantiateWithFlags(&ready, graph, 0));
  for (int i = 0; i < GRAPHS; i++) MUST(cudaGraphLaunch(ready, stream));
  MUST(cudaMemcpyAsync(pinned, device, COUNT * sizeof(int), cudaMemcpyDeviceToHost, stream));
  MUST(cudaStreamSynchronize(stream));
  long sum = 0;
  for (int i = 0; i < COUNT; i++) sum += pinned[i];
  printf("runtime %d, sum %ld\n", runtime, sum);
  MUST(cudaGraphExecDestroy(ready));
  MUST(cudaGraphDestroy(graph));
  MUST(cudaFreeHost(pinned));
  MUST(cudaFree(device));
  __cudaUnregisterFatBinary(module);
  return 0;
}
