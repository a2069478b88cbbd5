/* Parameters for a kernel that runs and looks at its parameter block: 56 bytes travel in the command stream, so the program needs
 * no pinned memory for them and may change its own copy at once.
 *
 *   cc parameters.c -o parameters -ldoorbell && ./parameters [updates, 1000]
 *
 * The copy is ordinary for the kernel: it sees the bytes in pieces, in any order, while they arrive. So the block ends with a number
 * that the program sends in a second, later submission on the same lane; a kernel takes the block when the number has changed. */
#include <doorbell.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static doorbell_t *doorbell;

struct parameters { float gain[14]; };

static void check(int code, const char *what)
{
    if (code != DOORBELL_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, doorbell_error_text(code), doorbell_error_detail());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    unsigned long updates = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    doorbell_buffer_t block;
    doorbell_transfer_t values, number;
    doorbell_ticket_t ticket = 0;
    void *seen;
    check(doorbell_create(NULL, &doorbell), "open");
    /* In host memory, so that this program can play the kernel. For a real kernel: DOORBELL_VIDEO, or its cudaMalloc'ed block. */
    check(doorbell_buffer_create(doorbell, DOORBELL_HOST, 64, &block, &seen), "allocate");
    check(doorbell_transfer_create_bytes(doorbell, block, 0, sizeof(struct parameters), &values), "prepare");
    check(doorbell_transfer_create_bytes(doorbell, block, sizeof(struct parameters), sizeof(uint32_t), &number), "prepare");
    for (uint32_t n = 1; n <= updates; n++) {
        struct parameters now;
        for (int i = 0; i < 14; i++)
            now.gain[i] = (float)n + (float)i / 16;
        check(doorbell_transfer_bytes_async(doorbell, values, &now, sizeof now, NULL, &ticket), "submit");
        check(doorbell_transfer_bytes_async(doorbell, number, &n, sizeof n, NULL, &ticket), "submit");
        check(doorbell_wait(doorbell, ticket, DOORBELL_FOREVER), "wait");
        uint32_t arrived;
        memcpy(&arrived, (char *)seen + sizeof now, sizeof arrived);
        if (arrived != n || memcmp(seen, &now, sizeof now) != 0) {
            fprintf(stderr, "update %u is not there\n", (unsigned)n);
            return 1;
        }
    }
    printf("%lu updates of %zu bytes\n", updates, sizeof(struct parameters));
    check(doorbell_transfer_free(doorbell, values), "release");
    check(doorbell_transfer_free(doorbell, number), "release");
    check(doorbell_free(doorbell), "close");
    return 0;
}
