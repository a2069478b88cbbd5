// Copies of scattered pages between pinned host memory and GPU memory, in several ways. pages.py builds and runs it.
//
//     pages alone SECONDS_PER_CELL       batches of pages while nothing else runs
//     pages order SECONDS_PER_CELL       pages between two kernels, all queued at once in one stream
//     pages beside gemm|decode SECONDS   pages at a given rate, while cuBLAS or a memory-bound chain of kernels runs in another stream
//
// Prints one line of JSON for each cell and way. A time begins before the batch's lists are made and ends when the host knows that all pages have arrived.
// `call_us` is the submitting call alone. `wrong` counts words of 8 bytes that differ from what they should be, also next to the pages.
//     nvcc -O2 -std=c++17 -arch=sm_90 -o pages pages.cu -lcublas -I.../include -L... -ldoorbell
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <doorbell.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

using std::vector;

constexpr uint32_t KIB = 1 << 10, MIB = 1 << 20, NO_PAGE = ~0u, MOST_PAGES = 100000, MOST_PLACES = 1 << 18, THREADS = 256;
constexpr uint32_t SIDE = 8192, LAYERS = 64, GEMM = 4096;
constexpr uint64_t GIB = 1ull << 30, PATTERN = 0xA5C3A5C3A5C3A5C3, SLOW_NS = 200000000, MOST_BATCHES = 200;

enum Fill { SOURCE, CLEARED, WEIGHTS };
enum Way { BATCH, LOOP, KERNEL_4, KERNEL_16, KERNEL_132, LIST, NUMBERS, NARROW, ONE, NOTHING, WAYS };
const char *const NAMES[] = {"cuMemcpyBatchAsync", "loop", "kernel 4", "kernel 16", "kernel 132", "doorbell list",
                             "doorbell numbers", "doorbell, sparing", "one pinned copy", "nothing"};

[[noreturn]] static void fail(int line, const char *call, const char *text, const char *detail) {
    fflush(stdout);
    fprintf(stderr, "%s:%d: %s: %s %s\n", __FILE__, line, call, text, detail);
    _Exit(1);
}

static void ensure(cudaError_t code, int line, const char *call) { if (code) fail(line, call, cudaGetErrorName(code), cudaGetErrorString(code)); }
static void ensure(cublasStatus_t code, int line, const char *call) { if (code) fail(line, call, cublasGetStatusString(code), ""); }
static void ensure(int32_t code, int line, const char *call) { if (code) fail(line, call, doorbell_error_text(code), doorbell_error_detail()); }
#define CHECK(...) ensure((__VA_ARGS__), __LINE__, #__VA_ARGS__)

static uint64_t now_ns() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// ---- Kernels ----

// What the source has in a word of 8 bytes, by the word's number.
__host__ __device__ static inline uint64_t mixed(uint64_t word) {
    word = (word + 1) * 0x9E3779B97F4A7C15ull;
    return word ^ word >> 32;
}

// Fills memory with the source's words, with the pattern, or with numbers of 16 bits (bf16) between 1/128 and 1/64 of either sign.
__global__ void fill(uint64_t *memory, uint64_t words, Fill with) {
    for (uint64_t at = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; at < words; at += (uint64_t)gridDim.x * blockDim.x)
        memory[at] = with == SOURCE ? mixed(at) : with == CLEARED ? PATTERN : (mixed(mixed(at)) & 0x807F807F807F807F) | 0x3C003C003C003C00;
}

// Counts the wrong words of all places: `expected` has the number of the page that a place should have, or NO_PAGE for the pattern.
__global__ void check(const uint64_t *memory, const uint32_t *expected, uint32_t places, uint32_t words, unsigned long long *wrong) {
    unsigned long long found = 0;
    for (uint32_t place = blockIdx.x; place < places; place += gridDim.x) {
        const uint64_t page = expected[place], *at = memory + (uint64_t)place * words;
        for (uint32_t word = threadIdx.x; word < words; word += blockDim.x) found += at[word] != (page == NO_PAGE ? PATTERN : mixed(page * words + word));
    }
    if (found) atomicAdd(wrong, found);
}

