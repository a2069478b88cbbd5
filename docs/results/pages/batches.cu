// A program that knows nothing of doorbell: batches of scattered pages by cudaMemcpyBatchAsync (CUDA 13), with CUDA's runtime linked statically.
//
//     batches SECONDS_PER_CELL
//
// Prints one line of JSON for each cell. A time is from the call to the stream's end; `wrong` counts pages.
//     nvcc -O2 -std=c++17 -arch=sm_90 -o batches batches.cu
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

static void check(cudaError_t code, int line) {
    if (code) fprintf(stderr, "batches.cu:%d: %s\n", line, cudaGetErrorString(code)), _Exit(1);
}
#define CHECK(call) check(call, __LINE__)

static double now_us() { return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int main(int count, char **word) {
    constexpr size_t MOST = 10000, LARGEST = 16384, PLACES = 2 * MOST;
    const double seconds = count > 1 ? atof(word[1]) : 0;
    std::mt19937_64 random_numbers(11);
    cudaStream_t stream;
    char *host, *back, *gpu;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMallocHost(&host, PLACES * LARGEST));
    CHECK(cudaMalloc(&gpu, PLACES * LARGEST));
    back = (char *)malloc(PLACES * LARGEST);
    for (size_t at = 0; at < PLACES * LARGEST; at += 8) *(uint64_t *)(host + at) = at * 0x9E3779B97F4A7C15;
    CHECK(cudaMemcpy(gpu, host, PLACES * LARGEST, cudaMemcpyHostToDevice));
    for (bool to_gpu : {true, false})
        for (size_t page : {size_t(4096), LARGEST})
            for (size_t pages : {2, 4, 8, 12, 16, 24, 32, 64, 256, 1000, 10000}) {
                std::vector<uint32_t> from(PLACES), to;
                for (size_t n = 0; n < PLACES; n++) from[n] = n;
                to = from;
                std::vector<void *> sources(pages), places(pages);
                const std::vector<size_t> sizes(pages, page);
                std::vector<double> times, calls;
                size_t wrong = 0, first = 0;
                cudaMemcpyAttributes attributes = {cudaMemcpySrcAccessOrderStream, {}, {}, cudaMemcpyFlagPreferOverlapWithCompute};
                char *source = to_gpu ? host : gpu, *place = to_gpu ? gpu : host;
                for (double until = now_us() + seconds * 1e6; now_us() < until || times.size() < 5;) {
                    for (size_t n = 0; n < pages; n++) {
                        std::swap(from[n], from[n + random_numbers() % (PLACES - n)]), std::swap(to[n], to[n + random_numbers() % (PLACES - n)]);
                        sources[n] = source + from[n] * page, places[n] = place + to[n] * page;
                    }
                    double began = now_us();
                    CHECK(cudaMemcpyBatchAsync(places.data(), sources.data(), sizes.data(), pages, &attributes, &first, 1, stream));
                    double returned = now_us();
                    CHECK(cudaStreamSynchronize(stream));
                    times.push_back(now_us() - began), calls.push_back(returned - began);
                    if (times.size() > 1 && now_us() < until) continue;
                    // The first batch and the last: each byte of the pages.
                    CHECK(cudaMemcpy(back, gpu, PLACES * page, cudaMemcpyDeviceToHost));
                    const char *sent = to_gpu ? host : back, *got = to_gpu ? back : host;
                    for (size_t n = 0; n < pages; n++) wrong += memcmp(got + to[n] * page, sent + from[n] * page, page) != 0;
                }
                auto percentile = [](std::vector<double> &of, size_t percent) {
                    std::sort(of.begin(), of.end());
                    return of[(of.size() * percent + 99) / 100 - 1];
                };
                printf("{\"direction\":\"%s\",\"page_bytes\":%zu,\"pages\":%zu,\"batches\":%zu,\"p50_us\":%.2f,\"p99_us\":%.2f,\"call_us\":%.2f,\"wrong\":%zu}\n",
                       to_gpu ? "to the GPU" : "to the host", page, pages, times.size(), percentile(times, 50), percentile(times, 99),
                       percentile(calls, 50), wrong);
            }
    return 0;
}
