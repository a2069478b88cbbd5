// Kernels that write down when they began and ended (%globaltimer), to be held against what `record --gpu-times` says. Prints, for each: class, number, start, end.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <string>
#include <thread>
#include <time.h>
#include <vector>

#define CHECK(x) do { cudaError_t e = (x); if (e) { fprintf(stderr, "%s: %s\n", #x, cudaGetErrorString(e)); exit(1); } } while (0)

struct Run { unsigned long long start, end; };

__device__ unsigned long long now() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

// Lasts `ns`, and writes its run down as number `i`.
#define KERNEL(name) \
  __global__ void name(Run *runs, int i, unsigned long long ns) { \
    unsigned long long start = now(), end; \
    do end = now(); while (end - start < ns); \
    if (threadIdx.x == 0 && blockIdx.x == 0) runs[i].start = start; \
    if (threadIdx.x == 0) atomicMax(&runs[i].end, end); \
  }
KERNEL(idle) KERNEL(busy) KERNEL(wide) KERNEL(copied) KERNEL(streams4) KERNEL(streams64) KERNEL(cooperative) KERNEL(clusters)

// Lets the next kernel of the stream begin at once.
__global__ void programmatic(Run *runs, int i, unsigned long long ns) {
  asm volatile("griddepcontrol.launch_dependents;");
  unsigned long long start = now(), end;
  do end = now(); while (end - start < ns);
  if (threadIdx.x == 0) runs[i] = {start, end};
}

// A node of a graph: counts its launches.
#define NODE(name) \
  __global__ void name(Run *runs, int *launches, int i, int most, unsigned long long ns) { \
    unsigned long long start = now(), end; \
    do end = now(); while (end - start < ns); \
    int launch = launches[i]++; \
    runs[i * (size_t)most + launch] = {start, end}; \
  }
NODE(graph1) NODE(graph10) NODE(graph100) NODE(graph2000)
__global__ void nothing() {}

static const int N = 2000;
static unsigned long long lasts(int i) { return 5000 + 1000 * (i % 20); }

static void print(const char *name, const std::vector<Run> &runs) {
  for (size_t i = 0; i < runs.size(); i++) printf("%s %zu %llu %llu\n", name, i, runs[i].start, runs[i].end);
}

template <class F> static void single(const char *name, F launch) {
  Run *runs;
  CHECK(cudaMalloc(&runs, N * sizeof(Run)));
  CHECK(cudaMemset(runs, 0, N * sizeof(Run)));
  CHECK(cudaDeviceSynchronize());
  launch(runs);
  CHECK(cudaDeviceSynchronize());
  std::vector<Run> out(N);
  CHECK(cudaMemcpy(out.data(), runs, N * sizeof(Run), cudaMemcpyDeviceToHost));
  print(name, out);
}

template <class K> static void graph(const char *name, K kernel, int nodes, int most, unsigned long long ns, cudaStream_t s) {
  Run *runs;
  int *launches;
  size_t n = nodes * (size_t)most;
  CHECK(cudaMalloc(&runs, n * sizeof(Run)));
  CHECK(cudaMalloc(&launches, nodes * sizeof(int)));
  CHECK(cudaMemset(launches, 0, nodes * sizeof(int)));
  cudaGraph_t g;
  cudaGraphExec_t x;
  CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < nodes; i++) kernel<<<1, 1, 0, s>>>(runs, launches, i, most, ns);
  CHECK(cudaStreamEndCapture(s, &g));
  CHECK(cudaGraphInstantiate(&x, g, 0));
  CHECK(cudaDeviceSynchronize());
  // One by one, then queued.
  for (int k = 0; k < most / 2; k++) {
    CHECK(cudaGraphLaunch(x, s));
    CHECK(cudaStreamSynchronize(s));
  }
  for (int k = 0; k < most / 2; k++) CHECK(cudaGraphLaunch(x, s));
  CHECK(cudaStreamSynchronize(s));
  std::vector<Run> out(n);
  CHECK(cudaMemcpy(out.data(), runs, n * sizeof(Run), cudaMemcpyDeviceToHost));
  print(name, out);
  CHECK(cudaGraphExecDestroy(x));
}

// What a launch costs, in blocks of 500 with and without recording in turns: nanoseconds of each block's median launch.
static int launches(int blocks, cudaStream_t s) {
  auto say = (void (*)(int))dlsym(RTLD_DEFAULT, "doorbell_agent_recording");
  for (int i = 0; i < 2000; i++) nothing<<<1, 32, 0, s>>>();
  CHECK(cudaDeviceSynchronize());
  auto clock = [] {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
  };
  for (int turn = 0; turn < blocks / 4; turn++)
    for (char which : std::string(turn % 2 ? "baab" : "abba")) {
      if (say) say(which == 'b');
      std::vector<long long> took;
      for (int i = 0; i < 500; i++) {
        long long from = clock();
        nothing<<<1, 32, 0, s>>>();
        took.push_back(clock() - from);
        if (i % 50 == 49) CHECK(cudaStreamSynchronize(s));
      }
      std::nth_element(took.begin(), took.begin() + 250, took.end());
      printf("%c %lld\n", which, took[250]);
    }
  return 0;
}