// Copies pages. `numbers` has `count` numbers of pages to read, then `count` numbers of pages to write. Each thread has four loads of 16 bytes in flight.
__global__ void __launch_bounds__(THREADS) gather(char *to, const char *from, const uint32_t *numbers, uint32_t count, uint32_t page) {
    uint32_t words = page / 16, all = count * words, step = gridDim.x * blockDim.x;
    for (uint32_t first = blockIdx.x * blockDim.x + threadIdx.x; first < all; first += 4 * step) {
        const uint4 *source[4];
        uint4 *place[4], word[4] = {};
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t at = first + k * step < all ? first + k * step : first, number = at / words;
            uint64_t offset = at % words * 16;
            source[k] = (const uint4 *)(from + (uint64_t)numbers[number] * page + offset);
            place[k] = (uint4 *)(to + (uint64_t)numbers[count + number] * page + offset);
        }
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) if (first + k * step < all) word[k] = *source[k];
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) if (first + k * step < all) *place[k] = word[k];
    }
}

// The kernel before the pages: after `delay_ns` it writes each `step`th word of the source's pages, with a value that differs in each batch.
__global__ void produce(uint64_t *from, const uint32_t *numbers, uint32_t count, uint32_t words, uint32_t step, uint64_t salt, uint64_t delay_ns) {
    uint64_t now = 0, until = 0;
    for (; !until || now < until; until = until ? until : now + delay_ns) asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    for (uint32_t n = blockIdx.x; n < count; n += gridDim.x)
        for (uint64_t page = (uint64_t)numbers[n] * words, at = threadIdx.x * step; at < words; at += blockDim.x * step)
            from[page + at] = mixed(page + at) + salt;
}

// The kernel after the pages: counts the wrong ones of each `step`th word of the pages. Each `salted`th word is one that `produce` has written.
__global__ void compare(const uint64_t *to, const uint32_t *numbers, uint32_t count, uint32_t words, uint32_t salted, uint64_t salt, uint32_t step,
                        unsigned long long *wrong) {
    unsigned long long found = 0;
    for (uint32_t n = blockIdx.x; n < count; n += gridDim.x) {
        const uint64_t page = numbers[n], *at = to + (uint64_t)numbers[count + n] * words;
        for (uint32_t word = threadIdx.x * step; word < words; word += blockDim.x * step)
            found += at[word] != mixed(page * words + word) + (word % salted ? 0 : salt);
    }
    if (found) atomicAdd(wrong, found);
}

__device__ static inline float low(uint32_t two) { return __uint_as_float(two << 16); }
__device__ static inline float high(uint32_t two) { return __uint_as_float(two & 0xFFFF0000); }

// y = W x: a warp for each row of 8,192 numbers of 16 bits.
__global__ void __launch_bounds__(THREADS) gemv(const uint4 *matrix, const float4 *x, float *y) {
    uint32_t row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint4 *line = matrix + (uint64_t)row * (SIDE / 8);
    float sum = 0;
#pragma unroll 8
    for (uint32_t at = lane; at < SIDE / 8; at += 32) {
        uint4 w = line[at];
        float4 a = x[2 * at], b = x[2 * at + 1];
        sum += low(w.x) * a.x + high(w.x) * a.y + low(w.y) * a.z + high(w.y) * a.w + low(w.z) * b.x + high(w.z) * b.y + low(w.w) * b.z + high(w.w) * b.w;
    }
    for (int distance = 16; distance; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    if (!lane) y[row] = sum;
}

// ---- Memory, and a batch in each way ----

template <typename... Wanted, typename... Given> static void launch(void (*kernel)(Wanted...), uint32_t blocks, cudaStream_t in, Given... given) {
    kernel<<<blocks, THREADS, 0, in>>>(given...);
    CHECK(cudaGetLastError());
}

struct Cell {
    bool to_gpu;
    uint32_t page, count;
    uint64_t bytes() const { return (uint64_t)page * count; }
    uint32_t words() const { return page / 8; }
    // Twice as many places as pages, and at least 64 MiB.
    uint32_t places() const { return std::max(2 * count, 64 * MIB / page); }
};

// The page with the number from[n] is copied to the place with the number to[n].
struct Numbers { vector<uint32_t> from, to; };
struct Times { uint64_t began = now_ns(), called = began, returned = 0, ended = 0; };

static std::mt19937 random_numbers(7);
static doorbell_t *doorbell;
static doorbell_buffer_t host_buffer, gpu_buffer;
// A session with DOORBELL_SPARE_KERNELS. Only `beside` opens it.
static struct { doorbell_t *doorbell; doorbell_buffer_t host, gpu; } narrow;
static doorbell_ticket_t ticket;
static cudaStream_t stream;
static uint64_t pool;
static char *host, *gpu;
static uint32_t *pinned_numbers, *gpu_numbers, *gpu_expected;
static unsigned long long *gpu_wrong;

static void set_up(uint64_t bytes) {
    pool = bytes;
    CHECK(doorbell_init());
    CHECK(cudaSetDeviceFlags(cudaDeviceScheduleSpin));
    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(0));
    CHECK(doorbell_create(NULL, &doorbell));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMallocHost(&host, pool));
    CHECK(cudaMalloc(&gpu, pool));
    CHECK(doorbell_buffer_register(doorbell, host, pool, &host_buffer));
    CHECK(doorbell_buffer_register(doorbell, gpu, pool, &gpu_buffer));
    CHECK(cudaMallocHost(&pinned_numbers, 2 * MOST_PAGES * sizeof(uint32_t)));
    CHECK(cudaMalloc(&gpu_numbers, 2 * MOST_PAGES * sizeof(uint32_t)));
    CHECK(cudaMalloc(&gpu_expected, MOST_PLACES * sizeof(uint32_t)));
    CHECK(cudaMalloc(&gpu_wrong, sizeof(uint64_t)));
}

