/* The calls whose holds holds.c measures: what each needs, makes and ends. A step without a name is not measured. Whatever a turn leaves, `clean` ends.
 * Kinds have one object at a time, so that no turn needs more memory than one call. */
#ifndef CALLS_H
#define CALLS_H
#include "hot.h"
#include <string.h>
#include <sys/mman.h>

enum { MIB = 1 << 20, NOT_THERE = -1, SKIPPED = -2, MOST_KERNELS = 400, MOST_NODES = 2000, CAPTURED = 100, MANAGED_MOST = 4 * MIB };

typedef int (*driver_call)();

/* Bytes, kernels or nodes: see `unit` of the kind. */
static size_t size;

/* How many times the turn has made its steps. */
static int cycle;

/* Why the turn failed: a call with its result, or the reason for which it is skipped. */
static struct { const char *call; int result; } failure;

/* The last call of `clean` that failed. */
static const char *not_ended;

/* A call that starts GPU work before it waits sets this to the time after that. */
static int64_t measured_from;

static struct {
    uint64_t gpu, made, made_async, range, handle, texture, surface;
    char *page, *fresh, *text, *salt;
    void *stream, *other_stream, *event, *other_event, *pinned, *registered, *module, *function, *library, *link, *cubin, *graph, *other_graph, *exec, *pool, *array, *second, *peer, *linked;
    size_t limit[2], linked_bytes;
    int limited[2], capturing, mapped, peered;
} s;

static int failed(const char *call, int result)
{
    failure.call = call, failure.result = result;
    return 1;
}

