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
#include "samples.h"
#include <stdarg.h>

enum { WORDS = 14, NUMBER = 14, SUM = 15 };

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

int main(int argc, char **argv)
{
    unsigned long messages = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000;
    write_kernel();
    if (argc > 1 && !strcmp(argv[1], "--ptx")) {
        fputs(ptx, stdout);
        return 0;
    }
    if (messages < 1)
        messages = 1;
    begin_beside_cuda("there is no kernel to be told");
    void *module, *kernel, *stream, *host;
    address_t video;
    cuda(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    kernel = kernel_of(module, "serve");
    cuda(cuStreamCreate(&stream, 1), "cuStreamCreate");
    cuda(cuMemAlloc(&video, 64), "cuMemAlloc");
    cuda(cuMemHostAlloc(&host, 64, 0), "cuMemHostAlloc");
    doorbell_message_t message;
    open_session(1, 0);
    doorbell_buffer_t mailbox = pinned((void *)(uintptr_t)video, 64), answers = pinned(host, 64);
    check(doorbell_message_create(doorbell, mailbox, 0, answers, 0, &message), "doorbell_message_create");
    address_t answers_at = (address_t)(uintptr_t)host;
    void *arguments[] = {&video, &answers_at};
    cuda(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");

    struct samples sends = {0}, rounds = {0};
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
            add(&sends, sent - start);
            add(&rounds, end - start);
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
    say("send", &sends);
    say("send, and its answer", &rounds);
    check(doorbell_message_free(doorbell, message), "doorbell_message_free");
    check(doorbell_free(doorbell), "doorbell_free");
    return 0;
}