static vector<uint32_t> counting(uint32_t count) {
    vector<uint32_t> numbers;
    for (uint32_t n = 0; n < count; n++) numbers.push_back(n);
    return numbers;
}

static vector<Numbers> four_numbers(const Cell &cell) {
    if (cell.places() > MOST_PLACES || (uint64_t)cell.places() * cell.page > pool) fail(__LINE__, "four_numbers", "too many places", "");
    vector<Numbers> four(4);
    vector<uint32_t> all = counting(cell.places());
    for (int n = 0; n < 8; n++) {
        std::shuffle(all.begin(), all.end(), random_numbers);
        (n % 2 ? four[n / 2].to : four[n / 2].from).assign(all.begin(), all.begin() + cell.count);
    }
    return four;
}

template <typename Call> static void submitted(const char *name, Call call) {
    int32_t code = DOORBELL_BUSY;
    for (ticket = 0; (code == DOORBELL_BUSY || code == DOORBELL_FULL) && !ticket;) code = call();
    ensure(code, __LINE__, name);
}

// Makes the lists of a batch and submits it. `order`: null, or the batch's place in the stream, for doorbell's ways.
static Times submit(Way way, const Cell &cell, const Numbers &numbers, const doorbell_order_t *order) {
    static vector<void *> to_pointers, from_pointers;
    static vector<size_t> sizes;
    static vector<doorbell_piece_t> pieces;
    static vector<uint32_t> to_index, from_index;
    const uint32_t count = cell.count, *from = numbers.from.data(), *to = numbers.to.data();
    const uint64_t page = cell.page;
    char *to_base = cell.to_gpu ? gpu : host, *from_base = cell.to_gpu ? host : gpu;
    const doorbell_part_t part = {cell.to_gpu ? gpu_buffer : host_buffer, 0, cell.to_gpu ? host_buffer : gpu_buffer, 0};
    Times times;
    if (way == BATCH) {
        to_pointers.resize(count), from_pointers.resize(count), sizes.assign(count, page);
        for (uint32_t n = 0; n < count; n++) to_pointers[n] = to_base + to[n] * page, from_pointers[n] = from_base + from[n] * page;
        cudaMemcpyAttributes attributes = {cudaMemcpySrcAccessOrderStream, {}, {}, cudaMemcpyFlagPreferOverlapWithCompute};
        size_t first = 0;
        times.called = now_ns();
        CHECK(cudaMemcpyBatchAsync(to_pointers.data(), from_pointers.data(), sizes.data(), count, &attributes, &first, 1, stream));
    } else if (way == LOOP) {
        for (uint32_t n = 0; n < count; n++) CHECK(cudaMemcpyAsync(to_base + to[n] * page, from_base + from[n] * page, page, cudaMemcpyDefault, stream));
    } else if (way == LIST) {
        pieces.resize(count);
        for (uint32_t n = 0; n < count; n++) pieces[n] = {part.to, to[n] * page, part.from, from[n] * page, page};
        times.called = now_ns();
        submitted("doorbell_copy_batch_async", [&] { return doorbell_copy_batch_async(doorbell, pieces.data(), count, sizeof pieces[0], order, &ticket); });
    } else if (way == NUMBERS || way == NARROW) {
        const doorbell_part_t narrow_part = {cell.to_gpu ? narrow.gpu : narrow.host, 0, cell.to_gpu ? narrow.host : narrow.gpu, 0};
        from_index.assign(from, from + count), to_index.assign(to, to + count);
        const doorbell_pages_t pages = {sizeof pages, page, 0, 0, to_index.data(), from_index.data(), count, sizeof(uint32_t), 0};
        times.called = now_ns();
        submitted("doorbell_pages_async", [&] { return way == NUMBERS ? doorbell_pages_async(doorbell, &part, 1, sizeof part, &pages, order, &ticket)
                                                                   : doorbell_pages_async(narrow.doorbell, &narrow_part, 1, sizeof part, &pages, order, &ticket); });
    } else if (way == ONE) {
        CHECK(cudaMemcpyAsync(to_base, from_base, cell.bytes(), cudaMemcpyDefault, stream));
    } else {
        std::copy_n(to, count, std::copy_n(from, count, pinned_numbers));
        times.called = now_ns();
        CHECK(cudaMemcpyAsync(gpu_numbers, pinned_numbers, 2 * count * sizeof(uint32_t), cudaMemcpyHostToDevice, stream));
        launch(gather, way == KERNEL_4 ? 4 : way == KERNEL_16 ? 16 : 132, stream, to_base, from_base, gpu_numbers, count, cell.page);
    }
    times.returned = now_ns();
    return times;
}