int main(int argc, char **argv) {
  cudaStream_t s, many[64];
  CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  for (auto &x : many) CHECK(cudaStreamCreateWithFlags(&x, cudaStreamNonBlocking));
  std::string what = argc > 2 ? argv[1] : "";
  if (what == "cost") return launches(atoi(argv[2]), s);
  if (what == "threads") { // so many launches by each of so many threads
    std::vector<std::thread> all;
    for (int t = 0; t < atoi(argv[3]); t++)
      all.emplace_back([&, t] {
        for (long i = 0; i < atol(argv[2]); i++) nothing<<<1, 32, 0, many[t]>>>();
        CHECK(cudaStreamSynchronize(many[t]));
      });
    for (auto &t : all) t.join();
    return 0;
  }
  Run *warm;
  CHECK(cudaMalloc(&warm, sizeof(Run)));
  if (what == "many") { // so many launches on so many streams in turns, and nothing else; on several streams as `streams4` below
    for (long i = 0, n = atol(argv[2]), streams = atol(argv[3]); i < n; i++)
      if (streams == 1) nothing<<<1, 32, 0, s>>>();
      else {
        streams64<<<1, 32, 0, many[i % streams]>>>(warm, 0, lasts(i / streams));
        if (i % 100 == 99) CHECK(cudaDeviceSynchronize());
      }
    CHECK(cudaDeviceSynchronize());
    return 0;
  }
  // Each kernel is loaded, and named, by its first launch.
  for (auto k : {idle, busy, wide, copied, streams4, streams64, cooperative, clusters, programmatic}) k<<<1, 1, 0, s>>>(warm, 0, 100);
  CHECK(cudaDeviceSynchronize());
  single("idle", [&](Run *r) {
    for (int i = 0; i < N; i++) { idle<<<1, 32, 0, s>>>(r, i, lasts(i)); CHECK(cudaStreamSynchronize(s)); }
  });
  auto rows = [&](Run *r, void (*k)(Run *, int, unsigned long long), int blocks, int threads, cudaStream_t *of, int streams) {
    for (int i = 0; i < N; i++) {
      k<<<blocks, threads, 0, of[i % streams]>>>(r, i, lasts(i / streams));
      if (i % 100 == 99) CHECK(cudaDeviceSynchronize());
    }
  };
  single("busy", [&](Run *r) { rows(r, busy, 1, 32, &s, 1); });
  single("wide", [&](Run *r) { rows(r, wide, 400, 128, &s, 1); });
  char *host, *device;
  CHECK(cudaMallocHost(&host, 1 << 20));
  CHECK(cudaMalloc(&device, 1 << 20));
  single("copied", [&](Run *r) {
    for (int i = 0; i < N; i++) {
      CHECK(cudaMemcpyAsync(device, host, 1 << 20, cudaMemcpyHostToDevice, s));
      copied<<<1, 32, 0, s>>>(r, i, lasts(i));
      CHECK(cudaStreamSynchronize(s));
    }
  });
  single("streams4", [&](Run *r) { rows(r, streams4, 1, 32, many, 4); });
  single("streams64", [&](Run *r) { rows(r, streams64, 1, 32, many, 64); });
  auto with = [&](Run *r, cudaLaunchAttribute attribute, void (*k)(Run *, int, unsigned long long), int blocks) {
    cudaLaunchConfig_t how = {};
    how.gridDim = dim3(blocks), how.blockDim = dim3(32), how.stream = s, how.attrs = &attribute, how.numAttrs = 1;
    for (int i = 0; i < N; i++) {
      CHECK(cudaLaunchKernelEx(&how, k, r, i, lasts(i)));
      if (i % 100 == 99) CHECK(cudaDeviceSynchronize());
    }
  };
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeCooperative, attribute.val.cooperative = 1;
  single("cooperative", [&](Run *r) { with(r, attribute, cooperative, 4); });
  attribute.id = cudaLaunchAttributeClusterDimension, attribute.val.clusterDim = {2, 1, 1};
  single("clusters", [&](Run *r) { with(r, attribute, clusters, 4); });
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization, attribute.val.programmaticStreamSerializationAllowed = 1;
  single("programmatic", [&](Run *r) { with(r, attribute, programmatic, 1); });
  graph("graph1", graph1, 1, 400, 5000, s);
  graph("graph10", graph10, 10, 400, 3000, s);
  graph("graph100", graph100, 100, 200, 2000, s);
  graph("graph2000", graph2000, 2000, 20, 1000, s);
}
