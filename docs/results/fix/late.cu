// Kernels that come in one after the other: a launch each 500 us, and every 50 ms a kernel that was not launched before. Built by nvcc with its
// default, CUDA loads each at its first launch. A line of JSON for each kernel, and one for the start of the process up to the loop.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <utility>
#include <vector>

constexpr int KERNELS = 20, TURNS = 100;

static double us() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void ok(cudaError_t r) {
    if (r != cudaSuccess) fprintf(stderr, "%s\n", cudaGetErrorString(r)), exit(1);
}

template <int N> __global__ void late(float *p) {
    float x = p[threadIdx.x];
#pragma unroll
    for (int i = 0; i < 32; i++) x = sinf(x) * N + sqrtf(fabsf(x) + i);
    p[threadIdx.x] = x;
}

using Kernel = void (*)(float *);
template <int... N> static std::vector<Kernel> all(std::integer_sequence<int, N...>) { return {late<N>...}; }

int main() {
    std::vector<Kernel> kernels = all(std::make_integer_sequence<int, KERNELS>());
    std::vector<std::vector<double>> took(KERNELS);
    double began = us();
    float *p;
    cudaStream_t stream;
    ok(cudaMalloc(&p, 4096));
    ok(cudaMemset(p, 0, 4096));
    ok(cudaStreamCreate(&stream));
    double due = us();
    printf("{\"start_us\":%.1f}\n", due - began);
    for (int turn = 0; turn < KERNELS * TURNS; turn++) {
        // The newest one first, then all that have come in, in turns.
        int newest = turn / TURNS, k = turn % TURNS ? turn % (newest + 1) : newest;
        for (due += 500; us() < due;) {}
        double at = us();
        kernels[k]<<<1, 256, 0, stream>>>(p);
        took[k].push_back(us() - at);
        ok(cudaGetLastError());
    }
    ok(cudaStreamSynchronize(stream));
    for (int k = 0; k < KERNELS; k++) {
        auto &all = took[k];
        std::sort(all.begin() + 1, all.end());
        printf("{\"kernel\":%d,\"first_us\":%.2f,\"median_us\":%.2f,\"launches\":%zu}\n", k, all[0], all[1 + (all.size() - 1) / 2], all.size());
    }
}
