// A copy waits for another thread's first launch of a kernel. With lazy loading that launch loads the kernel's module, and the load waits for the
// kernels that run. If one of these waits for the copy, nobody goes on (the guide lazy-loading.md).
//
//   nvcc -O2 -DLATE -c -o late.o lazy_copy.cu && nvcc -O2 -o lazy_copy lazy_copy.cu late.o -lpthread -ldl
//   lazy_copy bounded cuda      a kernel runs for half a second
//   lazy_copy cycle cuda        the kernel runs until the copy has written its word, at most LONGEST seconds
//   lazy_copy cycle doorbell    the same, and libdoorbell makes the copy (LIBDOORBELL: its path)
//
// Two modules: one kernel's module is loaded with the other kernels of its file. Prints a line of JSON.
#include <cuda_runtime.h>
#include <cstdio>

#ifdef LATE

__global__ void late(int *to) { *to += 1; }

void launch_late(int *to, cudaStream_t stream) { late<<<1, 1, 0, stream>>>(to); }

#else

#include <dlfcn.h>
#include <doorbell.h>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <pthread.h>
#include <unistd.h>

#define CHECK(call)                                                                    \
  do {                                                                                 \
    auto e = (call);                                                                   \
    if (e != 0) {                                                                      \
      fprintf(stderr, "%s: %d\n", #call, (int)e);                                      \
      exit(1);                                                                         \
    }                                                                                  \
  } while (0)

static const double HALF_A_SECOND = 0.5, LONGEST = 15;

void launch_late(int *to, cudaStream_t stream);

// Runs until the word is there, or for so many seconds. (clock64 depends on the clock's rate; globaltimer is in nanoseconds.)
__global__ void busy(volatile int *word, double seconds, volatile int *started) {
  unsigned long long begun, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begun));
  *started = 1;
  do
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (*word == 0 && now - begun < seconds * 1e9);
}

static double now() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

// libdoorbell's functions, if it makes the copy.
static void *library;
template <class F>
static F *of_library(F *, const char *name) {
  void *f = library ? dlsym(library, name) : nullptr;
  if (!f) {
    fprintf(stderr, "no %s in LIBDOORBELL\n", name);
    exit(2);
  }
  return (F *)f;
}
#define OURS(name) of_library(name, #name)

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: lazy_copy bounded|cycle cuda|doorbell\n");
    return 2;
  }
  bool cycle = !strcmp(argv[1], "cycle"), ours = !strcmp(argv[2], "doorbell");
  // Before CUDA's first call, so that it sees how CUDA makes its channels.
  if (ours) {
    library = dlopen(getenv("LIBDOORBELL"), RTLD_NOW);
    CHECK(OURS(doorbell_init)());
  }
  int *word, *counted, *started, *one;
  cudaStream_t busy_in, late_in, copy_in;
  CHECK(cudaMalloc(&word, 4096));
  CHECK(cudaMalloc(&counted, 4096));
  CHECK(cudaMemset(word, 0, 4096));
  CHECK(cudaHostAlloc(&started, 4096, 0));
  CHECK(cudaHostAlloc(&one, 4096, 0));
  *started = 0, *one = 1;
  for (cudaStream_t *s : {&busy_in, &late_in, &copy_in}) CHECK(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking));
  doorbell_t *doorbell = nullptr;
  doorbell_buffer_t to, from;
  if (ours) {
    CHECK(OURS(doorbell_create)(nullptr, &doorbell));
    CHECK(OURS(doorbell_buffer_register)(doorbell, word, 4096, &to));
    CHECK(OURS(doorbell_buffer_register)(doorbell, one, 4096, &from));
  }
  CHECK(cudaDeviceSynchronize());

  // In the bounded form the copy goes elsewhere.
  busy<<<1, 1, 0, busy_in>>>(word, cycle ? LONGEST : HALF_A_SECOND, started);
  while (!*(volatile int *)started) {
  }
  double copy_ms = 0, launch_ms = 0, begun = now();
  std::thread copier([&] {
    pthread_setname_np(pthread_self(), "copier");
    usleep(50000);  // the launch has begun
    double from_here = now();
    size_t offset = cycle ? 0 : 64;
    if (ours)
      CHECK(OURS(doorbell_copy)(doorbell, to, offset, from, 0, 4, UINT64_MAX));
    else
      CHECK(cudaMemcpyAsync((char *)word + offset, one, 4, cudaMemcpyHostToDevice, copy_in));
    copy_ms = now() - from_here;
  });
  launch_late(counted, late_in);
  launch_ms = now() - begun;
  copier.join();
  CHECK(cudaDeviceSynchronize());
  double all_ms = now() - begun;
  int found = 0;
  CHECK(cudaMemcpy(&found, counted, 4, cudaMemcpyDeviceToHost));
  const char *loading = getenv("CUDA_MODULE_LOADING");
  printf("{\"form\": \"%s\", \"copy_by\": \"%s\", \"loading\": \"%s\", \"copy_ms\": %.4f, \"launch_ms\": %.4f, \"all_ms\": %.3f}\n", argv[1], argv[2],
         loading ? loading : "LAZY", copy_ms, launch_ms, all_ms);
  if (ours) CHECK(OURS(doorbell_free)(doorbell));
  return found == 1 ? 0 : 1;
}

#endif