/* A call that must succeed for the turn to go on. */
#define TRY(name, ...)                                                                            \
    do {                                                                                          \
        static driver_call try_call;                                                              \
        if (!try_call && !(try_call = (driver_call)dlsym(lib, #name))) return failed(#name, NOT_THERE); \
        int try_result = try_call(__VA_ARGS__);                                                   \
        if (try_result) return failed(#name, try_result);                                         \
    } while (0)

/* A call that ends what there is. The turns after this one go on if it fails. */
#define END(what, name, ...)                                             \
    do {                                                                 \
        driver_call end_call = (driver_call)dlsym(lib, #name);           \
        if (what && (!end_call || end_call(__VA_ARGS__))) not_ended = #name; \
        what = 0;                                                        \
    } while (0)

#define NONE ((void *)0)

/* ---- memory ---- */

static int nothing(void) { return 0; }

static int alloc(void) { TRY(cuMemAlloc_v2, &s.made, size); return 0; }
static int alloc_pitch(void) { size_t pitch; TRY(cuMemAllocPitch_v2, &s.made, &pitch, (size_t)MIB, size / MIB, 16); return 0; }
static int alloc_managed(void)
{
    /* (Much of it can hang a GPU.) */
    if (size > MANAGED_MOST) return failed("more managed memory than 4 MiB", SKIPPED);
    TRY(cuMemAllocManaged, &s.made, size, 1);
    return 0;
}
static int unalloc(void) { TRY(cuMemFree_v2, s.made); s.made = 0; return 0; }

static int alloc_async(void) { TRY(cuMemAllocAsync, &s.made_async, size, s.stream); return 0; }
static int unalloc_async(void) { TRY(cuMemFreeAsync, s.made_async, s.stream); s.made_async = 0; return 0; }

static int pin(void) { TRY(cuMemHostAlloc, &s.pinned, size, 0); return 0; }
static int unpin(void) { TRY(cuMemFreeHost, s.pinned); s.pinned = 0; return 0; }

static int map(void)
{
    s.fresh = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s.fresh == MAP_FAILED) return s.fresh = 0, failed("no memory", SKIPPED);
    return 0;
}
static int map_touched(void) { if (map()) return 1; memset(s.fresh, 1, size); return 0; }
static int unmap(void) { munmap(s.fresh, size); s.fresh = 0; return 0; }
static int pin_pages(void) { TRY(cuMemHostRegister_v2, s.fresh, size, 0); s.registered = s.fresh; return 0; }
static int unpin_pages(void) { TRY(cuMemHostUnregister, s.registered); s.registered = 0; return 0; }

struct location { uint32_t kind; int32_t id; };
struct access { struct location at; uint32_t flags; };
struct wanted { uint32_t kind, handles; struct location at; void *windows; uint8_t flags[8]; };

static int with_range(void) { TRY(cuMemAddressReserve, &s.range, size, (size_t)0, (uint64_t)0, (uint64_t)0); return 0; }
static int map_on_gpu(void)
{
    static const struct wanted on_gpu = {.kind = 1, .at = {1, 0}};
    static const struct access readable = {{1, 0}, 3};
    TRY(cuMemCreate, &s.handle, size, &on_gpu, (uint64_t)0);
    TRY(cuMemMap, s.range, size, (size_t)0, s.handle, (uint64_t)0);
    s.mapped = 1;
    TRY(cuMemSetAccess, s.range, size, &readable, (size_t)1);
    return 0;
}
static int unmap_on_gpu(void) { TRY(cuMemUnmap, s.range, size); s.mapped = 0; TRY(cuMemRelease, s.handle); s.handle = 0; return 0; }

static int with_gpu_memory(void) { TRY(cuMemAlloc_v2, &s.gpu, size); return 0; }
static int with_pages(void)
{
    if (!(s.page = malloc(size))) return failed("no memory", SKIPPED);
    memset(s.page, 1, size);
    return with_gpu_memory();
}
static int to_gpu(void) { TRY(cuMemcpyHtoD_v2, s.gpu, s.page, size); return 0; }
static int from_gpu(void) { TRY(cuMemcpyDtoH_v2, s.page, s.gpu, size); return 0; }
static int set_bytes(void) { TRY(cuMemsetD8_v2, s.gpu, cycle & 255, size); return 0; }

static int memory_left(void) { size_t left, all; TRY(cuMemGetInfo_v2, &left, &all); return 0; }
static int pointer(void)
{
    uint32_t which[] = {2, 3}, type = 0;
    uint64_t at = 0;
    void *to[] = {&type, &at};
    TRY(cuPointerGetAttributes, 2, which, to, s.gpu);
    return 0;
}
static int share(void) { char handle[64]; TRY(cuIpcGetMemHandle, handle, s.gpu); return 0; }

struct pool_wanted { uint32_t kind, handles; struct location at; void *windows; size_t most; uint16_t usage; uint8_t rest[54]; };

static int pool(void) { static const struct pool_wanted on_gpu = {.kind = 1, .at = {1, 0}}; TRY(cuMemPoolCreate, &s.pool, &on_gpu); return 0; }
static int unpool(void) { TRY(cuMemPoolDestroy, s.pool); s.pool = 0; return 0; }
static int with_pool(void)
{
    /* It keeps what is freed, until it is trimmed. */
    uint64_t all = UINT64_MAX;
    if (pool()) return 1;
    TRY(cuMemPoolSetAttribute, s.pool, 4, &all);
    return 0;
}
static int fill_pool(void)
{
    TRY(cuMemAllocFromPoolAsync, &s.made_async, size, s.pool, s.stream);
    TRY(cuMemFreeAsync, s.made_async, s.stream);
    s.made_async = 0;
    TRY(cuStreamSynchronize, s.stream);
    return 0;
}
static int trim(void) { TRY(cuMemPoolTrimTo, s.pool, (size_t)0); return 0; }

struct array_wanted { size_t width, height; uint32_t format, channels; };
struct array_3d_wanted { size_t width, height, depth; uint32_t format, channels, flags; };
struct resource { uint32_t type; void *array; char rest[120]; uint32_t flags; };
struct texture { uint32_t address[3], filter, flags, anisotropy, mipmaps; float bias, least, most, border[4]; int rest[12]; };

/* Rows of 1,024 floats. */
static int array(void) { struct array_wanted floats = {1024, size / 4096, 0x20, 1}; TRY(cuArrayCreate_v2, &s.array, &floats); return 0; }
static int unarray(void) { TRY(cuArrayDestroy, s.array); s.array = 0; return 0; }
static int with_array(void)
{
    /* (The flag: for surfaces.) */
    struct array_3d_wanted floats = {1024, 1024, 0, 0x20, 1, 2};
    TRY(cuArray3DCreate_v2, &s.array, &floats);
    return 0;
}
static int texture(void)
{
    struct resource of = {.array = s.array};
    struct texture how = {.address = {1, 1, 1}};
    TRY(cuTexObjectCreate, &s.texture, &of, &how, NONE);
    return 0;
}
static int untexture(void) { TRY(cuTexObjectDestroy, s.texture); s.texture = 0; return 0; }
static int surface(void) { struct resource of = {.array = s.array}; TRY(cuSurfObjectCreate, &s.surface, &of); return 0; }
static int unsurface(void) { TRY(cuSurfObjectDestroy, s.surface); s.surface = 0; return 0; }

/* ---- code ---- */

/* A text of so many kernels, and the place of a number that makes it a text that CUDA's cache does not have. */
static int with_text(void)
{
    size_t each = 400 + 40 * 22, at;
    if (size > MOST_KERNELS) return failed("more than 400 kernels", SKIPPED);
    if (!(s.text = malloc(size * each + 200))) return failed("no memory", SKIPPED);
    at = sprintf(s.text, ".version 8.0\n.target sm_90\n.address_size 64\n");
    for (size_t k = 0; k < size; k++) {
        at += sprintf(s.text + at, ".visible .entry k%zu(.param .u64 p){ .reg .b64 a; .reg .f32 f; ld.param.u64 a,[p]; ld.global.f32 f,[a]; add.f32 f,f,0f", k);
        if (!k) s.salt = s.text + at;
        at += sprintf(s.text + at, "3F800000; ");
        for (int j = 0; j < 40; j++) at += sprintf(s.text + at, "fma.rn.f32 f,f,f,f; ");
        at += sprintf(s.text + at, "st.global.f32 [a],f; ret; }\n");
    }
    return 0;
}

static void salt(void)
{
    static uint32_t number;
    char digits[9];
    if (!number) number = now_ns() >> 10;
    snprintf(digits, sizeof digits, "3F%06X", ++number & 0x7FFFFF);
    memcpy(s.salt, digits, 8);
}

static int load_text(void) { TRY(cuModuleLoadData, &s.module, s.text); return 0; }
static int load_new(void) { salt(); return load_text(); }
static int unload(void) { TRY(cuModuleUnload, s.module); s.module = 0; return 0; }
static int with_cached_text(void)
{
    if (with_text()) return 1;
    salt();
    return load_text() || unload();
}

static int link_new(void)
{
    salt();
    TRY(cuLinkCreate_v2, 0, NONE, NONE, &s.link);
    TRY(cuLinkAddData_v2, s.link, 1, s.text, strlen(s.text) + 1, "kernels", 0, NONE, NONE);
    TRY(cuLinkComplete, s.link, &s.linked, &s.linked_bytes);
    return 0;
}
static int unlinked(void) { TRY(cuLinkDestroy, s.link); s.link = 0; return 0; }
static int with_cubin(void)
{
    if (with_text() || link_new()) return 1;
    if (!(s.cubin = malloc(s.linked_bytes))) return failed("no memory", SKIPPED);
    memcpy(s.cubin, s.linked, s.linked_bytes);
    return unlinked();
}
static int load_cubin(void) { TRY(cuModuleLoadData, &s.module, s.cubin); return 0; }
static int with_module(void) { return with_cubin() || load_cubin(); }

static int load_library(void)
{
    TRY(cuLibraryLoadData, &s.library, s.cubin, NONE, NONE, 0, NONE, NONE, 0);
    for (size_t k = 0; k < size; k++) {
        char name[24];
        void *kernel, *function;
        snprintf(name, sizeof name, "k%zu", k);
        TRY(cuLibraryGetKernel, &kernel, s.library, name);
        TRY(cuKernelGetFunction, &function, kernel);
        TRY(cuFuncLoad, function);
    }
    return 0;
}
static int unload_library(void) { TRY(cuLibraryUnload, s.library); s.library = 0; return 0; }

static int get_function(void)
{
    char name[24];
    snprintf(name, sizeof name, "k%zu", (size_t)cycle % size);
    TRY(cuModuleGetFunction, &s.function, s.module, name);
    return 0;
}

static int with_kernel(const char *code, const char *name)
{
    TRY(cuModuleLoadData, &s.module, code);
    TRY(cuModuleGetFunction, &s.function, s.module, name);
    return 0;
}

/* The hot thread's kernel once more, and a page for it. */
static int with_adder(void)
{
    TRY(cuMemAlloc_v2, &s.gpu, (size_t)4096);
    return with_kernel(hot_code, "add1");
}

/* A kernel that runs for 2 ms. */
static int with_spin(void)
{
    static const char code[] = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry spin(){ .reg .b64 a,b; .reg .pred p; mov.u64 a,%globaltimer; "
                               "add.u64 a,a,2000000; L: mov.u64 b,%globaltimer; setp.lt.u64 p,b,a; @p bra L; ret; }";
    TRY(cuEventCreate, &s.event, 2);
    return with_kernel(code, "spin");
}
static int set_attribute(void) { TRY(cuFuncSetAttribute, s.function, 8, cycle & 1 ? 65536 : 49152); return 0; }
static int occupancy(void) { int blocks; TRY(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, s.function, 128, (size_t)0); return 0; }

/* ---- streams, events, waits ---- */

static int stream(void) { TRY(cuStreamCreate, &s.other_stream, 1); return 0; }
static int stream_with_priority(void) { TRY(cuStreamCreateWithPriority, &s.other_stream, 1, -1); return 0; }
static int unstream(void) { TRY(cuStreamDestroy_v2, s.other_stream); s.other_stream = 0; return 0; }
static int event(void) { TRY(cuEventCreate, &s.other_event, 2); return 0; }
static int unevent(void) { TRY(cuEventDestroy_v2, s.other_event); s.other_event = 0; return 0; }

static int with_done_event(void)
{
    TRY(cuEventCreate, &s.event, 2);
    TRY(cuEventRecord, s.event, s.stream);
    TRY(cuEventSynchronize, s.event);
    return 0;
}
static int query(void) { TRY(cuEventQuery, s.event); return 0; }
static int wait_event(void) { TRY(cuStreamWaitEvent, s.stream, s.event, 0); return 0; }

static int spin(void)
{
    TRY(cuLaunchKernel, s.function, 1, 1, 1, 1, 1, 1, 0, s.stream, NONE, NONE);
    TRY(cuEventRecord, s.event, s.stream);
    measured_from = now_ns();
    return 0;
}
static int sync_event(void) { if (spin()) return 1; TRY(cuEventSynchronize, s.event); return 0; }
static int sync_stream(void) { if (spin()) return 1; TRY(cuStreamSynchronize, s.stream); return 0; }
static int sync_context(void) { if (spin()) return 1; TRY(cuCtxSynchronize); return 0; }

static void on_host(void *of) { (void)of; }
static int host_function(void) { TRY(cuLaunchHostFunc, s.stream, on_host, NONE); return 0; }

/* ---- graphs ---- */

struct node { void *function; uint32_t grid[3], block[3], shared; void **arguments, **extra, *kernel, *context; };

/* A chain of `size` launches. */
static int chain(void **graph)
{
    void *arguments[] = {&s.gpu}, *node = 0, *before;
    struct node launch = {.function = s.function, .grid = {1, 1, 1}, .block = {1, 1, 1}, .arguments = arguments};
    if (size > MOST_NODES) return failed("more than 2,000 nodes", SKIPPED);
    TRY(cuGraphCreate, graph, 0);
    for (size_t k = 0; k < size; k++) {
        before = node;
        TRY(cuGraphAddKernelNode_v2, &node, *graph, k ? &before : NONE, (size_t)!!k, &launch);
    }
    return 0;
}
static int graph(void) { return chain(&s.graph); }
static int ungraph(void) { TRY(cuGraphDestroy, s.graph); s.graph = 0; return 0; }
static int with_graph(void) { return with_adder() || graph(); }
static int instantiate(void) { TRY(cuGraphInstantiateWithFlags, &s.exec, s.graph, (uint64_t)0); return 0; }
static int uninstantiate(void) { TRY(cuGraphExecDestroy, s.exec); s.exec = 0; return 0; }
static int with_exec(void) { return with_graph() || instantiate(); }
static int upload(void) { TRY(cuGraphUpload, s.exec, s.stream); return 0; }
static int launch_graph(void) { TRY(cuGraphLaunch, s.exec, s.stream); return 0; }
static int wait_for_stream(void) { TRY(cuStreamSynchronize, s.stream); return 0; }
static int with_two_graphs(void)
{
    if (with_exec()) return 1;
    /* (The other half of the page: an update that changes each node's argument.) */
    s.gpu += 2048;
    int result = chain(&s.other_graph);
    s.gpu -= 2048;
    return result;
}
static int update(void)
{
    struct { uint32_t result; void *node, *from; } found = {0};
    TRY(cuGraphExecUpdate_v2, s.exec, cycle & 1 ? s.graph : s.other_graph, &found);
    return 0;
}
static int capture(void)
{
    void *arguments[] = {&s.gpu};
    /* (Of this thread: a global capture makes calls of the others fail.) */
    TRY(cuStreamBeginCapture_v2, s.stream, 1);
    s.capturing = 1;
    for (int k = 0; k < CAPTURED; k++) TRY(cuLaunchKernel, s.function, 1, 1, 1, 1, 1, 1, 0, s.stream, arguments, NONE);
    s.capturing = 0;
    TRY(cuStreamEndCapture, s.stream, &s.graph);
    return 0;
}

/* ---- contexts, devices ---- */

static int second_context(void)
{
    void *none;
    TRY(cuCtxCreate_v2, &s.second, 0, 0);
    TRY(cuCtxPopCurrent_v2, &none);
    return 0;
}
static int no_second_context(void) { TRY(cuCtxDestroy_v2, s.second); s.second = 0; return 0; }

static int with_limit(int which) { TRY(cuCtxGetLimit, &s.limit[which], which); s.limited[which] = 1; return 0; }
static int with_stack(void) { return with_limit(0); }
static int with_printf(void) { return with_limit(1); }
static int limit_stack(void) { TRY(cuCtxSetLimit, 0, cycle & 1 ? s.limit[0] : 2 * s.limit[0]); return 0; }
static int limit_printf(void) { TRY(cuCtxSetLimit, 1, cycle & 1 ? s.limit[1] : 2 * s.limit[1]); return 0; }

static int facts(void)
{
    char uuid[16];
    int value;
    TRY(cuDeviceGetUuid_v2, uuid, 0);
    TRY(cuDeviceGetAttribute, &value, 16, 0);
    return 0;
}

static int with_peer(void)
{
    int devices, can = 0;
    TRY(cuDeviceGetCount, &devices);
    if (devices < 2) return failed("one GPU", SKIPPED);
    TRY(cuDeviceCanAccessPeer, &can, 0, 1);
    if (!can) return failed("the second GPU cannot be reached", SKIPPED);
    TRY(cuDevicePrimaryCtxRetain, &s.peer, 1);
    return 0;
}
static int peer(void) { TRY(cuCtxEnablePeerAccess, s.peer, 0); s.peered = 1; return 0; }
static int unpeer(void) { TRY(cuCtxDisablePeerAccess, s.peer); s.peered = 0; return 0; }

/* ---- all ---- */

struct step { const char *name; int (*make)(void); };

static const struct kind { const char *name; int (*before)(void); struct step steps[4]; } kinds[] = {
    {"nothing", 0, {{"nothing", nothing}}},
    {"alloc", 0, {{"cuMemAlloc", alloc}, {"cuMemFree", unalloc}}},
    {"alloc-async", 0, {{"cuMemAllocAsync", alloc_async}, {"cuMemFreeAsync", unalloc_async}}},
    {"alloc-pitch", 0, {{"cuMemAllocPitch", alloc_pitch}, {0, unalloc}}},
    {"alloc-managed", 0, {{"cuMemAllocManaged", alloc_managed}, {0, unalloc}}},
    {"pin", 0, {{"cuMemHostAlloc", pin}, {"cuMemFreeHost", unpin}}},
    {"register", 0, {{0, map}, {"cuMemHostRegister", pin_pages}, {"cuMemHostUnregister", unpin_pages}, {0, unmap}}},
    {"register-touched", 0, {{0, map_touched}, {"cuMemHostRegister", pin_pages}, {"cuMemHostUnregister", unpin_pages}, {0, unmap}}},
    {"map", with_range, {{"cuMemCreate, cuMemMap, cuMemSetAccess", map_on_gpu}, {"cuMemUnmap, cuMemRelease", unmap_on_gpu}}},
    {"to-gpu", with_pages, {{"cuMemcpyHtoD", to_gpu}}},
    {"from-gpu", with_pages, {{"cuMemcpyDtoH", from_gpu}}},
    {"set", with_gpu_memory, {{"cuMemsetD8", set_bytes}}},
    {"memory-left", 0, {{"cuMemGetInfo", memory_left}}},
    {"pointer", with_gpu_memory, {{"cuPointerGetAttributes", pointer}}},
    {"share", with_gpu_memory, {{"cuIpcGetMemHandle", share}}},
    {"pool", 0, {{"cuMemPoolCreate", pool}, {"cuMemPoolDestroy", unpool}}},
    {"trim", with_pool, {{0, fill_pool}, {"cuMemPoolTrimTo", trim}}},
    {"array", 0, {{"cuArrayCreate", array}, {"cuArrayDestroy", unarray}}},
    {"texture", with_array, {{"cuTexObjectCreate", texture}, {"cuTexObjectDestroy", untexture}}},
    {"surface", with_array, {{"cuSurfObjectCreate", surface}, {"cuSurfObjectDestroy", unsurface}}},
    {"load-new", with_text, {{"cuModuleLoadData", load_new}, {0, unload}}},
    {"load-cached", with_cached_text, {{"cuModuleLoadData", load_text}, {0, unload}}},
    {"load-cubin", with_cubin, {{"cuModuleLoadData", load_cubin}, {"cuModuleUnload", unload}}},
    {"library", with_cubin, {{"cuLibraryLoadData, cuLibraryGetKernel, cuKernelGetFunction, cuFuncLoad", load_library}, {"cuLibraryUnload", unload_library}}},
    {"link", with_text, {{"cuLinkCreate, cuLinkAddData, cuLinkComplete", link_new}, {"cuLinkDestroy", unlinked}}},
    {"get-function", with_module, {{"cuModuleGetFunction", get_function}}},
    {"function-attribute", with_adder, {{"cuFuncSetAttribute", set_attribute}}},
    {"occupancy", with_adder, {{"cuOccupancyMaxActiveBlocksPerMultiprocessor", occupancy}}},
    {"stream", 0, {{"cuStreamCreate", stream}, {"cuStreamDestroy", unstream}}},
    {"stream-priority", 0, {{"cuStreamCreateWithPriority", stream_with_priority}, {0, unstream}}},
    {"event", 0, {{"cuEventCreate", event}, {"cuEventDestroy", unevent}}},
    {"event-sync", with_spin, {{"cuEventSynchronize", sync_event}}},
    {"event-query", with_done_event, {{"cuEventQuery", query}}},
    {"stream-sync", with_spin, {{"cuStreamSynchronize", sync_stream}}},
    {"stream-wait", with_done_event, {{"cuStreamWaitEvent", wait_event}}},
    {"context-sync", with_spin, {{"cuCtxSynchronize", sync_context}}},
    {"host-function", 0, {{"cuLaunchHostFunc", host_function}}},
    {"graph", with_adder, {{"cuGraphCreate, cuGraphAddKernelNode", graph}, {"cuGraphDestroy", ungraph}}},
    {"instantiate", with_graph, {{"cuGraphInstantiate", instantiate}, {"cuGraphExecDestroy", uninstantiate}}},
    {"upload", with_graph, {{0, instantiate}, {"cuGraphUpload", upload}, {0, wait_for_stream}, {0, uninstantiate}}},
    {"update", with_two_graphs, {{"cuGraphExecUpdate", update}}},
    {"graph-launch", with_exec, {{"cuGraphLaunch", launch_graph}, {0, wait_for_stream}}},
    {"capture", with_adder, {{"cuStreamBeginCapture, cuStreamEndCapture", capture}, {0, ungraph}}},
    {"context", 0, {{"cuCtxCreate", second_context}, {"cuCtxDestroy", no_second_context}}},
    {"limit-stack", with_stack, {{"cuCtxSetLimit", limit_stack}}},
    {"limit-printf", with_printf, {{"cuCtxSetLimit", limit_printf}}},
    {"device", 0, {{"cuDeviceGetUuid, cuDeviceGetAttribute", facts}}},
    {"peer", with_peer, {{"cuCtxEnablePeerAccess", peer}, {"cuCtxDisablePeerAccess", unpeer}}},
};

/* In the neighbour's thread: a stream for what needs one. */
static int prepare(const struct kind *kind)
{
    failure.call = not_ended = 0;
    TRY(cuStreamCreate, &s.stream, 1);
    return kind->before && kind->before();
}

/* Ends what the turn has left. */
static void clean(void)
{
    END(s.capturing, cuStreamEndCapture, s.stream, &s.graph);
    int pending = 1;
    END(pending, cuStreamSynchronize, s.stream);
    END(s.graph, cuGraphDestroy, s.graph);
    END(s.other_graph, cuGraphDestroy, s.other_graph);
    END(s.exec, cuGraphExecDestroy, s.exec);
    END(s.texture, cuTexObjectDestroy, s.texture);
    END(s.surface, cuSurfObjectDestroy, s.surface);
    END(s.array, cuArrayDestroy, s.array);
    END(s.made, cuMemFree_v2, s.made);
    END(s.made_async, cuMemFreeAsync, s.made_async, s.stream);
    END(s.gpu, cuMemFree_v2, s.gpu);
    END(s.pinned, cuMemFreeHost, s.pinned);
    END(s.registered, cuMemHostUnregister, s.registered);
    if (s.fresh) munmap(s.fresh, size);
    END(s.mapped, cuMemUnmap, s.range, size);
    END(s.handle, cuMemRelease, s.handle);
    END(s.range, cuMemAddressFree, s.range, size);
    END(s.module, cuModuleUnload, s.module);
    END(s.library, cuLibraryUnload, s.library);
    END(s.link, cuLinkDestroy, s.link);
    END(s.pool, cuMemPoolDestroy, s.pool);
    for (int k = 0; k < 2; k++) END(s.limited[k], cuCtxSetLimit, k, s.limit[k]);
    END(s.second, cuCtxDestroy_v2, s.second);
    END(s.peered, cuCtxDisablePeerAccess, s.peer);
    END(s.peer, cuDevicePrimaryCtxRelease_v2, 1);
    END(s.event, cuEventDestroy_v2, s.event);
    END(s.other_event, cuEventDestroy_v2, s.other_event);
    END(s.other_stream, cuStreamDestroy_v2, s.other_stream);
    END(s.stream, cuStreamDestroy_v2, s.stream);
    free(s.page);
    free(s.text);
    free(s.cubin);
    memset(&s, 0, sizeof s);
}

#endif
