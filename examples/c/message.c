/* Parameters for a kernel that runs, by message: 56 bytes in one write on the bus, and the kernel's answer. Without a copy, a launch or a wait.
 *
 *   cc -O2 examples/c/message.c -o target/prefix/message -Itarget/prefix/include -Ltarget/prefix/lib -Wl,-rpath,'$ORIGIN/lib' \
 *      -ldoorbell -ldl
 *   target/prefix/message [messages, 10000]
 *   target/prefix/message --ptx      prints the kernel
 *
 * The kernel (PTX text, one thread) looks at its mailbox, and answers each message with its 14 words, to each of which its place is added,
 * counting from 1. A first word of 2^32 - 1 ends it, and so do two seconds without a message. All answers are checked.
 *
 * Exit status: 0, 1 for a wrong answer or an error, 77 without CUDA. */
#define _GNU_SOURCE
#include "driver_api.h"
#include <inttypes.h>
#include <stdarg.h>

static doorbell_t *doorbell;

enum { WORDS = 14, NUMBER = 14, SUM = 15, MOST = 1000000 };
#define PATIENCE UINT64_C(5000000000)

typedef unsigned long long address_t;
static int (*cuInit)(unsigned);
static int (*cuDeviceGet)(int *, int);
static int (*cuDevicePrimaryCtxRetain)(void **, int);
static int (*cuCtxSetCurrent)(void *);
static int (*cuMemAlloc)(address_t *, size_t);
static int (*cuMemHostAlloc)(void **, size_t, unsigned);
static int (*cuStreamCreate)(void **, unsigned);
static int (*cuStreamSynchronize)(void *);
static int (*cuModuleLoadData)(void **, const void *);
static int (*cuModuleGetFunction)(void **, void *, const char *);
static int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static char ptx[16384];

static void line(const char *format, ...)
{
    size_t length = strlen(ptx);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(ptx + length, sizeof ptx - length, format, arguments);
    va_end(arguments);
    strcat(ptx, "\n");
}

/* The sum of the words before it, into %sum. */
static void sum_up(void)
{
    line("    mov.u32 %%sum, 0;");
    for (uint32_t i = 0; i < SUM; i++)
        line("    mad.lo.u32 %%sum, %%w%" PRIu32 ", 0x%" PRIx32 ", %%sum;", i, (2 * i + 1) * UINT32_C(0x9e3779b1));
}

static void write_kernel(void)
{
    line(".version 6.0\n.target sm_70\n.address_size 64");
    line(".visible .entry serve(.param .u64 mailbox, .param .u64 answers)\n{");
    line("    .reg .pred %%p<2>;\n    .reg .b32 %%w<16>, %%seen, %%sum;\n    .reg .b64 %%mailbox, %%answers, %%start, %%time;");
    line("    ld.param.u64 %%mailbox, [mailbox];\n    ld.param.u64 %%answers, [answers];");
    line("    cvta.to.global.u64 %%mailbox, %%mailbox;\n    cvta.to.global.u64 %%answers, %%answers;");
    line("    mov.u32 %%seen, 0;\n    mov.u64 %%start, %%globaltimer;");
    line("AGAIN:\n    mov.u64 %%time, %%globaltimer;\n    sub.u64 %%time, %%time, %%start;");
    line("    setp.gt.u64 %%p0, %%time, 2000000000;\n    @%%p0 bra END;");
    for (int i = 0; i < 16; i += 4)
        line("    ld.relaxed.sys.global.v4.u32 {%%w%d, %%w%d, %%w%d, %%w%d}, [%%mailbox+%d];", i, i + 1, i + 2, i + 3, 4 * i);
    line("    setp.eq.u32 %%p0, %%w%d, %%seen;\n    @%%p0 bra AGAIN;", NUMBER);
    /* Half of it may be of another message. */
    sum_up();
    line("    setp.ne.u32 %%p0, %%sum, %%w%d;\n    @%%p0 bra AGAIN;", SUM);
    line("    mov.u32 %%seen, %%w%d;\n    mov.u64 %%start, %%globaltimer;\n    setp.ne.u32 %%p1, %%w0, 0xffffffff;", NUMBER);
    for (int i = 0; i < WORDS; i++)
        line("    add.u32 %%w%d, %%w%d, %d;", i, i, i + 1);
    sum_up();
    line("    mov.u32 %%w%d, %%sum;", SUM);
    for (int i = 0; i < 16; i += 4)
        line("    st.relaxed.sys.global.v4.u32 [%%answers+%d], {%%w%d, %%w%d, %%w%d, %%w%d};", 4 * i, i, i + 1, i + 2, i + 3);
    line("    @%%p1 bra AGAIN;\nEND:\n    ret;\n}");
}

