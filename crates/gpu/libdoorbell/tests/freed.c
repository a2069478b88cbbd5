/* Memory that CUDA frees, beside CUDA: what is seen is DOORBELL_FREED, and with DOORBELL_CHECK what is not seen, too. Prints nothing unless something
 * is wrong. */
#define _GNU_SOURCE
#include <doorbell.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static doorbell_t *doorbell;

typedef unsigned long long address_t;
static int failures;

static void expect(int line, int code, int wanted)
{
    if (code != wanted) {
        fprintf(stderr, "line %d: %d (%s: %s), not %d\n", line, code, doorbell_error_text(code), doorbell_error_detail(), wanted);
        failures++;
    }
}
#define EXPECT(call, wanted) expect(__LINE__, (call), (wanted))

static int (*allocate)(address_t *, size_t), (*unseen_free)(address_t), (*seen_free)(address_t), (*free_host)(void *);
static int (*host_alloc)(void **, size_t, unsigned);

/* A block is pinned and used, then freed, and its address given to another. */
static void freed(uint32_t flags, int (*free_it)(address_t), int wanted)
{
    doorbell_options_t options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.kind = DOORBELL_BESIDE_CUDA;
    options.lanes = 1;
    options.flags = flags;
    options.profile = "";
    EXPECT(doorbell_create(&options, &doorbell), DOORBELL_OK);
    address_t block, next;
    void *pointer;
    doorbell_buffer_t device, host;
    doorbell_transfer_t transfer;
    doorbell_message_t message;
    doorbell_ticket_t ticket;
    EXPECT(allocate(&block, 4096), 0);
    EXPECT(host_alloc(&pointer, 4096, 0), 0);
    EXPECT(doorbell_buffer_register(doorbell, (void *)(uintptr_t)block, 4096, &device), DOORBELL_OK);
    EXPECT(doorbell_buffer_register(doorbell, pointer, 4096, &host), DOORBELL_OK);
    EXPECT(doorbell_transfer_create(doorbell, device, 0, host, 0, 64, &transfer), DOORBELL_OK);
    EXPECT(doorbell_message_create(doorbell, device, 0, host, 0, &message), DOORBELL_OK);
    EXPECT(doorbell_transfer_async(doorbell, transfer, NULL, &ticket), DOORBELL_OK);
    EXPECT(doorbell_wait(doorbell, ticket, DOORBELL_FOREVER), DOORBELL_OK);
    EXPECT(free_it(block), 0);
    EXPECT(allocate(&next, 4096), 0);
    if (next != block)
        failures++;
    EXPECT(doorbell_transfer_async(doorbell, transfer, NULL, &ticket), wanted);
    EXPECT(doorbell_copy_async(doorbell, device, 0, host, 0, 64, NULL, &ticket), wanted);
    EXPECT(doorbell_message_send(doorbell, message, "x", 1, NULL), wanted);
    EXPECT(doorbell_copy(doorbell, device, 0, host, 0, 64, DOORBELL_FOREVER), wanted);
    EXPECT(doorbell_buffer_free(doorbell, device), DOORBELL_OK);
    /* What is there now is another buffer. */
    EXPECT(doorbell_buffer_register(doorbell, (void *)(uintptr_t)next, 4096, &device), DOORBELL_OK);
    EXPECT(doorbell_copy(doorbell, device, 0, host, 0, 64, DOORBELL_FOREVER), DOORBELL_OK);
    EXPECT(free_host(pointer), 0);
    EXPECT(doorbell_copy(doorbell, device, 0, host, 0, 64, DOORBELL_FOREVER), DOORBELL_FREED);
    EXPECT(doorbell_free(doorbell), DOORBELL_OK);
    EXPECT(seen_free(next), 0);
}

int main(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context;
    int (*init)(unsigned), (*retain)(void **, int), (*set)(void *);
    if (!cuda)
        return 77;
    /* Looked up before: nobody sees its calls. */
    void *early = dlsym(cuda, "cuMemFree_v2");
    memcpy(&unseen_free, &early, sizeof early);
    EXPECT(doorbell_init(), DOORBELL_OK);
    struct { void *to; const char *name; } functions[] = {
        {&init, "cuInit"}, {&retain, "cuDevicePrimaryCtxRetain"}, {&set, "cuCtxSetCurrent"}, {&allocate, "cuMemAlloc_v2"},
        {&seen_free, "cuMemFree_v2"}, {&host_alloc, "cuMemHostAlloc"}, {&free_host, "cuMemFreeHost"},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = dlsym(cuda, functions[i].name);
        memcpy(functions[i].to, &found, sizeof found);
    }
    EXPECT(init(0), 0);
    EXPECT(retain(&context, 0), 0);
    EXPECT(set(context), 0);
    freed(0, seen_free, DOORBELL_FREED);
    freed(DOORBELL_CHECK, seen_free, DOORBELL_FREED);
    freed(DOORBELL_CHECK, unseen_free, DOORBELL_FREED);
    /* Without it nobody knows: the copy goes to the next owner, as the rules say. */
    freed(0, unseen_free, DOORBELL_OK);
    return failures != 0;
}
