// Slow calls whose cause is known, because it is planted: one a mode. `doorbell why` has to find it.
// nvcc -O2 -o planted planted.cu -lpthread; ./planted MODE
#include <cuda_runtime.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <atomic>
#include <thread>
#include <vector>

#define CHECK(call)                                                                    \
  do {                                                                                 \
    cudaError_t e = (call);                                                            \
    if (e != cudaSuccess) {                                                            \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e));                       \
      exit(1);                                                                         \
    }                                                                                  \
  } while (0)

__global__ void spin_for(long long clocks) {
  long long from = clock64();
  while (clock64() - from < clocks) {
  }
}

// Never launched before the hot path: with lazy loading each is loaded by its first launch.
template <int N>
__global__ void late(float *to) {
  float x = to[threadIdx.x];
#pragma unroll
  for (int i = 0; i < 2000; i++) x = x * (N + i) + __sinf(x + i);
  to[threadIdx.x] = x;
}

static void on_cpu(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void burn(std::atomic<bool> &stop) {
  while (!stop.load(std::memory_order_relaxed)) {
  }
}

static void launches(int n, long long clocks, int sync_every) {
  for (int i = 0; i < n; i++) {
    spin_for<<<1, 32>>>(clocks);
    if (i % sync_every == sync_every - 1) CHECK(cudaStreamSynchronize(0));
  }
  CHECK(cudaStreamSynchronize(0));
}

const size_t MIB = 1 << 20;

// Nothing is planted.
static void clean() {
  char *host, *device;
  CHECK(cudaMallocHost(&host, MIB));
  CHECK(cudaMalloc(&device, MIB));
  launches(1000, 500, 100);
  for (int i = 0; i < 400; i++) {
    CHECK(cudaMemcpyAsync(device, host, MIB, cudaMemcpyHostToDevice));
    launches(10, 2000, 10);
    CHECK(cudaMemcpyAsync(host, device, MIB, cudaMemcpyDeviceToHost));
    CHECK(cudaStreamSynchronize(0));
  }
}

// More launches than the channel has entries, while the GPU is slower than the CPU.
static void full_ring() { launches(6000, 40000, 6000); }

static void lazy() {
  float *to;
  CHECK(cudaMalloc(&to, 4096));
  for (int i = 0; i < 400; i++) {
    launches(10, 2000, 10);
    if (i == 100) late<1><<<1, 32>>>(to);
    if (i == 200) late<2><<<1, 32>>>(to);
    if (i == 300) late<3><<<1, 32>>>(to);
  }
  CHECK(cudaDeviceSynchronize());
}

static void pageable() {
  char *pinned, *device, *ordinary = (char *)malloc(8 * MIB);
  memset(ordinary, 1, 8 * MIB);
  CHECK(cudaMallocHost(&pinned, 8 * MIB));
  CHECK(cudaMalloc(&device, 8 * MIB));
  for (int i = 0; i < 400; i++) {
    CHECK(cudaMemcpyAsync(device, i % 50 == 49 ? ordinary : pinned, 8 * MIB, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyAsync(i % 50 == 24 ? ordinary : pinned, device, 8 * MIB, cudaMemcpyDeviceToHost));
    CHECK(cudaStreamSynchronize(0));
  }
}

// Launches while another thread does something ten times.
template <typename F>
static void beside(F other) {
  std::atomic<bool> stop(false);
  std::thread thread([&] {
    for (int i = 0; i < 10; i++) {
      usleep(3000);
      other();
    }
    stop = true;
  });
  while (!stop) {
    launches(10, 2000, 10);
    usleep(200);
  }
  thread.join();
}

// Another thread makes and frees memory.
static void allocating() {
  beside([] {
    void *p;
    CHECK(cudaMalloc(&p, 256 * MIB));
    CHECK(cudaFree(p));
  });
}

// Another thread pins memory.
static void pinning() {
  char *p = (char *)aligned_alloc(4096, 256 * MIB);
  memset(p, 1, 256 * MIB);
  beside([p] {
    CHECK(cudaHostRegister(p, 256 * MIB, 0));
    CHECK(cudaHostUnregister(p));
  });
  free(p);
}

// The thread itself makes memory where it should only launch.
static void own_allocation() {
  for (int i = 0; i < 400; i++) {
    launches(10, 2000, 10);
    if (i % 100 == 99) {
      void *p;
      CHECK(cudaMalloc(&p, 512 * MIB));
      spin_for<<<1, 32>>>(2000);
      CHECK(cudaFree(p));
    }
  }
}

// Somebody else wants the CPU.
static void preempted() {
  std::atomic<bool> stop(false);
  on_cpu(2);
  std::thread thread([&] { on_cpu(2), burn(stop); });
  launches(10000, 500, 20);
  stop = true;
  thread.join();
}

// The thread that has CUDA's locks is the one whose CPU somebody else wants.
static void holder_preempted() {
  std::atomic<bool> stop(false);
  std::thread burner([&] { on_cpu(2), burn(stop); });
  std::thread holder([&] {
    on_cpu(2);
    while (!stop) spin_for<<<1, 32>>>(100);
  });
  on_cpu(3);
  for (int i = 0; i < 8000; i++) {
    spin_for<<<1, 32>>>(100);
  }
  stop = true;
  holder.join();
  burner.join();
  CHECK(cudaDeviceSynchronize());
}

// A thread ends inside a call.
static void *waits(void *) {
  CHECK(cudaDeviceSynchronize());
  return nullptr;
}
static void ended() {
  launches(100, 2000, 10);
  spin_for<<<1, 32>>>(4000000000ll);
  pthread_t thread;
  pthread_create(&thread, nullptr, waits, nullptr);
  usleep(100000);
  pthread_cancel(thread);
  usleep(100000);
  _exit(0);
}

static void graph() {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaGraphExec_t exec = nullptr;
  for (int i = 0; i < 400; i++) {
    if (i % 100 == 0) {
      cudaGraph_t g;
      CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      for (int k = 0; k < 20; k++) spin_for<<<1, 32, 0, stream>>>(500 + i);
      CHECK(cudaStreamEndCapture(stream, &g));
      cudaGraphExecUpdateResultInfo info;
      if (!exec)
        CHECK(cudaGraphInstantiate(&exec, g, 0));
      else
        CHECK(cudaGraphExecUpdate(exec, g, &info));
      CHECK(cudaGraphDestroy(g));
    }
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
  }
}

static void threads() {
  for (int round = 0; round < 10; round++) {
    std::vector<std::thread> all;
    for (int i = 0; i < 200; i++)
      all.emplace_back([] {
        for (int k = 0; k < 2; k++) spin_for<<<1, 32>>>(500);
      });
    for (auto &t : all) t.join();
  }
  CHECK(cudaDeviceSynchronize());
}

// The stream waits for a function of the host's, and the call for the stream.
static void host_function() {
  for (int i = 0; i < 200; i++) {
    launches(10, 2000, 10);
    if (i % 50 == 49) {
      CHECK(cudaLaunchHostFunc(0, [](void *) { usleep(5000); }, nullptr));
      CHECK(cudaStreamSynchronize(0));
    }
  }
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)();
  } modes[] = {{"clean", clean},         {"full_ring", full_ring},           {"lazy", lazy},
               {"pageable", pageable},   {"allocating", allocating},         {"pinning", pinning},
               {"own", own_allocation},  {"preempted", preempted},           {"holder_preempted", holder_preempted},
               {"ended", ended},         {"graph", graph},                   {"threads", threads},
               {"host_function", host_function}};
  for (auto &m : modes)
    if (argc == 2 && !strcmp(argv[1], m.name)) {
      // What a process does once is done: the memory of `clean` is part of that.
      if (m.run != clean) launches(1000, 500, 100);
      m.run();
      return 0;
    }
  fprintf(stderr, "usage: planted MODE, one of:");
  for (auto &m : modes) fprintf(stderr, " %s", m.name);
  fprintf(stderr, "\n");
  return 2;
}
