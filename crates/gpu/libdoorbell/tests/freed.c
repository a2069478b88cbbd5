/* Memory that CUDA frees, beside CUDA: what is seen is DOORBELL_FREED, and with DOORBELL_CHECK what is not seen, too. Prints nothing unless something
 * is wrong. */
#define _GNU_SOURCE
#include "expect.h"
#include "driver_api.h"

/* A block is pinned and used, then freed, and its address given to another. */
static void freed(uint32_t flags, int (*free_it)(address_t), int wanted)
{
    doorbell_options_t options = {.size = sizeof options, .kind = DOORBELL_BESIDE_CUDA, .lanes = 1, .flags = flags, .profile = ""};
    EXPECT(doorbell_create(&options, &doorbell), DOORBELL_OK);
    address_t block, next;
    void *pointer;
    doorbell_buffer_t device, host;
    doorbell_transfer_t transfer;
    doorbell_message_t message;
    doorbell_ticket_t ticket;
    EXPECT(cuMemAlloc(&block, 4096), 0);
    EXPECT(cuMemHostAlloc(&pointer, 4096, 0), 0);
    EXPECT(doorbell_buffer_register(doorbell, (void *)(uintptr_t)block, 4096, &device), DOORBELL_OK);
    EXPECT(doorbell_buffer_register(doorbell, pointer, 4096, &host), DOORBELL_OK);
    EXPECT(doorbell_transfer_create(doorbell, device, 0, host, 0, 64, &transfer), DOORBELL_OK);
    EXPECT(doorbell_message_create(doorbell, device, 0, host, 0, &message), DOORBELL_OK);
    EXPECT(doorbell_transfer_async(doorbell, transfer, NULL, &ticket), DOORBELL_OK);
    EXPECT(doorbell_wait(doorbell, ticket, DOORBELL_FOREVER), DOORBELL_OK);
    EXPECT(free_it(block), 0);
    EXPECT(cuMemAlloc(&next, 4096), 0);
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
    EXPECT(cuMemFreeHost(pointer), 0);
    EXPECT(doorbell_copy(doorbell, device, 0, host, 0, 64, DOORBELL_FOREVER), DOORBELL_FREED);
    EXPECT(doorbell_free(doorbell), DOORBELL_OK);
    EXPECT(cuMemFree(next), 0);
}

int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int (*unseen_free)(address_t);
    if (!library)
        return 77;
    /* Looked up before: nobody sees its calls. */
    void *early = dlsym(library, "cuMemFree_v2");
    memcpy(&unseen_free, &early, sizeof early);
    begin_beside_cuda("nothing to test");
    freed(0, cuMemFree, DOORBELL_FREED);
    freed(DOORBELL_CHECK, cuMemFree, DOORBELL_FREED);
    freed(DOORBELL_CHECK, unseen_free, DOORBELL_FREED);
    /* Without it nobody knows: the copy goes to the next owner, as the rules say. */
    freed(0, unseen_free, DOORBELL_OK);
    return failures != 0;
}
