/* One process calls each function both ways in turn, in random order: as a program finds it (under `run --fix` an entry of doorbell's, if it has one) and CUDA's
 * own, by its place in the file of libcuda.
 *
 *     pairs PAIRS      prints a line of JSON for each pair: what, bytes, and nanoseconds of each way
 *
 * A launch is the mean of 1,000, of which 100 are queued at a time. Pinned memory is written to once.
 *
 *     cc -O2 -o pairs pairs.c -pthread -ldl
 */
#define _GNU_SOURCE
#include "driver.h"
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { LAUNCHES = 1000, MIB = 1 << 20 };

/* CUDA's own function. */
static void *own(const char *name)
{
    struct link_map *map;
    struct stat size;
    if (dlinfo(lib, RTLD_DI_LINKMAP, &map)) exit(1);
    int file = open(map->l_name, O_RDONLY);
    if (file < 0 || fstat(file, &size)) perror(map->l_name), exit(1);
    const char *at = mmap(0, size.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    const Elf64_Ehdr *head = (void *)at;
    const Elf64_Shdr *section = (void *)(at + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++) {
        if (section[i].sh_type != SHT_DYNSYM) continue;
        const Elf64_Sym *symbol = (void *)(at + section[i].sh_offset);
        const char *names = at + section[section[i].sh_link].sh_offset;
        for (size_t k = 0; k < section[i].sh_size / sizeof *symbol; k++)
            if (symbol[k].st_value && !strcmp(names + symbol[k].st_name, name)) return (char *)map->l_addr + symbol[k].st_value;
    }
    fprintf(stderr, "no %s\n", name);
    exit(1);
}

typedef int (*call)();
static struct { call launch, to, to_async, from, from_async, pin, unpin; } way[2];
static void *function, *stream;
static uint64_t gpu;
static char *page;
static uint32_t value = 7;
static void *arguments[] = {&gpu, &value};

static int64_t once(const char *what, size_t bytes, int w)
{
    void *p;
    int result = 0;
    int64_t began = now_ns(), ended = 0;
    if (!strcmp(what, "cuLaunchKernel")) {
        for (int i = 0; i < LAUNCHES; i++) {
            result |= way[w].launch(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, (void *)0);
            if (i % 100 == 99) {
                ended += now_ns() - began;
                CUDA(cuStreamSynchronize, stream);
                began = now_ns();
            }
        }
        ended = ended / LAUNCHES + began;
    } else if (!strcmp(what, "cuMemHostAlloc")) {
        result = way[w].pin(&p, bytes, 0);
        if (!result) memset(p, 1, bytes);
        ended = now_ns();
        if (!result) result = way[w].unpin(p);
    } else {
        if (!strcmp(what, "cuMemcpyHtoD")) result = way[w].to(gpu, page, bytes);
        if (!strcmp(what, "cuMemcpyDtoH")) result = way[w].from(page, gpu, bytes);
        if (!strcmp(what, "cuMemcpyHtoDAsync")) result = way[w].to_async(gpu, page, bytes, (void *)0);
        if (!strcmp(what, "cuMemcpyDtoHAsync")) result = way[w].from_async(page, gpu, bytes, (void *)0);
        /* (Until all is there: a synchronous copy to the GPU may end later than its call.) */
        CUDA(cuStreamSynchronize, (void *)0);
        ended = now_ns();
    }
    if (result) fprintf(stderr, "%s: %d\n", what, result), exit(1);
    return ended - began;
}

int main(int count, char **word)
{
    static const char code[] = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry mark(.param .u64 p, .param .u32 v){ .reg .b64 a; .reg .b32 w; "
                               "ld.param.u64 a,[p]; ld.param.u32 w,[v]; st.global.u32 [a],w; ret; }";
    static const struct { const char *what; size_t mib; } all[] = {
        {"cuLaunchKernel", 0}, {"cuMemHostAlloc", 2}, {"cuMemHostAlloc", 64}, {"cuMemcpyHtoD", 2}, {"cuMemcpyHtoD", 4}, {"cuMemcpyHtoD", 64},
        {"cuMemcpyHtoDAsync", 4}, {"cuMemcpyHtoDAsync", 64}, {"cuMemcpyDtoH", 2}, {"cuMemcpyDtoH", 4}, {"cuMemcpyDtoH", 64}, {"cuMemcpyDtoHAsync", 64}};
    int pairs = count > 1 ? atoi(word[1]) : 30;
    function = begin(code, "mark");
    CUDA(cuStreamCreate, &stream, 1);
    CUDA(cuMemAlloc_v2, &gpu, (size_t)64 * MIB);
    page = malloc(64 * MIB);
    memset(page, 1, 64 * MIB);
#define BOTH(field, name) way[0].field = (call)own(name), way[1].field = (call)dlsym(lib, name)
    BOTH(launch, "cuLaunchKernel");
    BOTH(to, "cuMemcpyHtoD_v2");
    BOTH(to_async, "cuMemcpyHtoDAsync_v2");
    BOTH(from, "cuMemcpyDtoH_v2");
    BOTH(from_async, "cuMemcpyDtoHAsync_v2");
    BOTH(pin, "cuMemHostAlloc");
    BOTH(unpin, "cuMemFreeHost");
    srand(now_ns());
    for (int i = -2; i < pairs; i++)
        for (unsigned k = 0; k < sizeof all / sizeof *all; k++) {
            int64_t ns[2];
            int first = rand() & 1;
            /* (The first of several is slower: what it uses is not in the caches any more.) */
            once(all[k].what, all[k].mib * MIB, rand() & 1);
            ns[first] = once(all[k].what, all[k].mib * MIB, first);
            ns[!first] = once(all[k].what, all[k].mib * MIB, !first);
            if (i >= 0)
                printf("{\"what\":\"%s\",\"mib\":%zu,\"first\":%d,\"cuda_ns\":%lld,\"found_ns\":%lld,\"is_cudas\":%d}\n", all[k].what, all[k].mib, first,
                       (long long)ns[0], (long long)ns[1], !all[k].mib && way[0].launch == way[1].launch);
        }
    return 0;
}