static int load_cuda(void)
{
    const struct function functions[] = {
        {&cuInit, "cuInit"}, {&cuDeviceGet, "cuDeviceGet"}, {&cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain"},
        {&cuCtxSetCurrent, "cuCtxSetCurrent"}, {&cuMemAlloc, "cuMemAlloc_v2"}, {&cuMemHostAlloc, "cuMemHostAlloc"},
        {&cuStreamCreate, "cuStreamCreate"}, {&cuStreamSynchronize, "cuStreamSynchronize"},
        {&cuModuleLoadData, "cuModuleLoadData"}, {&cuModuleGetFunction, "cuModuleGetFunction"},
        {&cuLaunchKernel, "cuLaunchKernel"},
    };
    return load_functions(functions, sizeof functions / sizeof *functions);
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void say(const char *what, uint32_t *ns, size_t n)
{
    qsort(ns, n, sizeof *ns, by_value);
    printf("%-26s n %zu, p50 %" PRIu32 " ns, p99 %" PRIu32 " ns, max %" PRIu32 " ns\n", what, n, ns[n / 2], ns[n - n / 100 - 1],
           ns[n - 1]);
}

int main(int argc, char **argv)
{
    unsigned long messages = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000;
    write_kernel();
    if (argc > 1 && !strcmp(argv[1], "--ptx")) {
        fputs(ptx, stdout);
        return 0;
    }
    if (messages < 1 || messages > MOST)
        messages = 1;
    int watching = doorbell_init();
    if (!load_cuda()) {
        printf("no libcuda: there is no kernel to be told\n");
        return 77;
    }
    check(watching, "doorbell_init");
    int device;
    void *context, *module, *kernel, *stream, *host;
    address_t video;
    cuda(cuInit(0), "cuInit");
    cuda(cuDeviceGet(&device, 0), "cuDeviceGet");
    cuda(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    cuda(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    cuda(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    cuda(cuModuleGetFunction(&kernel, module, "serve"), "cuModuleGetFunction");
    cuda(cuStreamCreate(&stream, 1), "cuStreamCreate");
    cuda(cuMemAlloc(&video, 64), "cuMemAlloc");
    cuda(cuMemHostAlloc(&host, 64, 0), "cuMemHostAlloc");
    doorbell_buffer_t mailbox, answers;
    doorbell_message_t message;
    doorbell_options_t options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.kind = DOORBELL_BESIDE_CUDA;
    options.lanes = 1;
    check(doorbell_create(&options, &doorbell), "doorbell_create");
    check(doorbell_buffer_register(doorbell, (void *)(uintptr_t)video, 64, &mailbox), "pin GPU memory");
    check(doorbell_buffer_register(doorbell, host, 64, &answers), "pin host memory");
    check(doorbell_message_create(doorbell, mailbox, 0, answers, 0, &message), "doorbell_message_create");
    address_t answers_at = (address_t)(uintptr_t)host;
    void *arguments[] = {&video, &answers_at};
    cuda(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");

    uint32_t *sends = calloc(messages, sizeof *sends), *rounds = calloc(messages, sizeof *rounds);
    if (!sends || !rounds)
        return 1;
    for (unsigned long n = 0; n <= messages; n++) {
        uint32_t parameters[WORDS], answer[WORDS], number;
        for (uint32_t i = 0; i < WORDS; i++)
            parameters[i] = n == messages ? UINT32_MAX : (uint32_t)n * 31 + i * i;
        uint64_t start = now();
        check(doorbell_message_send(doorbell, message, parameters, sizeof parameters, &number), "send");
        uint64_t sent = now();
        check(doorbell_message_wait(doorbell, message, number, answer, PATIENCE), "wait for the answer");
        uint64_t end = now();
        if (n < messages) {
            sends[n] = (uint32_t)(sent - start);
            rounds[n] = (uint32_t)(end - start);
        }
        for (uint32_t i = 0; i < WORDS; i++) {
            if (answer[i] != parameters[i] + i + 1) {
                fprintf(stderr, "message %lu: word %u of the answer is %u\n", n, i, answer[i]);
                return 1;
            }
        }
    }
    cuda(cuStreamSynchronize(stream), "cuStreamSynchronize");
    printf("%lu messages of 56 bytes to a running kernel, every answer right\n", messages);
    say("send", sends, messages);
    say("send, and its answer", rounds, messages);
    check(doorbell_message_free(doorbell, message), "doorbell_message_free");
    check(doorbell_free(doorbell), "doorbell_free");
    return 0;
}