// Submits a batch and waits until all of it has arrived.
static Times copy(Way way, const Cell &cell, const Numbers &numbers) {
    Times times = submit(way, cell, numbers, NULL);
    if (way == LIST || way == NUMBERS || way == NARROW) CHECK(doorbell_wait(way == NARROW ? narrow.doorbell : doorbell, ticket, DOORBELL_FOREVER));
    else CHECK(cudaStreamSynchronize(stream));
    times.ended = now_ns();
    return times;
}

static uint64_t take_wrong() {
    unsigned long long found = 0;
    CHECK(cudaMemcpyAsync(&found, gpu_wrong, sizeof found, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaMemsetAsync(gpu_wrong, 0, sizeof *gpu_wrong, stream));
    CHECK(cudaStreamSynchronize(stream));
    return found;
}

// Copies a batch that is not timed, and checks every byte of all places afterwards. Returns the number of wrong words.
static uint64_t checked_copy(Way way, const Cell &cell, const Numbers &numbers) {
    uint64_t *to = (uint64_t *)(cell.to_gpu ? gpu : host);
    vector<uint32_t> expected(cell.places(), NO_PAGE);
    for (uint32_t n = 0; n < cell.count; n++) expected[numbers.to[n]] = numbers.from[n];
    launch(fill, 1056, stream, to, (uint64_t)cell.places() * cell.words(), CLEARED);
    CHECK(cudaMemcpyAsync(gpu_expected, expected.data(), expected.size() * sizeof(uint32_t), cudaMemcpyHostToDevice, stream));
    take_wrong();
    copy(way, cell, numbers);
    launch(check, 1056, stream, to, gpu_expected, cell.places(), cell.words(), gpu_wrong);
    return take_wrong();
}

struct Samples {
    vector<uint64_t> times, calls;
    uint64_t wrong = 0;
    void add(const Times &one) { times.push_back(one.ended - one.began), calls.push_back(one.returned - one.called); }
};

// The smallest sample that at least so many percent of the samples do not exceed, divided by `by`.
template <typename T> static double percentile(vector<T> samples, size_t percent, double by) {
    std::sort(samples.begin(), samples.end());
    return samples.empty() ? 0 : samples[(samples.size() * percent + 99) / 100 - 1] / by;
}

// `gb_s`: the rate, or 0 for that of the median. `before` and `after`: further fields.
static void print_row(const Cell &cell, Way way, const Samples &samples, double gb_s, const std::string &before, const std::string &after) {
    double p50 = percentile(samples.times, 50, 1e3);
    printf("{%s\"direction\":\"%s\",\"page_bytes\":%u,\"pages\":%u,\"way\":\"%s\",\"batches\":%zu,\"p50_us\":%.2f,\"p99_us\":%.2f,\"max_us\":%.2f,"
           "\"gb_s\":%.3f,\"call_us\":%.2f,\"wrong\":%llu%s}\n",
           before.c_str(), cell.to_gpu ? "to the GPU" : "to the host", cell.page, cell.count, NAMES[way], samples.times.size(), p50,
           percentile(samples.times, 99, 1e3), percentile(samples.times, 100, 1e3), gb_s > 0 ? gb_s : p50 > 0 ? cell.bytes() / p50 / 1e3 : 0,
           percentile(samples.calls, 50, 1e3), (unsigned long long)samples.wrong, after.c_str());
}

// Runs the ways in turn, batch by batch, in random order. `one` runs a batch of a way, with the batch's number.
template <typename One> static void in_turns(const vector<Way> &ways, double seconds, const Samples *samples, One one) {
    const uint64_t until = now_ns() + (uint64_t)(seconds * 1e9);
    for (;;) {
        bool over = now_ns() > until;
        vector<Way> turn;
        for (Way way : ways) {
            const vector<uint64_t> &times = samples[way].times;
            size_t least = !times.empty() && times.back() > SLOW_NS ? 4 : 12;
            if (times.size() < (over ? least : MOST_BATCHES)) turn.push_back(way);
        }
        if (turn.empty()) return;
        std::shuffle(turn.begin(), turn.end(), random_numbers);
        for (Way way : turn) one(way, samples[way].times.size());
    }
}

// ---- The modes ----

static void alone(double seconds) {
    set_up(8 * GIB);
    for (bool to_gpu : {true, false}) {
        launch(fill, 1056, stream, (uint64_t *)(to_gpu ? host : gpu), pool / 8, SOURCE);
        for (uint32_t page : {512u, 4 * KIB, 16 * KIB, 24 * KIB, 32 * KIB, 64 * KIB, 256 * KIB, MIB})
            for (uint32_t count : {1u, 16u, 64u, 256u, 1000u, 10000u, 100000u}) {
                const Cell cell{to_gpu, page, count};
                if (cell.bytes() > 4 * GIB) continue;
                vector<Way> ways = {BATCH, LOOP, KERNEL_4, KERNEL_16, KERNEL_132, LIST, NUMBERS};
                if (count > 10000) ways.erase(ways.begin() + 1);
                const vector<Numbers> four = four_numbers(cell);
                Samples samples[WAYS];
                for (Way way : ways) samples[way].wrong = checked_copy(way, cell, four[way % 4]);
                in_turns(ways, seconds, samples, [&](Way way, size_t batch) { samples[way].add(copy(way, cell, four[batch % 4])); });
                for (Way way : ways) print_row(cell, way, samples[way], 0, "", "");
            }
    }
}

static void order_of(const Cell &cell, uint32_t delay_us, double seconds) {
    const vector<Way> ways = {BATCH, LOOP, LIST, NUMBERS};
    const vector<Numbers> four = four_numbers(cell);
    uint64_t *from = (uint64_t *)(cell.to_gpu ? host : gpu), *to = (uint64_t *)(cell.to_gpu ? gpu : host);
    // Over PCIe, the kernels write one word of each page, and read 8 or 48.
    const uint32_t count = cell.count, words = cell.words(), blocks = std::min(count, 528u), salted = cell.to_gpu ? words : 1, step = cell.to_gpu ? 1 : 64;
    // (Earlier cells have written to other words.)
    launch(fill, 1056, stream, from, (uint64_t)cell.places() * words, SOURCE);
    for (uint32_t n = 0; n < 8; n++) {
        const vector<uint32_t> &numbers = n % 2 ? four[n / 2].to : four[n / 2].from;
        CHECK(cudaMemcpyAsync(gpu_numbers + n * count, numbers.data(), count * sizeof(uint32_t), cudaMemcpyHostToDevice, stream));
    }
    Samples samples[WAYS];
    auto one = [&](Way way, size_t batch) {
        const uint32_t *numbers = gpu_numbers + 2 * (batch % 4) * count;
        const uint64_t salt = (uint64_t)random_numbers() << 32 | random_numbers() | 1;
        doorbell_order_t place = doorbell_after_stream(stream);
        place.flags |= DOORBELL_ORDER_STREAM_WAITS;
        // Wrong words at first.
        launch(produce, blocks, stream, to, numbers + count, count, words, 1, 1, 0);
        take_wrong();
        const uint64_t began = now_ns();
        launch(produce, blocks, stream, from, numbers, count, words, salted, salt, delay_us * 1000ull);
        Times times = submit(way, cell, four[batch % 4], &place);
        launch(compare, blocks, stream, to, numbers, count, words, salted, salt, step, gpu_wrong);
        CHECK(cudaStreamSynchronize(stream));
        times.began = began, times.ended = now_ns();
        if (step > 1) launch(compare, blocks, stream, to, numbers, count, words, salted, salt, 1, gpu_wrong);
        samples[way].wrong += take_wrong();
        samples[way].add(times);
    };
    // (The first times are not counted.)
    for (Way way : ways) one(way, way), samples[way].times.clear(), samples[way].calls.clear();
    in_turns(ways, seconds, samples, one);
    for (Way way : ways) print_row(cell, way, samples[way], 0, "\"kernel_us\":" + std::to_string(delay_us) + ",", "");
}

static void order(double seconds) {
    set_up(256 * MIB);
    for (bool to_gpu : {true, false})
        for (uint32_t page : {4 * KIB, 24 * KIB})
            for (uint32_t count : {1u, 8u, 16u, 64u, 1000u})
                for (uint32_t delay_us : {0u, 300u}) order_of(Cell{to_gpu, page, count}, delay_us, seconds);
}

// Which of the windows runs, or -1. How many units the neighbour has run. Whether it ends.
static std::atomic<int> current_window{-1}, ready{0}, over{0};
// The times of each window's units, in microseconds: of one GEMM (the mean of ten), or of one chain.
static vector<vector<double>> unit_times;

static void neighbour(bool gemm) {
    constexpr int AHEAD = 3, RING = 8;
    const uint64_t numbers = gemm ? 3ull * GEMM * GEMM : (uint64_t)LAYERS * SIDE * SIDE, one = 2ull * GEMM * GEMM;
    const float alpha = 1, beta = 0;
    const vector<float> ones(SIDE, 1);
    char *memory;
    float *x;
    cudaStream_t own;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t chain = NULL;
    cublasHandle_t cublas = NULL;
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&memory, 2 * numbers));
    launch(fill, 1056, own, (uint64_t *)memory, numbers / 4, WEIGHTS);
    CHECK(cudaMalloc(&x, (LAYERS + 1) * SIDE * sizeof(float)));
    CHECK(cudaMemcpyAsync(x, ones.data(), SIDE * sizeof(float), cudaMemcpyHostToDevice, own));
    if (gemm) CHECK(cublasCreate(&cublas));
    if (gemm) CHECK(cublasSetStream(cublas, own));
    // (The first time loads the kernel.)
    for (int captured = 0; captured < 2 && !gemm; captured++) {
        if (captured) CHECK(cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal));
        for (uint64_t n = 0; n < LAYERS; n++)
            launch(gemv, SIDE / (THREADS / 32), own, (const uint4 *)(memory + 2 * n * SIDE * SIDE), (const float4 *)(x + n * SIDE), x + (n + 1) * SIDE);
        if (captured) CHECK(cudaStreamEndCapture(own, &graph));
    }
    if (!gemm) CHECK(cudaGraphInstantiate(&chain, graph, 0));
    cudaEvent_t events[RING];
    for (cudaEvent_t &event : events) CHECK(cudaEventCreate(&event));
    int queued_in[RING] = {};
    CHECK(cudaEventRecord(events[0], own));
    for (int n = 0; !over; n++) {
        queued_in[(n + 1) % RING] = current_window;
        for (int k = 0; k < 10 && gemm; k++)
            CHECK(cublasGemmEx(cublas, CUBLAS_OP_N, CUBLAS_OP_N, GEMM, GEMM, GEMM, &alpha, memory, CUDA_R_16BF, GEMM, memory + one, CUDA_R_16BF, GEMM,
                               &beta, memory + 2 * one, CUDA_R_16BF, GEMM, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
        if (!gemm) CHECK(cudaGraphLaunch(chain, own));
        CHECK(cudaEventRecord(events[(n + 1) % RING], own));
        if (n < AHEAD) continue;
        const int done = n - AHEAD;
        float ms = 0;
        CHECK(cudaEventSynchronize(events[(done + 1) % RING]));
        CHECK(cudaEventElapsedTime(&ms, events[done % RING], events[(done + 1) % RING]));
        const int now = current_window;
        if (now >= 0 && now == queued_in[(done + 1) % RING]) unit_times[now].push_back(ms * 1e3 / (gemm ? 10 : 1));
        ready = n;
    }
    CHECK(cudaStreamSynchronize(own));
}

// Copies batches for so many seconds. `gb_s`: at most this rate, or 0 for no limit. Returns the rate.
static double run_window(Way way, const Cell &cell, const vector<Numbers> &numbers, double seconds, double gb_s, Samples &samples) {
    const double each = gb_s > 0 ? cell.bytes() / gb_s : 0, until = seconds * 1e9;
    const uint64_t began = now_ns();
    uint64_t batches = 0;
    if (way == NOTHING) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    for (; way != NOTHING && now_ns() - began < until; batches++) {
        while (now_ns() - began < batches * each) {}
        samples.add(copy(way, cell, numbers[batches % numbers.size()]));
    }
    return batches * cell.bytes() / std::max((double)(now_ns() - began), batches * each);
}

static void beside(bool gemm, double seconds) {
    struct Row { Way way; int round; Samples samples; double gb_s, asked; };
    set_up(GIB);
    const int rounds = 12;
    const Cell cell{true, 16 * KIB, 4000};
    vector<Way> ways = {BATCH, KERNEL_4, KERNEL_16, KERNEL_132, NUMBERS, NARROW, ONE, NOTHING};
    doorbell_options_t options = {};
    options.size = sizeof options, options.flags = DOORBELL_SPARE_KERNELS;
    CHECK(doorbell_create(&options, &narrow.doorbell));
    CHECK(doorbell_buffer_register(narrow.doorbell, host, pool, &narrow.host));
    CHECK(doorbell_buffer_register(narrow.doorbell, gpu, pool, &narrow.gpu));
    const vector<Numbers> scattered = four_numbers(cell), in_a_row = {{counting(cell.count), counting(cell.count)}};
    auto numbers = [&](Way way) -> const vector<Numbers> & { return way == ONE ? in_a_row : scattered; };
    auto wrong = [&](Way way) { return way == NOTHING ? 0 : checked_copy(way, cell, numbers(way)[0]); };
    launch(fill, 1056, stream, (uint64_t *)host, pool / 8, SOURCE);
    // (The first time loads the kernels.)
    for (Way way : ways) wrong(way);
    unit_times.resize(2 * rounds * ways.size());
    std::thread thread(neighbour, gemm);
    while (ready < 50) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Samples ignored;
    // What CUDA's batches reach, and a rate that they do not.
    const double slow = std::min(20.0, run_window(BATCH, cell, scattered, 0.4, 0, ignored)), fast = 30;
    vector<Row> rows;
    for (int round = 0; round < 2 * rounds; round++) {
        std::shuffle(ways.begin(), ways.end(), random_numbers);
        const double asked = round % 2 ? fast : slow;
        for (Way way : ways) {
            if (asked == fast && way == BATCH) continue;
            Row row{way, round, {}, 0, asked};
            run_window(way, cell, numbers(way), 0.05, asked, ignored);
            current_window = (int)rows.size();
            row.gb_s = run_window(way, cell, numbers(way), seconds, asked, row.samples);
            current_window = -1;
            row.samples.wrong = wrong(way);
            rows.push_back(row);
        }
    }
    over = 1;
    thread.join();
    for (size_t n = 0; n < rows.size(); n++) {
        const vector<double> &times = unit_times[n];
        const std::string before = std::string("\"beside\":\"") + (gemm ? "gemm" : "decode") + "\",\"round\":" + std::to_string(rows[n].round) + ",";
        char after[200];
        snprintf(after, sizeof after, ",\"asked_gb_s\":%.3f,\"units\":%zu,\"unit_p50_us\":%.2f,\"unit_p99_us\":%.2f", rows[n].asked,
                 times.size(), percentile(times, 50, 1), percentile(times, 99, 1));
        print_row(cell, rows[n].way, rows[n].samples, rows[n].gb_s, before, after);
    }
}

int main(int count, char **word) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const std::string mode = count > 1 ? word[1] : "", what = count == 4 ? word[2] : "";
    const double seconds = count > 2 ? atof(word[count - 1]) : 0;
    if (count == 3 && mode == "alone" && seconds > 0) alone(seconds);
    else if (count == 3 && mode == "order" && seconds > 0) order(seconds);
    else if (mode == "beside" && (what == "gemm" || what == "decode") && seconds > 0) beside(what == "gemm", seconds);
    else return fprintf(stderr, "pages alone SECONDS_PER_CELL | order SECONDS_PER_CELL | beside gemm|decode SECONDS\n"), 2;
    CHECK(doorbell_free(doorbell));
    return 0;
}
