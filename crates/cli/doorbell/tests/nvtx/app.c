/* Ranges, as the first argument selects. Prints the functions' results. */
#define _GNU_SOURCE
#include "nvtx.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void work(int us) { usleep(us); }

/* Nested ranges of two domains, texts of all kinds, marks. */
static void nested(void) {
    void *lib = domain("lib"), *again = domain("lib");
    void *step = registered(lib, "registered step");
    printf("%d", push("epoch"));
    for (int i = 0; i < 3; i++) {
        printf(" %d", domain_push(lib, ATTRIBUTES(REGISTERED(step), .payload_type = 1, .payload.u64 = i)));
        printf(" %d", push_wide(L"vorwärts"));
        printf(" %d", push_ex(ATTRIBUTES(TEXT("inner"), .color_type = 1, .color = 0xff336699, .category = 7)));
        work(1000);
        printf(" %d", pop());
        printf(" %d", pop());
        printf(" %d", domain_pop(again));
    }
    printf(" %d", pop());
    printf(" %d", pop());
    printf(" %d\n", domain_pop(lib));
    mark("done");
    domain_mark(lib, ATTRIBUTES(TEXT("done")));
    destroy(lib);
    char longest[400];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    push(longest), push(""), push(NULL), push_ex(NULL);
    pop(), pop(), pop(), pop();
}

static uint64_t handed;

static void *ends(void *_) { return end(handed), _; }

static void *dies(void *_) {
    push("outer of one that dies");
    push("dies");
    return _;
}

static void *many(void *number) {
    char text[64];
    for (int i = 0; i < 50; i++) {
        sprintf(text, "thread %d", (int)(intptr_t)number);
        push(text);
        push("shared");
        pop();
        pop();
    }
    return NULL;
}

static void threads(void) {
    pthread_t all[8];
    handed = start("across");
    pthread_create(&all[0], NULL, ends, NULL);
    pthread_join(all[0], NULL);
    pthread_create(&all[0], NULL, dies, NULL);
    pthread_join(all[0], NULL);
    for (intptr_t i = 0; i < 8; i++) pthread_create(&all[i], NULL, many, (void *)i);
    for (int i = 0; i < 8; i++) pthread_join(all[i], NULL);
    uint64_t left = start("left open");
    printf("%d\n", left != 0 && handed != 0 && left != handed);
}

/* More texts close together than one table of the agent has room for. */
static void texts(int n) {
    char text[64];
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < n; i++) {
            sprintf(text, "text %d", i);
            push(text);
            pop();
        }
    printf("%d\n", push("last"));
}

static void forks(void) {
    void *lib = domain("lib"), *text = registered(lib, "registered");
    push("parent");
    domain_push(lib, ATTRIBUTES(REGISTERED(text)));
    domain_pop(lib);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        /* It is in its parent's range. */
        printf("child %d", domain_push(lib, ATTRIBUTES(REGISTERED(text))));
        printf(" %d", push("child"));
        printf(" %d", pop());
        printf(" %d", domain_pop(lib));
        printf(" %d\n", pop());
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    printf("parent %d\n", pop());
}

/* The environment, here and in a child. */
static void environment(void) {
    for (char **e = environ; *e; e++)
        if (strstr(*e, "NVTX") || strstr(*e, "DOORBELL")) printf("here: %s\n", *e);
    fflush(stdout);
    if (system("env | grep -e NVTX -e DOORBELL")) puts("nothing in a child");
    errno = 77;
    push("errno"), pop(), end(start("errno")), mark("errno");
    printf("errno %d\n", errno);
}

/* Recorded while `step` is open. */
static void captured(void) {
    void *lib = domain("lib");
    for (int i = 0; i < 3; i++) {
        push("before"), pop();
        push("step");
        push("in"), push("step"), pop(), pop();
        pop();
        push("between"), pop();
        domain_push(lib, ATTRIBUTES(TEXT("step")));
        push("in lib"), pop();
        domain_pop(lib);
    }
    uint64_t a = start("step"), b = start("step");
    push("started"), pop();
    end(a);
    push("one left"), pop();
    end(b), end(b);
    push("after"), pop();
    pthread_t t;
    pthread_create(&t, NULL, dies, NULL);
    pthread_join(t, NULL);
    puts("1");
}

/* A graph that fills memory, launched in ranges. */
static void graphs(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
#define CUDA(name, ...) int (*name)(__VA_ARGS__) = (int (*)(__VA_ARGS__))dlsym(cuda, #name)
    CUDA(cuInit, unsigned);
    CUDA(cuDevicePrimaryCtxRetain, void **, int);
    CUDA(cuCtxSetCurrent, void *);
    CUDA(cuMemAlloc_v2, uint64_t *, size_t);
    CUDA(cuStreamCreate, void **, unsigned);
    CUDA(cuStreamSynchronize, void *);
    CUDA(cuMemsetD32Async, uint64_t, unsigned, size_t, void *);
    CUDA(cuStreamBeginCapture_v2, void *, int);
    CUDA(cuStreamEndCapture, void *, void **);
    CUDA(cuGraphInstantiateWithFlags, void **, void *, uint64_t);
    CUDA(cuGraphLaunch, void *, void *);
    void *context, *stream, *graph, *exec;
    uint64_t at;
    int r = cuInit(0);
    r += cuDevicePrimaryCtxRetain(&context, 0);
    r += cuCtxSetCurrent(context);
    r += cuMemAlloc_v2(&at, 4096);
    r += cuStreamCreate(&stream, 0);
    r += cuStreamBeginCapture_v2(stream, 0);
    r += cuMemsetD32Async(at, 7, 1024, stream);
    r += cuStreamEndCapture(stream, &graph);
    r += cuGraphInstantiateWithFlags(&exec, graph, 0);
#define LAUNCH() (r += cuGraphLaunch(exec, stream), r += cuStreamSynchronize(stream))
    LAUNCH();
    push("epoch");
    for (int i = 0; i < 4; i++) {
        push("step");
        LAUNCH();
        pop();
    }
    LAUNCH();
    pop();
    uint64_t id = start("tail");
    LAUNCH();
    end(id);
    printf("%d\n", r);
}

int main(int n, char **words) {
    const char *what = n > 1 ? words[1] : "";
    int connected = nvtx();
    if (n > 2) printf("connected %d\n", connected);
    if (!strcmp(what, "nested")) nested();
    if (!strcmp(what, "threads")) threads();
    if (!strcmp(what, "texts")) texts(1000);
    if (!strcmp(what, "manytexts")) texts(30000);
    if (!strcmp(what, "forks")) forks();
    if (!strcmp(what, "environment")) environment();
    if (!strcmp(what, "captured")) captured();
    if (!strcmp(what, "graphs")) graphs();
    if (!strcmp(what, "own")) push("a"), push("b"), pop(), pop();
    return 0;
}
