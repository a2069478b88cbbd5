// CUDA graphs of many kinds. seen.py builds it, records it, and compares what the recording says with what the kernels have counted.
//
//     graphs MODE      one of the modes at the end of this file; without one it prints their names
//
// Prints one line of JSON for each kernel: how often it ran, from a counter in GPU memory, and whether graphs ran it.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define OK(...)                                                                                     \
    do {                                                                                            \
        cudaError_t code = (__VA_ARGS__);                                                           \
        if (code) printf("{\"failed\":\"%s\",\"with\":\"%s\"}\n", #__VA_ARGS__, cudaGetErrorName(code)), exit(3); \
    } while (0)

// Each kernel has a counter, and takes a few microseconds.
enum { FIRST, SECOND, THIRD, BODY, OUTER, LAST, OWN, COUNTERS };
static const char *const NAMES[] = {"first", "second", "third", "body", "outer", "last", "own"};
__device__ void ran(unsigned *counters, int which) {
    for (long long until = clock64() + 3000; clock64() < until;) {}
    if (!threadIdx.x && !blockIdx.x) atomicAdd(counters + which, 1);
}
__global__ void first(unsigned *counters) { ran(counters, FIRST); }
__global__ void second(unsigned *counters) { ran(counters, SECOND); }
__global__ void third(unsigned *counters, unsigned) { ran(counters, THIRD); }
__global__ void own(unsigned *counters) { ran(counters, OWN); }
__global__ void last(unsigned *counters) { ran(counters, LAST); }
// Runs the conditional node `times` times, or one of its branches.
__global__ void outer(unsigned *counters, cudaGraphConditionalHandle handle, unsigned value) {
    ran(counters, OUTER);
    cudaGraphSetConditional(handle, value > 1 ? counters[OUTER] % value : value);
}
__global__ void body(unsigned *counters, cudaGraphConditionalHandle handle, unsigned times) {
    ran(counters, BODY);
    if (times) cudaGraphSetConditional(handle, counters[BODY] % times != 0);
}

static unsigned *counters;
static char *device, *host;
static cudaStream_t stream;
constexpr size_t BYTES = 256 << 10;

static cudaGraphNode_t kernel_node(cudaGraph_t graph, std::vector<cudaGraphNode_t> after, void *function, std::vector<void *> arguments) {
    cudaGraphNode_t node;
    cudaKernelNodeParams params = {};
    params.func = function, params.gridDim = dim3(2), params.blockDim = dim3(32), params.kernelParams = arguments.data();
    OK(cudaGraphAddKernelNode(&node, graph, after.data(), after.size(), &params));
    return node;
}

static cudaGraph_t empty() {
    cudaGraph_t graph;
    OK(cudaGraphCreate(&graph, 0));
    return graph;
}

static cudaGraphExec_t instance(cudaGraph_t graph, unsigned flags = 0) {
    cudaGraphExec_t made;
    OK(cudaGraphInstantiate(&made, graph, flags));
    return made;
}

static void launch(cudaGraphExec_t graph, int times) {
    for (int n = 0; n < times; n++) OK(cudaGraphLaunch(graph, stream));
    OK(cudaStreamSynchronize(stream));
}

// A chain of `count` kernels, the first two kinds in turn.
static cudaGraph_t chain(int count) {
    cudaGraph_t graph = empty();
    std::vector<cudaGraphNode_t> before;
    for (int n = 0; n < count; n++) before = {kernel_node(graph, before, n % 2 ? (void *)second : (void *)first, {&counters})};
    return graph;
}

static void once() { launch(instance(chain(10)), 1); }
static void many() { launch(instance(chain(10)), 50); }

static void CUDART_CB nothing(void *) {}

static void nodes() {
    cudaGraph_t graph = empty();
    cudaGraphNode_t copied, cleared, called, recorded, waited, nothing_node;
    cudaEvent_t event;
    OK(cudaEventCreate(&event));
    cudaGraphNode_t a = kernel_node(graph, {}, (void *)first, {&counters});
    OK(cudaGraphAddMemcpyNode1D(&copied, graph, &a, 1, device, host, BYTES, cudaMemcpyHostToDevice));
    cudaMemsetParams set = {};
    set.dst = device + BYTES, set.value = 7, set.elementSize = 1, set.width = BYTES, set.height = 1;
    OK(cudaGraphAddMemsetNode(&cleared, graph, &a, 1, &set));
    cudaHostNodeParams call = {nothing, nullptr};
    OK(cudaGraphAddHostNode(&called, graph, &copied, 1, &call));
    OK(cudaGraphAddEventRecordNode(&recorded, graph, &cleared, 1, event));
    OK(cudaGraphAddEventWaitNode(&waited, graph, &recorded, 1, event));
    cudaGraphNode_t both[] = {called, waited};
    OK(cudaGraphAddEmptyNode(&nothing_node, graph, both, 2));
    kernel_node(graph, {nothing_node}, (void *)last, {&counters});
    launch(instance(graph), 20);
}

static void child() {
    cudaGraph_t graph = empty(), inner = chain(4);
    cudaGraphNode_t one, two;
    OK(cudaGraphAddChildGraphNode(&one, graph, nullptr, 0, inner));
    cudaGraphNode_t between = kernel_node(graph, {one}, (void *)last, {&counters});
    OK(cudaGraphAddChildGraphNode(&two, graph, &between, 1, inner));
    launch(instance(graph), 20);
}

// A kernel that sets the condition, a conditional node whose graphs have one or two kernels, a kernel after it.
static void conditional(cudaGraphConditionalNodeType type, unsigned branches, unsigned value, unsigned times, int launches) {
    cudaGraph_t graph = empty();
    cudaGraphConditionalHandle handle;
    cudaGraphNode_t node;
    OK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
    cudaGraphNode_t before = kernel_node(graph, {}, (void *)outer, {&counters, &handle, &value});
    cudaGraphNodeParams params = {cudaGraphNodeTypeConditional};
    params.conditional.handle = handle, params.conditional.type = type, params.conditional.size = branches;
#if CUDART_VERSION >= 13000
    OK(cudaGraphAddNode(&node, graph, &before, nullptr, 1, &params));
#else
    OK(cudaGraphAddNode(&node, graph, &before, 1, &params));
#endif
    for (unsigned n = 0; n < branches; n++) {
        cudaGraphNode_t inside = kernel_node(params.conditional.phGraph_out[n], {}, (void *)body, {&counters, &handle, &times});
        if (n) kernel_node(params.conditional.phGraph_out[n], {inside}, n == 1 ? (void *)first : (void *)second, {&counters});
    }
    kernel_node(graph, {node}, (void *)last, {&counters});
    launch(instance(graph), launches);
}

static void if_node() { conditional(cudaGraphCondTypeIf, 1, 2, 0, 40); }
static void while_node() { conditional(cudaGraphCondTypeWhile, 1, 1, 50, 4); }
static void switch_node() { conditional(cudaGraphCondTypeSwitch, 3, 3, 0, 30); }

static void update() {
    cudaGraphExec_t made = nullptr;
    for (unsigned n = 0; n < 2000; n++) {
        cudaGraph_t graph = empty();
        cudaGraphNode_t a = kernel_node(graph, {}, (void *)first, {&counters});
        kernel_node(graph, {a}, n % 2 ? (void *)third : (void *)second, {&counters, &n});
        cudaGraphExecUpdateResultInfo result;
        if (!made || cudaGraphExecUpdate(made, graph, &result)) {
            cudaGetLastError();
            if (made) OK(cudaGraphExecDestroy(made));
            made = instance(graph);
        }
        OK(cudaGraphDestroy(graph));
        OK(cudaGraphLaunch(made, stream));
    }
    OK(cudaStreamSynchronize(stream));
}

static void parameters() {
    cudaGraph_t graph = empty();
    unsigned n = 0;
    cudaGraphNode_t a = kernel_node(graph, {}, (void *)first, {&counters}), b = kernel_node(graph, {a}, (void *)third, {&counters, &n});
    cudaGraphExec_t made = instance(graph);
    for (; n < 1000; n++) {
        void *arguments[] = {&counters, &n};
        cudaKernelNodeParams params = {};
        params.func = (void *)third, params.gridDim = dim3(2), params.blockDim = dim3(32), params.kernelParams = arguments;
        OK(cudaGraphExecKernelNodeSetParams(made, b, &params));
        OK(cudaGraphLaunch(made, stream));
    }
    OK(cudaStreamSynchronize(stream));
}

static void disabled() {
    cudaGraph_t graph = empty();
    cudaGraphNode_t a = kernel_node(graph, {}, (void *)first, {&counters}), b = kernel_node(graph, {a}, (void *)second, {&counters});
    kernel_node(graph, {b}, (void *)last, {&counters});
    cudaGraphExec_t made = instance(graph);
    for (int n = 0; n < 40; n++) {
        OK(cudaGraphNodeSetEnabled(made, b, n % 4 == 0));
        OK(cudaGraphLaunch(made, stream));
    }
    OK(cudaStreamSynchronize(stream));
}

static void streams() {
    constexpr int WIDE = 8, DEEP = 12;
    cudaStream_t all[WIDE];
    cudaEvent_t began, ended;
    OK(cudaEventCreateWithFlags(&began, cudaEventDisableTiming));
    for (cudaStream_t &one : all) OK(cudaStreamCreate(&one));
    cudaGraph_t graph;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(began, stream));
    for (cudaStream_t one : all) {
        OK(cudaStreamWaitEvent(one, began, 0));
        for (int n = 0; n < DEEP; n++) first<<<2, 32, 0, one>>>(counters);
        OK(cudaEventCreateWithFlags(&ended, cudaEventDisableTiming));
        OK(cudaEventRecord(ended, one));
        OK(cudaStreamWaitEvent(stream, ended, 0));
    }
    last<<<2, 32, 0, stream>>>(counters);
    OK(cudaMemcpyAsync(device, host, BYTES, cudaMemcpyHostToDevice, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    launch(instance(graph), 100);
}

static void made_again() {
    for (int n = 0; n < 200; n++) {
        cudaGraph_t graph = chain(2 + n % 5);
        cudaGraphExec_t made = instance(graph);
        launch(made, 1 + n % 3);
        OK(cudaGraphExecDestroy(made));
        OK(cudaGraphDestroy(graph));
    }
}

// Graphs in turn, and kernels outside of them.
static void mixed() {
    cudaGraphExec_t one = instance(chain(3)), two = instance(chain(6)), three = instance(chain(1));
    for (int n = 0; n < 60; n++) {
        own<<<2, 32, 0, stream>>>(counters);
        OK(cudaGraphLaunch(n % 3 == 0 ? one : n % 3 == 1 ? two : three, stream));
        if (n % 5 == 0) first<<<2, 32, 0, stream>>>(counters);
    }
    OK(cudaStreamSynchronize(stream));
}

static __device__ cudaGraphExec_t launched;
__global__ void starter(unsigned *counters) {
    ran(counters, OUTER);
    cudaGraphLaunch(launched, cudaStreamGraphFireAndForget);
}

// A kernel of a graph launches another graph, from the GPU.
static void on_device() {
    cudaGraphExec_t inner = instance(chain(3), cudaGraphInstantiateFlagDeviceLaunch);
    OK(cudaGraphUpload(inner, stream));
    OK(cudaMemcpyToSymbol(launched, &inner, sizeof inner));
    cudaGraph_t graph = empty();
    kernel_node(graph, {}, (void *)starter, {&counters});
    cudaGraphExec_t outside = instance(graph, cudaGraphInstantiateFlagDeviceLaunch);
    OK(cudaGraphUpload(outside, stream));
    for (int n = 0; n < 20; n++) launch(outside, 1);
    OK(cudaDeviceSynchronize());
}

struct Mode { const char *name; void (*run)(); unsigned launches[COUNTERS]; };
// The launches that the program makes outside of graphs.
static const Mode MODES[] = {{"once", once, {}}, {"many", many, {}}, {"nodes", nodes, {}}, {"child", child, {}}, {"if", if_node, {}},
                             {"while", while_node, {}}, {"switch", switch_node, {}}, {"update", update, {}}, {"parameters", parameters, {}},
                             {"disabled", disabled, {}}, {"streams", streams, {}}, {"again", made_again, {}}, {"mixed", mixed, {12, 0, 0, 0, 0, 0, 60}},
                             {"device", on_device, {}}};

int main(int count, char **word) {
    for (const Mode &mode : MODES) {
        if (count < 2) puts(mode.name);
        if (count < 2 || strcmp(word[1], mode.name)) continue;
        OK(cudaMalloc(&counters, COUNTERS * sizeof *counters));
        OK(cudaMemset(counters, 0, COUNTERS * sizeof *counters));
        OK(cudaMalloc(&device, 2 * BYTES));
        OK(cudaMallocHost(&host, BYTES));
        OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        mode.run();
        unsigned counted[COUNTERS];
        OK(cudaMemcpy(counted, counters, sizeof counted, cudaMemcpyDeviceToHost));
        for (int n = 0; n < COUNTERS; n++)
            if (counted[n]) printf("{\"kernel\":\"%s\",\"launches\":%u,\"in_graphs\":%u}\n", n == OUTER && mode.run == on_device ? "starter" : NAMES[n], mode.launches[n], counted[n] - mode.launches[n]);
    }
    return 0;
}
